"""A refused claim in words and headers. Values in, values out; holds no key's name, and no secret."""

import math
from collections.abc import Sequence

from gateway.errors import LimitExceeded, QuotaExceeded
from gateway.limits.base import NANO, Per, Refusal, Standing, Unit


def exceeded(refusal: Refusal) -> LimitExceeded:
    """Return the error for a refused claim: `insufficient_quota` for a period's budget, else `rate_limit_exceeded`.

    `retry_after_s` is when the same call may pass. What can never pass, and what a period must end for, is not to be
    tried again by an SDK on its own. Source: contract, "Errors"; reference, openai-wire (SDKs obey `x-should-retry`).
    """
    limit = refusal.standing.limit
    wait_s = max(1, math.ceil(refusal.wait_s))
    kind = QuotaExceeded if limit.per.is_period else LimitExceeded
    told = headers(refusal.standings, refusal.standing)
    if limit.per.is_period or refusal.never:
        told["x-should-retry"] = "false"
    return kind(_message(refusal, wait_s), retry_after_s=wait_s, headers=told)


def _message(refusal: Refusal, wait_s: int) -> str:
    standing = refusal.standing
    limit, budget = standing.limit, standing.budget
    whose = f"route {budget.route!r}" if budget.route else "this key"
    if limit.per is Per.PARALLEL:
        return f"{whose} has {limit.amount} calls running, which is max_parallel; try again in {wait_s} s"
    most = f"{amount(limit.unit, limit.amount)} per {limit.per}"
    wanted = amount(limit.unit, refusal.wanted)
    if refusal.never:
        return (
            f"this call may take {wanted}, more than the whole budget of {whose}: {most}; "
            "send less, or a lower max_tokens: the answer's limit is reserved before the call"
        )
    used, held = amount(limit.unit, standing.used), amount(limit.unit, standing.reserved)
    return f"the budget of {whose} is {most}: {used} used, {held} reserved, this call may take {wanted}; try again in {wait_s} s"


def amount(unit: Unit, count: int) -> str:
    """Return an amount in words."""
    if unit is Unit.USD:
        return f"{count / NANO:.6f}".rstrip("0").rstrip(".") + " USD"
    return f"{count} {unit.value}"


def headers(standings: Sequence[Standing], first: Standing | None = None) -> dict[str, str]:
    """Return OpenAI's six headers, as far as there are such limits: of requests and tokens the tightest limit each.

    That which refused (`first`) comes before all, then rates of a minute before budgets of a period. `reset` is when the
    limit is whole again, as OpenAI spells a duration (`1m30s`).
    """
    found: dict[str, str] = {}
    for unit in (Unit.REQUESTS, Unit.TOKENS):
        fitting = [each for each in standings if each.limit.unit is unit and each.resets_in_s is not None]
        if not fitting:
            continue
        told = min(fitting, key=lambda each: (each is not first, each.limit.per is not Per.MINUTE, each.remaining))
        found[f"x-ratelimit-limit-{unit}"] = str(told.limit.amount)
        found[f"x-ratelimit-remaining-{unit}"] = str(told.remaining)
        found[f"x-ratelimit-reset-{unit}"] = duration(told.resets_in_s or 0)
    return found


def duration(seconds: float) -> str:
    """Return whole seconds, rounded up, as `1h2m3s`."""
    rest = math.ceil(seconds)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    text = (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "")
    return f"{text}{rest}s"


def item(standing: Standing) -> dict[str, object]:
    """Return one limit as `/gateway/budgets` lists it; amounts of money in USD."""
    limit = standing.limit

    def shown(count: int) -> float | int:
        return count / NANO if limit.unit is Unit.USD else count

    resets_at = standing.resets_at
    return {
        "route": standing.budget.route or None,
        "key": standing.budget.key or None,
        "unit": limit.unit.value,
        "per": limit.per.value,
        "limit": shown(limit.amount),
        "used": shown(standing.used),
        "reserved": shown(standing.reserved),
        "resets_at": None if resets_at is None else resets_at.isoformat().replace("+00:00", "Z"),
    }
