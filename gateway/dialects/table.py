"""The dialects by their name: the one that stands in records, and that an endpoint speaks."""

from collections.abc import Mapping

from gateway.dialects.base import Dialect
from gateway.dialects.chat import CHAT
from gateway.dialects.memo import Memo
from gateway.dialects.messages import MESSAGES

_ALL: tuple[Dialect, ...] = (CHAT, MESSAGES)
DIALECTS: Mapping[str, Dialect] = {each.name: each for each in _ALL}


def memos() -> Mapping[str, Memo]:
    """Return a new memo for each dialect: the same bytes are another item in another one."""
    return {name: Memo() for name in DIALECTS}
