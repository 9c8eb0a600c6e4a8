"""Whether a prompt may go to a target: its runway, and the two verdicts that say no. Equal is over."""

import math
from dataclasses import dataclass

from gateway.context.items import Request
from gateway.context.policy import Policy

# How much denser than three bytes a token text may be: two bytes a token, as hex, digits and emoji are. Tighter than the
# design, which believes any guess under the limit: such a text would pass the guess and overrun the window.
UNSETTLED = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Runway:
    """The input limit for one target, in estimated tokens, and what it was made of. None: not known, or no ceiling."""

    limit_tokens: int | None
    window_tokens: int | None
    reserve_tokens: int


@dataclass(frozen=True, slots=True)
class Overrun:
    """The byte estimate does not settle it: count, then ask again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """What must stay is larger than the limit."""

    required_tokens: int
    runway: Runway
    reason: str = "the required content does not fit"

    def sums(self) -> str:
        """Return the sums in words, safe to show."""
        window = "unknown" if self.runway.window_tokens is None else str(self.runway.window_tokens)
        return (
            f"{self.reason}: {self.required_tokens} estimated tokens are required, fewer than {self.runway.limit_tokens} fit "
            f"(window {window}, {self.runway.reserve_tokens} reserved for the answer)"
        )


def kept_free(policy: Policy) -> int:
    """Return the tokens of the window that the margin keeps free."""
    # To 6 digits: 0.07 of 100 is 7, and not 8 by what binary fractions leave behind.
    return math.ceil(round((policy.window.tokens or 0) * policy.margin, 6))


def _limit(policy: Policy, reserve: int) -> int | None:
    limits = [] if policy.ceiling_tokens is None else [policy.ceiling_tokens]
    if policy.window.tokens is not None:
        limits.append(policy.window.tokens - reserve - kept_free(policy))
    return min(limits, default=None)


def runway(policy: Policy, request: Request) -> Runway:
    """Return the input limit for one request at one target.

    The smaller of the route's ceiling and the window less reserve and margin. The reserve is the request's own output
    limit, else the route's; where the answer may be shrunk, the smaller of both. Never raises; the limit may be negative.
    """
    reserve = policy.reserve_tokens
    if request.output_limit is not None:
        reserve = min(request.output_limit, reserve) if policy.shrink_output else request.output_limit
    return Runway(limit_tokens=_limit(policy, reserve), window_tokens=policy.window.tokens, reserve_tokens=reserve)


def placing_limit(policy: Policy, request: Request) -> int | None:
    """Return the limit that places sticky boundaries: with the route's reserve, so that a jittering `max_tokens` moves none."""
    limit = _limit(policy, policy.reserve_tokens)
    return limit if limit is None or limit > 0 else runway(policy, request).limit_tokens
