"""What a call costs, from its usage and the prices of its target. An unknown price or usage is an unknown cost, never 0."""

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.cache.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """The prices of a call whose whole input is longer than `above_tokens`: of all its tokens, not of those above alone."""

    above_tokens: int
    prices: "Prices"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """USD per million tokens. `cached` None: reading costs what input costs; `cache_write` likewise.

    `cache_write_long` is a write that is kept for the longer of two lifetimes (None: as `cache_write`). `tiers` are the
    prices of long contexts, the lowest bound first.
    """

    input: float
    cached: float | None = None
    cache_write: float | None = None
    output: float = 0.0
    cache_write_long: float | None = None
    tiers: tuple[Tier, ...] = ()

    def at(self, input_tokens: int) -> "Prices":
        """Return the prices of a call with so many input tokens."""
        found = self
        for tier in self.tiers:
            if input_tokens > tier.above_tokens:
                found = tier.prices
        return found


def parts_usd(usage: Usage | None, prices: Prices | None) -> Mapping[str, float]:
    """Return what each part of a call cost: `uncached`, `cached`, `written`, `output`. Empty when price or usage is unknown.

    Each input token is one of the three. An output that was not reported makes the whole unknown, for it is never free.
    """
    if usage is None or prices is None or usage.input_tokens is None or usage.output_tokens is None:
        return {}
    paid = prices.at(usage.input_tokens)
    cached, written = usage.cached_tokens or 0, usage.written_tokens or 0
    longer = min(usage.written_long_tokens or 0, written)
    write = paid.input if paid.cache_write is None else paid.cache_write
    write_long = write if paid.cache_write_long is None else paid.cache_write_long
    return {
        "uncached": (usage.input_tokens - cached - written) * paid.input / 1e6,
        "cached": cached * (paid.input if paid.cached is None else paid.cached) / 1e6,
        "written": ((written - longer) * write + longer * write_long) / 1e6,
        "output": usage.output_tokens * paid.output / 1e6,
    }
