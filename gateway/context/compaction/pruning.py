"""Old tool outputs give way to one fixed marker: same bytes each time, ids and flags stay."""

import math

from gateway.context.items import Dialect, Item, Kind

MARKER = "[tool output removed to save context]"
MESSAGE_TOKENS = 4  # what surrounds a message in a chat template
# A pruned item was never counted. Hex and digits have two bytes a token, and nothing it holds is likely to have fewer.
BYTES_PER_TOKEN = 2


def pruned(item: Item, dialect: Dialect) -> Item:
    """Return the item as it stands once it is pruned: a result's content becomes the marker where that is shorter."""
    if item.kind is not Kind.RESULT or len(item.raw) < 3 * len(MARKER):
        return item
    made = dialect.with_result(item, MARKER)
    return made if len(made.raw) < len(item.raw) else item


def saving(item: Item, size: int, dialect: Dialect, safety: float) -> int:
    """Return the tokens that pruning saves of an item of this size; 0: it is not pruned."""
    made = pruned(item, dialect)
    if made is item:
        return 0
    left = math.ceil(len(made.raw) / BYTES_PER_TOKEN * max(1.0, safety)) + MESSAGE_TOKENS + made.media_tokens
    return max(0, size - left)
