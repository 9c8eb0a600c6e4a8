"""A body cut into its items, the same for each dialect: what differs is named by a `Shape`.

Forwarded is what is not known; refused only what two readers could read differently (a key twice, NaN, broken UTF-8) or what
cannot be read at all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from gateway.context.items import Field, Item, Request, Tool
from gateway.dialects import fields
from gateway.dialects.memo import Memo, Seen
from gateway.errors import InvalidJSON, InvalidRequest, RequestError

LARGEST_DIGITS = 15  # of an output limit; a larger one is as far beyond every window


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Where a dialect's body holds what. `item` and `lead` make one item of raw JSON, and of the place it is named by in errors.

    `lead_field` holds items that come before all others: a text, or a list of blocks. `limit_fields` are those of the output
    limit, the first that is set counts. `reports_usage`: streams tell their usage unasked. `text_items`: a bare text may stand
    for the list of items. `optional_items`: a body without them is legal.
    """

    items_field: str
    item: Callable[[bytes, str], Item]
    limit_fields: tuple[str, ...]
    lead_field: str = ""
    lead: Callable[[bytes, str], Item] | None = None
    reports_usage: bool = False
    text_items: bool = False
    optional_items: bool = False


def parse(body: bytes, memo: Memo, shape: Shape) -> Request:
    """Return the request that a body holds; `request.body()` gives the very bytes again.

    The memo is asked and told; it changes how long this takes, never the result. Raises InvalidJSON (malformed, not UTF-8, a
    key twice at any depth, NaN, too deep) and InvalidRequest (no object, no model, no list of items, an item that is no
    object). Messages say what and where, never content.
    """
    found = memo.longest(body)
    if found is not None:
        try:
            return _continue(body, *found, memo, shape)
        except RequestError:
            pass  # the parse of the whole says what is wrong, and at which byte of it
    fields.check_utf8(body)
    parts, close = fields.split(body)
    place = next((n for n, each in enumerate(parts) if each.name == shape.items_field), None)
    if place is None and not shape.optional_items:
        raise InvalidRequest(f"the body has no {shape.items_field}; give a list of them", param=shape.items_field)
    if place is None:
        return _request(parts, close, (), (b"[]",), memo, shape)
    before, value = (*parts[:place], replace(parts[place], value=b"")), parts[place].value
    if shape.text_items and value[:1] == b'"':
        item = memo.item(value, lambda raw: shape.item(raw, shape.items_field))
        return _request((*before, *parts[place + 1 :]), close, (item,), (b"", b""), memo, shape)
    raws, seams = fields.elements(value, shape.items_field)
    seen = _seen(body, before, _items(raws, 0, memo, shape), seams)
    request = _request((*before, *parts[place + 1 :]), close, seen.items, tuple(seams), memo, shape)
    memo.remember(seen)
    return request


def _continue(body: bytes, known: Seen, count: int, memo: Memo, shape: Shape) -> Request:
    """Parse a body that starts like a known one up to the end of its item `count`: only what follows is read.

    JSON is read from left to right, so what follows stands in the same place as after any other element of the same list.
    """
    end = known.ends[count - 1]
    tail = body[end:]
    fields.check_utf8(tail)
    parts, close = fields.split(b'{"' + shape.items_field.encode() + b'":[0' + tail)
    raws, seams = fields.elements(parts[0].value, shape.items_field)
    items = (*known.items[:count], *_items(raws[1:], count, memo, shape))
    around = (*known.seams[:count], *seams[1:])
    request = _request((*known.fields, *parts[1:]), close, items, around, memo, shape)
    seen = _seen(body, known.fields, items, around, known.ends[:count])
    memo.remember(seen, instead_of=known if count == len(known.items) else None)
    return request


def _seen(
    body: bytes, before: tuple[Field, ...], items: tuple[Item, ...], seams: Sequence[bytes], ends: tuple[int, ...] = ()
) -> Seen:
    """Return what the memo keeps of a body; `ends` of the first items are known, those of the rest follow from the bytes."""
    start = ends[-1] if ends else sum(len(each.lead) + len(each.value) for each in before)
    rest = zip(seams[len(ends) :], items[len(ends) :], strict=False)
    ends += tuple(accumulate((len(seam) + len(item.raw) for seam, item in rest), initial=start))[1:]
    return Seen(body[: ends[-1]] if ends else b"", before, items, tuple(seams[: len(items)]), ends)


def _items(raws: Sequence[bytes], start: int, memo: Memo, shape: Shape) -> tuple[Item, ...]:
    items = []
    for index, raw in enumerate(raws, start):
        if raw[:1] != b"{":
            raise InvalidRequest(f"{shape.items_field}[{index}] must be an object", param=shape.items_field)
        items.append(memo.item(raw, lambda raw, index=index: shape.item(raw, f"{shape.items_field}[{index}]")))  # type: ignore[misc]
    return tuple(items)


def _request(
    parts: tuple[Field, ...], close: bytes, items: tuple[Item, ...], seams: tuple[bytes, ...], memo: Memo, shape: Shape
) -> Request:
    """Return the request of these parts, its facts read and every field that holds more than a scalar checked."""
    values = {each.name: each.value for each in parts}
    if len(values) != len(parts):
        raise InvalidJSON("the body has a key twice; readers differ on which one counts, so each key may stand once")
    tools: tuple[Tool, ...] = ()
    for name, value in values.items():
        if value[:1] in (b"{", b"["):
            found = memo.value(value, lambda raw, name=name: _checked(raw, name))  # type: ignore[misc]
            tools = found if name == "tools" else tools
    limit, limit_field = _output_limit(values, shape.limit_fields)
    return Request(
        fields=parts,
        close=close,
        items=(*_lead(values.get(shape.lead_field, b"null"), memo, shape), *items),
        seams=seams,
        items_field=shape.items_field,
        tools=tools,
        model=_model(values.get("model")),
        stream=values.get("stream") == b"true",
        include_usage=shape.reports_usage or _asks_usage(values.get("stream_options", b"")),
        output_limit=limit,
        output_limit_field=limit_field,
    )


def _lead(value: bytes, memo: Memo, shape: Shape) -> tuple[Item, ...]:
    """Return the items of the leading field; empty for one that holds neither a text nor a list of objects."""
    make = shape.lead
    if make is None or value[:1] not in (b'"', b"["):
        return ()
    raws = [value] if value[:1] == b'"' else fields.elements(value, shape.lead_field)[0]
    if value[:1] == b"[" and any(raw[:1] != b"{" for raw in raws):
        return ()
    made = (memo.item(raw, lambda raw: make(raw, shape.lead_field)) for raw in raws)
    # The same bytes may have been an item of the conversation.
    return tuple(item if item.place else make(item.raw, shape.lead_field) for item in made)


def _asks_usage(options: bytes) -> bool:
    if options[:1] != b"{":
        return False
    value = fields.load(options, "stream_options")
    return isinstance(value, dict) and value.get("include_usage") is True


def _checked(raw: bytes, name: str) -> tuple[Tool, ...]:
    """Check a field's value at every depth, and return the tools that it holds if it is a plain list of objects."""
    value = fields.load(raw, name)
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        return ()
    raws, _ = fields.elements(raw, name)
    return tuple(Tool(raw=each, name=_tool_name(made)) for each, made in zip(raws, value, strict=True))


def _tool_name(tool: Mapping[str, object]) -> str:
    for holder in (tool.get("function"), tool.get("custom"), tool):
        if name := _name(holder):
            return name
    return ""


def _name(holder: object) -> str:
    name = holder.get("name") if isinstance(holder, dict) else None
    return fields.clean(name) if type(name) is str else ""


def _model(raw: bytes | None) -> str:
    value = None if raw is None else fields.load(raw, "model")
    if value is None:
        raise InvalidRequest("the body has no model; name one", param="model")
    # An unpaired surrogate names no model anywhere, and could be written neither to a header nor to the ledger.
    if type(value) is not str or not value or fields.clean(value) != value:
        raise InvalidRequest("model must be a name: a text that is not empty", param="model")
    return value


def _output_limit(values: Mapping[str, bytes], names: Sequence[str]) -> tuple[int | None, str | None]:
    for name in names:
        limit = _whole_number(values.get(name, b""))
        if limit > 0:
            return limit, name
    return None, None


def _whole_number(raw: bytes) -> int:
    """Return the whole number that JSON spells, bounded; 0 for anything else. 1e3 and 4096.0 are whole too."""
    if raw.isdigit():
        return int(raw) if len(raw) <= LARGEST_DIGITS else 10**LARGEST_DIGITS
    try:
        value = float(raw)
    except ValueError:
        return 0
    bounded = min(value, 10.0**LARGEST_DIGITS)
    return int(bounded) if bounded.is_integer() else 0


def hint(request: Request) -> str | None:
    """Return the client's own name for the session: `session_id`, else `prompt_cache_key`, else `metadata.user_id`."""
    metadata = request.value("metadata") or b"null"
    for raw in (request.value("session_id"), request.value("prompt_cache_key")):
        if raw is not None and (name := fields.text(fields.load(raw, "session_id"))):
            return name
    return fields.text(fields.mapping(fields.load(metadata, "metadata")).get("user_id")) or None


def without_gateway(request: Request) -> tuple[Request, dict[str, object] | None]:
    """Return the request without its `gateway` field, and that field's value; None when absent or null.

    Numbers in it are `fields.Number`. Raises InvalidRequest when the field is no object.
    """
    raw = request.value("gateway")
    if raw is None:
        return request, None
    value = fields.load(raw, "gateway")
    if value is not None and not isinstance(value, dict):
        raise InvalidRequest("gateway must be an object", param="gateway")
    return replace(request, fields=fields.without(request.fields, "gateway")), value
