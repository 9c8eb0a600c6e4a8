"""Token costs of a request: by bytes first, counted when that does not settle it. Knows texts and sizes, no tokenizer."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from gateway.context.items import Dialect, Item
from gateway.context.layout import Arranged
from gateway.context.prefixes import Prefixes

PROTOCOL_TOKENS = 1_024  # what the byte estimate keeps for the protocol's own tokens. Source: design, "Runway and estimates"
COUNTED_PROTOCOL_TOKENS = 16  # the same when tokens were counted: the reply's primer, with room
MESSAGE_TOKENS = 4  # what surrounds each message in a chat template
BYTES_PER_TOKEN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Estimated tokens: `items` in the order of the arranged request's items, `notes` at its tail, `envelope` all the rest.

    `safety` is what counts were multiplied by, so that what planning adds later is priced alike.
    """

    items: tuple[int, ...]
    notes: int
    envelope: int
    counted: bool
    safety: float = 1.0

    @property
    def total(self) -> int:
        """Return the sum."""
        return sum(self.items) + self.notes + self.envelope


def _by_bytes(item: Item) -> int:
    return -(-(len(item.raw) - item.media_bytes) // BYTES_PER_TOKEN) + item.media_tokens


def by_bytes(arranged: Arranged, dialect: Dialect, memo: Prefixes[tuple[int, ...]] | None = None) -> Costs:
    """Return the estimate that needs no tokenizer: a token for three bytes of what is on the wire, media at a flat price."""
    request = arranged.request
    envelope = sum(len(each.lead) + len(each.value) for each in request.fields) - sum(len(item.raw) for item in request.lead)
    return Costs(
        items=known(request.items, "bytes", lambda items: map(_by_bytes, items), memo),
        notes=sum(map(_by_bytes, arranged.notes)),
        envelope=PROTOCOL_TOKENS - (-envelope // BYTES_PER_TOKEN),
        counted=False,
    )


def known(
    items: tuple[Item, ...], key: Hashable, price: Callable[[Sequence[Item]], Iterable[int]], memo: Prefixes[tuple[int, ...]] | None
) -> tuple[int, ...]:
    """Return the price of each item; those of the first ones are taken from the memo where it has them under this key."""
    if memo is None:
        return tuple(price(items))
    count, before = memo.longest(items, key) or (0, ())
    if count == len(items):
        return before
    made = (*before, *price(items[count:]))
    memo.keep(items, key, made, instead_of=count)
    return made


def priced(count: int, item: Item, safety: float) -> int:
    """Return what an item of so many counted tokens costs in a prompt."""
    return -int(-count * safety // 1) + MESSAGE_TOKENS + item.media_tokens


def counted(arranged: Arranged, items: tuple[int, ...], notes: Sequence[int], envelope: int, safety: float) -> Costs:
    """Return the costs from the price of each item, counts of the text of each note and of all beside them, times `safety`."""
    return Costs(
        items=items,
        notes=sum(priced(count, item, safety) for count, item in zip(notes, arranged.notes, strict=True)),
        envelope=-int(-envelope * safety // 1) + COUNTED_PROTOCOL_TOKENS,
        counted=True,
        safety=safety,
    )
