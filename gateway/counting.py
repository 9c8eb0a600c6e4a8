"""How many input tokens a request has: asked of the provider where it counts them itself, else counted here.

The request goes to the provider as the client made it but for the model's name: it is not planned, since the client asks for
its own prompt. The call is recorded like any that is passed through.
"""

import json
import time
from datetime import UTC, datetime

from gateway.context import layout
from gateway.context.items import Request
from gateway.delivery import ERROR_BODY_BYTES, Answer, Call
from gateway.ledger.records import CallFinished, Entry, Outcome
from gateway.pipeline import Aim, Gateway
from gateway.providers.base import AttemptFailed, Outgoing, Reply

JSON = (("content-type", "application/json"),)


async def count_tokens(gateway: Gateway, call: Call, facts: dict[str, str]) -> Answer:
    """Return `{"input_tokens": n}`. Raises GatewayError for a request that cannot be read or has no route.

    A provider that does not answer is no error: the count is made here then, by the target's tokenizer.
    """
    request, route = await gateway.routed(call)
    facts["x-gateway-route"] = route.name
    aim = gateway.aims[route.name, route.targets[0].name]
    if call.dialect.name in aim.policy.speaks and (answer := await _asked(gateway, call, request, route.name, aim)) is not None:
        facts["x-gateway-target"] = aim.target.name
        return answer
    arranged = layout.arrange(request, route.layout, call.dialect, observe=True, memo=gateway.scans)
    costs = await gateway.counter.costs(arranged, aim.policy)
    return Answer(200, JSON, body=json.dumps({"input_tokens": costs.total}).encode())


async def _asked(gateway: Gateway, call: Call, request: Request, route: str, aim: Aim) -> Answer | None:
    """Return the provider's own answer; None when it gave none that is a count."""
    body = request.with_value("model", json.dumps(aim.policy.model).encode()).body()
    outgoing = Outgoing(path=f"{call.dialect.path}/count_tokens", body=body, query=call.query, headers=call.headers)
    began, reply, outcome = time.perf_counter(), None, Outcome.CLIENT_CLOSED
    try:
        reply = await aim.upstream.send(outgoing)
        said = await reply.read(ERROR_BODY_BYTES)
        outcome = Outcome.COMPLETED if reply.status < 400 else Outcome.UPSTREAM_ERROR
        return Answer(reply.status, reply.headers, body=said) if reply.status < 400 else None
    except AttemptFailed:
        outcome = Outcome.UPSTREAM_ERROR
        return None
    finally:
        if reply is not None:
            gateway.recorder.spawn(reply.close())
        gateway.recorder.append_late(Entry(records=(_record(gateway, call, route, aim, reply, began, outcome),)))


def _record(
    gateway: Gateway, call: Call, route: str, aim: Aim, reply: Reply | None, began: float, outcome: Outcome
) -> CallFinished:
    return CallFinished(
        id=gateway.new_id(),
        at=datetime.now(UTC),
        route=route,
        tenant=call.tenant,
        key=call.key,
        request_id=call.request_id,
        outcome=outcome,
        target=aim.target.name,
        status=None if reply is None else reply.status,
        latency_s=round(time.perf_counter() - began, 6),
        reason="input tokens were counted",
    )
