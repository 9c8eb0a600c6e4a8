"""What a call counts for against budgets: the worst case before it, the true cost after it. Pure."""

import math
from dataclasses import dataclass

from gateway.cache.usage import Usage
from gateway.context.items import Request
from gateway.context.tokens import BYTES_PER_TOKEN
from gateway.ledger.records import CallFinished, Outcome
from gateway.limits.base import NANO, NOTHING, Amounts
from gateway.planning import Planned
from gateway.routing import Prices

# Fields that steer the model and are not read by it. A field that is not here is taken for a part of the prompt.
PARAMETERS = frozenset({
    "frequency_penalty", "logit_bias", "logprobs", "max_completion_tokens", "max_output_tokens", "max_tokens", "metadata", "model",
    "modalities", "n", "parallel_tool_calls", "presence_penalty", "previous_response_id", "prompt_cache_key",
    "prompt_cache_retention", "reasoning_effort", "safety_identifier", "seed", "service_tier", "session_id", "stop",
    "stop_sequences", "store", "stream", "stream_options", "temperature", "thinking", "top_k", "top_logprobs", "top_p", "user",
    "verbosity",
})  # fmt: skip
# After these a provider may have read the prompt, and charge for it, though nothing of its answer arrived.
IN_DOUBT = (Outcome.CLIENT_CLOSED, Outcome.UPSTREAM_TIMEOUT, Outcome.UPSTREAM_TRUNCATED)


MOST = 2**53  # of tokens or parts of a USD in one amount: stores count no further, and no budget is so large


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """The worst case of one attempt: its prompt, and the longest answer that is reserved for it."""

    prompt: Amounts = NOTHING
    answer: Amounts = NOTHING

    @property
    def amounts(self) -> Amounts:
        return self.prompt + self.answer


def worst(planned: Planned, prices: Prices | None) -> Worst:
    """Return the worst case of an attempt: every token of the prompt written to the cache, the answer as long as reserved.

    Tokens are the estimate that admitted the prompt, without its allowance for the protocol, which is no cost; the answer
    is what the request allows it, for each of its choices, else the route's reserve. Without prices no money is reserved:
    a budget of money on a target without prices is refused at start.
    """
    request = planned.prompt.request
    input_tokens = max(0, planned.estimate - planned.costs.envelope) + _beside(request)
    output_tokens = min(planned.runway.reserve_tokens * _choices(request), MOST)
    return Worst(
        prompt=Amounts(usd=_usd(input_tokens, _dearest(prices)), tokens=input_tokens),
        answer=Amounts(usd=_usd(output_tokens, prices.output if prices else 0), tokens=output_tokens),
    )


def of(record: CallFinished | None, reserved: Worst, prices: Prices | None, *, sent: bool) -> Amounts:
    """Return what an attempt counts for once it has ended.

    What the provider reported, at its cache's prices. Where it reported nothing: the estimate of what it read and said; of a
    call that was given up unanswered, the prompt; of one that the provider refused, or that never reached it, nothing.
    `record` None: what came of it is not known, and the worst is taken.
    """
    if not sent:
        return NOTHING
    if record is None:
        return reserved.amounts
    usage = record.usage
    if usage is None:
        refused = record.status is not None and record.status >= 400
        return reserved.prompt if record.outcome in IN_DOUBT and not refused else NOTHING
    return _reported(record, usage, reserved, prices)


def _reported(record: CallFinished, usage: Usage, reserved: Worst, prices: Prices | None) -> Amounts:
    input_tokens = reserved.prompt.tokens if record.usage_estimated or usage.input_tokens is None else usage.input_tokens
    output_tokens = reserved.answer.tokens if usage.output_tokens is None else usage.output_tokens
    if record.cost_usd is not None:
        usd = nano(record.cost_usd)
    else:
        usd = _usd(input_tokens, _dearest(prices)) + _usd(output_tokens, prices.output if prices else 0)
    return Amounts(usd=usd, tokens=input_tokens + output_tokens)


def nano(usd: float) -> int:
    """Return an amount of money in billionths of a USD, rounded up; 0 for what is no amount."""
    return min(math.ceil(round(usd * NANO, 3)), MOST) if 0 <= usd < math.inf else 0


def _usd(tokens: int, per_million: float) -> int:
    return nano(tokens * per_million / 1e6)


def _dearest(prices: Prices | None) -> float:
    return max(prices.input, prices.cache_write or 0) if prices else 0


def _beside(request: Request) -> int:
    """Return the estimated tokens of what the model reads beside the items: tools, schemas, fields that nobody knows."""
    size = sum(len(each.value) for each in request.fields if each.name not in PARAMETERS and each.name != request.items_field)
    return -(-size // BYTES_PER_TOKEN)


def _choices(request: Request) -> int:
    value = request.value("n")
    return max(1, int(value[:6])) if value is not None and value.isdigit() else 1
