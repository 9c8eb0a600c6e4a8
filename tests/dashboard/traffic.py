"""A day of traffic, as the request path records it: sessions that grow, expire, change under way, fall back and are cut."""

import asyncio
import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from gateway import planning
from gateway.cache.usage import Usage
from gateway.context import layout
from gateway.context.digest import digest
from gateway.dialects import chat
from gateway.ledger import codec
from gateway.ledger.base import Ledger
from gateway.ledger.records import CallFinished, Entry, Outcome
from gateway.planning import Planned, Snapshot
from gateway.providers.tokenizers import Counter
from tests.context.talks import policy

ROUTES = (("coding", "openai/gpt-5.6", "bedrock/claude-sonnet-5-5"), ("support", "openai/gpt-5.4-mini", "local/qwen3"))
KEYS = ("team-a", "team-b", "nightly")
TURNS = 20
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {"id": {"type": "string"}}}}}
    for name in ("book_flight", "cancel_booking", "find_user", "list_flights")
]
RULES = "Be brief. Ask before you change a booking. " * 30
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)> \u202egnihtyna"


def entries(calls: int, until: datetime, seed: int = 7) -> Iterator[Entry]:
    """Yield the entries of so many calls, oldest first, the last of them at `until`. Same arguments, same entries."""
    chance, memo, counter, scans = random.Random(seed), chat.Memo(), Counter(), layout.Scans()
    limits = (policy(6_000), policy(3_000))
    for number in range(calls):
        session, turn = divmod(number, TURNS)
        route, primary, second = ROUTES[session % 2]
        at = until - timedelta(seconds=(calls - number) * 86_000 / calls)
        rule = limits[session % 2]
        changed = turn >= 12 and session % 7 == 3
        fields = {"model": "m", "tools": TOOLS, "messages": _messages(session, turn, changed=changed)}
        body = json.dumps(fields, ensure_ascii=False).encode()
        request = chat.parse(body, memo)
        planned = planning.plan_now(layout.arrange(request, rule.layout, chat.CHAT, memo=scans), rule, counter)
        assert isinstance(planned, Planned)
        names: dict[str, Any] = {
            "route": route,
            "session": f"session-{session}",
            "lineage": f"lineage-{session}",
            "tenant": "",
            "key": KEYS[session % 3],
            "request_id": f"req{number:029x}",
        }
        if number % 97 == 5:
            yield _refusal(number, at, names)
            continue
        failed = number % 53 == 9
        for attempt, target in enumerate((primary, second) if failed else (primary,), 1):
            broken = failed and attempt == 1
            snapshot = Snapshot(
                id=f"{number * 2 + attempt:032x}", at=at, attempt=attempt, target=target, observe=False,
                expected=int(planned.estimate * 0.9) if turn else 0, **names,
            )  # fmt: skip
            yield planning.entry(snapshot, request, planned, (digest(rule.to_json()), rule.to_json()))
            yield _end(snapshot, planned.estimate, turn, chance, broken=broken, changed=changed and turn == 12)


def _messages(session: int, turn: int, *, changed: bool) -> list[dict[str, Any]]:
    rules = f"You help travellers of airline {session % 9}.\n{RULES}\nOpening hours: {'9 to 5' if changed else '8 to 6'}.\n{RULES}"
    found: list[dict[str, Any]] = [{"role": "system", "content": rules}]
    for at in range(turn):
        found.append({"role": "user", "content": f"Where is booking {session}-{at}?{' Ünïcödé ' + HOSTILE if at == 3 else ''}"})
        found.append({"role": "assistant", "content": f"Booking {session}-{at} leaves on time from gate {at}. " * 4})
    return [*found, {"role": "user", "content": f"Where is booking {session}-{turn}?{' Ünïcödé ' + HOSTILE if turn == 3 else ''}"}]


def _end(snapshot: Snapshot, estimate: int, turn: int, chance: random.Random, *, broken: bool, changed: bool) -> Entry:
    common: dict[str, Any] = {"id": f"{snapshot.id}-end", "at": snapshot.at + timedelta(seconds=2), "target": snapshot.target}
    if broken:
        reason = chance.choice(("server: answered 503", "rate_limit: answered 429", "timeout: no answer in 120 s"))
        record = CallFinished(
            **common, **snapshot.names, outcome=Outcome.UPSTREAM_ERROR, status=503, latency_s=0.4, reason=reason,
            cache_expected_tokens=snapshot.expected,
        )  # fmt: skip
        return codec.entry((record,), {})
    expired = turn > 0 and not changed and chance.random() < 0.03
    cached = 0 if turn == 0 or changed or expired else int(estimate * chance.uniform(0.86, 0.95))
    reply = json.dumps({"text": "It leaves on time.", "tool_calls": [], "finish_reason": "stop", "refusal": None}).encode()
    record = CallFinished(
        **common, **snapshot.names, outcome=Outcome.COMPLETED, status=200, latency_s=round(chance.uniform(0.4, 6), 3),
        first_token_s=0.31, usage=Usage(input_tokens=estimate, cached_tokens=cached, written_tokens=0, output_tokens=120),
        cost_usd=round((estimate - cached) * 2.5e-6 + cached * 2.5e-7 + 0.0018, 6), cache_expected_tokens=snapshot.expected,
        cache_reported_tokens=cached, miss_cause="prefix_changed" if changed else "expired" if expired else None,
        reply=digest(reply),
    )  # fmt: skip
    return codec.entry((record,), {digest(reply): reply})


def _refusal(number: int, at: datetime, names: dict[str, Any]) -> Entry:
    reason = "no target can hold the required content, nothing was sent"
    record = CallFinished(id=f"{number:032x}-no", at=at, outcome=Outcome.REFUSED, latency_s=0.01, reason=reason, **names)
    return codec.entry((record,), {})


async def fill(ledger: Ledger, calls: int, until: datetime) -> None:
    """Append a day of traffic, many entries at once."""
    batch: list[Entry] = []
    for entry in entries(calls, until):
        batch.append(entry)
        if len(batch) == 64:
            await asyncio.gather(*(ledger.append(each) for each in batch))
            batch = []
    await asyncio.gather(*(ledger.append(each) for each in batch))
