"""Old tool outputs give way to one fixed marker: same bytes each time, ids and flags stay."""

import math
from collections.abc import MutableMapping

from gateway.context.items import Dialect, Item, Kind

MARKER = "[tool output removed to save context]"
MESSAGE_TOKENS = 4  # what surrounds a message in a chat template
# A pruned item was never counted. Hex and digits have two bytes a token, and nothing it holds is likely to have fewer.
BYTES_PER_TOKEN = 2


KEPT = 20_000  # pruned items remembered, a few hundred bytes each


def pruned(item: Item, dialect: Dialect, memo: MutableMapping[bytes, Item] | None = None) -> Item:
    """Return the item as it stands once it is pruned: a result's content becomes the marker where that is shorter."""
    if item.kind is not Kind.RESULT or len(item.raw) < 3 * len(MARKER):
        return item
    made = None if memo is None else memo.get(item.digest)
    if made is None:
        made = dialect.with_result(item, MARKER)
        if memo is not None:
            if len(memo) >= KEPT:
                memo.clear()
            memo[item.digest] = made
    return made if len(made.raw) < len(item.raw) else item


def saving(item: Item, size: int, dialect: Dialect, safety: float, memo: MutableMapping[bytes, Item] | None = None) -> int:
    """Return the tokens that pruning saves of an item of this size; 0: it is not pruned."""
    made = pruned(item, dialect, memo)
    if made is item:
        return 0
    left = math.ceil(len(made.raw) / BYTES_PER_TOKEN * max(1.0, safety)) + MESSAGE_TOKENS + made.media_tokens
    return max(0, size - left)
