"""Routes and targets as frozen values, and the two decisions about them: which route, in which order its targets.

Both are pure functions of given facts. Knows nothing of HTTP, of the ledger, or of how a call is made.
"""

import difflib
import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gateway.cache.cost import Prices as Prices
from gateway.context.policy import CompactionPolicy, LayoutPolicy
from gateway.errors import ModelNotFound
from gateway.limits.base import Limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One model at one provider. Figures that are None come from the catalog."""

    provider: str
    model: str
    window_tokens: int | None = None
    output_limit_tokens: int | None = None
    tokenizer: str | None = None
    safety: float = 1.0
    prices: Prices | None = None

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.model}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Ceiling and reserve in tokens; `output_reserve_tokens` None: 8,192, less where the window is small.

    `limits` are over many requests; the rest is about each.
    """

    input_tokens: int | None = None
    output_reserve_tokens: int | None = None
    margin: float = 0.02
    shrink_output: bool = False
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """`attempts`: tries of one target (1 = no retry); `total_attempts`: tries of the whole request."""

    attempts: int = 2
    max_wait_s: float = 10
    total_attempts: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooldown:
    failures: int = 3
    seconds: float = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A named way to its targets, in order, each once: routes that end in another route are already flattened."""

    name: str
    models: tuple[str, ...]
    targets: tuple[Target, ...]
    budget: Budget = Budget()
    compaction: CompactionPolicy = CompactionPolicy()
    layout: LayoutPolicy = LayoutPolicy()
    retry: Retry = Retry()
    cooldown: Cooldown = Cooldown()


def resolve(routes: Sequence[Route], model: str, *, named: str | None = None) -> Route:
    """Return the route for a model name: the one named, else the first whose names or globs match.

    Raises ModelNotFound with near names when there is none. Source: contract, `routes.models`.
    """
    if named is not None:
        for route in routes:
            if route.name == named:
                return route
        raise ModelNotFound(f"there is no route {named!r}; routes are {_listed(r.name for r in routes)}", param="x-gateway-route")
    for route in routes:
        if any(_matches(pattern, model) for pattern in route.models):
            return route
    names = [name for route in routes for name in (route.name, *route.models)]
    near = difflib.get_close_matches(model, names, n=3, cutoff=0.4) or names[:5]
    raise ModelNotFound(f"no route takes the model {model!r}; near names are {_listed(near)}", param="model")


def _matches(pattern: str, model: str) -> bool:
    return pattern == model or (any(c in pattern for c in "*?[") and re.match(fnmatch.translate(pattern), model) is not None)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names)) or "none"


def order(targets: Sequence[Target], cooling: frozenset[str]) -> tuple[Target, ...]:
    """Return the targets in the order to try: those cooling down last, otherwise as written. Never drops one."""
    return (*(t for t in targets if t.name not in cooling), *(t for t in targets if t.name in cooling))


class Cooldowns:
    """Which targets are to be left alone for a while, after so many failures in a row. The clock is an argument."""

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}
        self._until: dict[str, float] = {}

    def failed(self, target: str, rule: Cooldown, now: float, wait_s: float | None = None) -> None:
        """Note one failure; after the rule's number in a row the target cools down, for its seconds or the provider's wait."""
        self._failures[target] = self._failures.get(target, 0) + 1
        if self._failures[target] >= rule.failures:
            self._until[target] = now + max(rule.seconds, wait_s or 0.0)
            self._failures[target] = 0

    def succeeded(self, target: str) -> None:
        """Note an answer: the count starts anew and the target is no longer cooling."""
        if target in self._failures or target in self._until:
            self._failures.pop(target, None)
            self._until.pop(target, None)

    def cooling(self, now: float) -> frozenset[str]:
        """Return the names of the targets that cool down at this moment."""
        if not self._until:
            return frozenset()
        return frozenset(name for name, until in self._until.items() if until > now)
