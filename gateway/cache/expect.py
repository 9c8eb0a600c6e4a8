"""What a provider's cache probably still holds: the expected cached tokens of a call, from what was sent before.

Facts in, figures out: the clock is an argument, and no store is asked. An expectation of one process; a prefix that
another process sent is not known here, so the figure is a lower bound.
"""

from collections import OrderedDict
from collections.abc import Sequence

MINIMUM_TOKENS = 1_024  # the smallest prefix that OpenAI-shaped automatic caches keep; reference, provider-caching, section 1
LIFETIME_S = 300.0  # in-memory caches are told to live 5 to 10 minutes idle; the shorter figure promises less
CAPACITY = 200_000  # links remembered; 32 bytes each and their keys, some 30 MB at the very most


class Expectations:
    """The prefixes sent to each target, as chain links, each with the moment it was last used."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._seen: OrderedDict[tuple[str, bytes, bytes], float] = OrderedDict()
        self._capacity = capacity

    def expected(self, target: str, head: bytes, links: Sequence[bytes], sizes: Sequence[int], head_tokens: int, now: float) -> int:
        """Return the tokens of the longest prefix that the target was sent within its lifetime, 0 when it is below the minimum.

        `head` is the digest of what stands before the items (tools), `links` the chain over the items, `sizes` their
        estimated tokens in the same order; the figure is in estimated tokens.
        """
        for index in range(len(links) - 1, -1, -1):
            used = self._seen.get((target, head, links[index]))
            if used is not None and now - used <= LIFETIME_S:
                tokens = head_tokens + sum(sizes[: index + 1])
                return tokens if tokens >= MINIMUM_TOKENS else 0
        return 0

    def sent(self, target: str, head: bytes, links: Sequence[bytes], now: float) -> None:
        """Note that a prompt was sent: every prefix of it is warm from now on.

        Links are walked from the end until one is found that is fresh: the ones before it were refreshed with it.
        """
        for link in reversed(links):
            key = (target, head, link)
            fresh = self._seen.pop(key, None)
            self._seen[key] = now
            if fresh is not None and now - fresh < LIFETIME_S / 10:
                break
        while len(self._seen) > self._capacity:
            self._seen.popitem(last=False)
