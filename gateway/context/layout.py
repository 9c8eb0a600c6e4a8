"""The order of a prompt: what stands still first, what moves last. Decided once for a request, the same for each target."""

from collections.abc import MutableMapping
from dataclasses import dataclass, field, replace

from gateway.context import volatile
from gateway.context.items import Dialect, Item, Kind, Request
from gateway.context.policy import LayoutPolicy, Volatile
from gateway.context.volatile import Span

NOTE = "Context note: these lines of the instructions above change with each request.\n"
Key = tuple[str, bytes, tuple[str, ...]]  # dialect, digest of the item, patterns
Scans = dict[Key, tuple[tuple[Span, ...], ...]]
SCANS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Arranged:
    """A request laid out. `head` leading items are the system run; `notes` go behind the last message; `moved` are their lines.

    When only observed, `moved` are the lines that would have moved. The dialect is at hand to price what planning prunes.
    """

    request: Request
    notes: tuple[Item, ...] = ()
    head: int = 0
    moved: tuple[str, ...] = ()
    dialect: Dialect = field(compare=False, repr=False)


def arrange(
    request: Request,
    policy: LayoutPolicy,
    dialect: Dialect,
    *,
    observe: bool = False,
    memo: MutableMapping[Key, tuple[tuple[Span, ...], ...]] | None = None,
) -> Arranged:
    """Return the request with its tools sorted, its leading run ordered, and volatile lines moved to a note at the tail.

    Where there is nothing to do, or only to observe, the request is the same object. A request that ends in calls without
    their results has no place for a note: then nothing moves.
    """
    head = next((n for n, item in enumerate(request.items) if item.kind is not Kind.SYSTEM), len(request.items))
    scans = [_scan(item, policy.volatile_patterns, dialect, memo) for item in request.items[:head]]
    moved = tuple(line for item, spans in zip(request.items, scans, strict=False) for line in _lines(item, spans, dialect))
    if observe or policy.volatile is not Volatile.RELOCATE:
        moving = request
        if not observe and policy.tools_sorted:
            moving = _sorted(request)
        return Arranged(request=moving, head=head, moved=moved, dialect=dialect)
    made = _sorted(request) if policy.tools_sorted else request
    if not moved or not _has_place(request):
        return Arranged(request=made, head=head, dialect=dialect)
    still = [item for item, spans in zip(request.items, scans, strict=False) if not any(spans)]
    cut = [_without(item, spans, dialect) for item, spans in zip(request.items, scans, strict=False) if any(spans)]
    leading = (*still, *(item for item in cut if item is not None))
    made = made.with_items((*leading, *request.items[head:]))
    note = dialect.note(NOTE + "".join(moved).rstrip("\n"))
    return Arranged(request=made, notes=(note,), head=len(leading), moved=moved, dialect=dialect)


def _has_place(request: Request) -> bool:
    """Whether a note may stand last: not between a call and its results, nor behind an answer begun for the model to go on."""
    answered: set[str] = set()
    for item in reversed(request.items):
        if item.kind is Kind.ASSISTANT:
            return bool(answered) and answered.issuperset(item.opens)
        if item.kind is not Kind.RESULT:
            return True
        answered.update(item.answers)
    return False


def _sorted(request: Request) -> Request:
    names = [tool.name for tool in request.tools]
    if not all(names) or names == sorted(names):
        return request
    tools = tuple(sorted(request.tools, key=lambda tool: tool.name))
    value = b"[" + b",".join(tool.raw for tool in tools) + b"]"
    return replace(request.with_value("tools", value), tools=tools)


def _scan(
    item: Item,
    patterns: tuple[str, ...],
    dialect: Dialect,
    memo: MutableMapping[Key, tuple[tuple[Span, ...], ...]] | None,
) -> tuple[tuple[Span, ...], ...]:
    key = (dialect.name, item.digest, patterns)
    found = None if memo is None else memo.get(key)
    if found is None:
        found = tuple(volatile.scan(text, patterns) for text in dialect.texts(item))
        if memo is not None:
            if len(memo) >= SCANS:
                memo.clear()
            memo[key] = found
    return found


def _lines(item: Item, scans: tuple[tuple[Span, ...], ...], dialect: Dialect) -> list[str]:
    if not any(scans):
        return []
    return [
        text[span.start : span.end].rstrip("\n") + "\n"
        for text, spans in zip(dialect.texts(item), scans, strict=True)
        for span in spans
    ]


def _without(item: Item, scans: tuple[tuple[Span, ...], ...], dialect: Dialect) -> Item | None:
    """Return the item without its volatile lines; None when nothing would be left of it."""
    texts = []
    for text, spans in zip(dialect.texts(item), scans, strict=True):
        kept, at = "", 0
        for span in spans:
            kept += text[at : span.start]
            at = span.end
        texts.append(kept + text[at:])
    if not item.media_tokens and not any(text.strip() for text in texts):
        return None
    return dialect.with_texts(item, tuple(texts))
