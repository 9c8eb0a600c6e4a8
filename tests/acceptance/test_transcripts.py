"""All real transcripts, turn by turn, through the running gateway: windows, pairs, prefixes, cache, and proof of every prompt."""

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.ledger import codec
from gateway.ledger.records import PromptComposed
from gateway.providers.simulated import Fault, SimulatedModel
from gateway.wiring import open_ledger
from tests.acceptance.harness import gateway, provider
from tests.acceptance.transcripts import CLOCK, Session, sessions, with_clock

SESSIONS = sessions()
needs_data = pytest.mark.skipif(not SESSIONS, reason="the transcripts are not beside this repository")
SMALL = """
ledger: {{url: '{ledger}'}}
providers:
  up: {{kind: openai, base_url: 'http://127.0.0.1:{up}/v1', api_key: none}}
routes:
  - name: main
    models: [m]
    targets:
      - {{provider: up, model: eight, window_tokens: 8000, output_limit_tokens: 1000, tokenizer: o200k_base}}
      - {{provider: up, model: four, window_tokens: 4000, output_limit_tokens: 1000, tokenizer: o200k_base}}
    budget: {{output_reserve_tokens: 500}}
    compaction: {{protect_last_tokens: 800}}
    retry: {{attempts: 1}}
    cooldown: {{failures: 1000, seconds: 1}}
"""
WIDE = """
ledger: {{url: 'sqlite:wide.db'}}
providers:
  up: {{kind: openai, base_url: 'http://127.0.0.1:{up}/v1', api_key: none}}
routes:
  - name: main
    models: [m]
    targets: [{{provider: up, model: wide, window_tokens: 200000, output_limit_tokens: 4000, tokenizer: o200k_base}}]
"""


@dataclass
class Played:
    """What the calls brought: statuses, and the compaction header of each call by session."""

    statuses: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    targets: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    input_tokens: int = 0
    cached_tokens: int = 0

    @property
    def hit_ratio(self) -> float:
        return self.cached_tokens / self.input_tokens


Change = Callable[[list[dict[str, Any]], int], list[dict[str, Any]]]


def unchanged(messages: list[dict[str, Any]], turn: int) -> list[dict[str, Any]]:
    return messages


async def play(
    url: str, chosen: list[Session], model: str, change: Change = unchanged, before: Callable[[int], None] | None = None
) -> Played:
    """Send every turn of every session, one after the other as an agent does, and read what came back."""
    played, calls = Played(), 0
    async with aiohttp.ClientSession() as http:
        for session in chosen:
            for messages, _ in session.turns():
                calls += 1
                if before:
                    before(calls)
                body = json.dumps({"model": model, "messages": change(messages, calls)}, separators=(",", ":"))
                headers = {"content-type": "application/json", "x-session-id": session.id}
                async with http.post(url + "/v1/chat/completions", data=body, headers=headers) as reply:
                    usage = (await reply.json()).get("usage") or {}
                    played.statuses[reply.status] += 1
                    played.targets[reply.headers.get("x-gateway-target", "")] += 1
                    played.input_tokens += usage.get("prompt_tokens", 0)
                    played.cached_tokens += usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
    return played


@needs_data
@pytest.mark.timeout(600)
def test_every_transcript_stays_inside_both_windows_and_can_be_proved(ledger_url: str, tmp_path: Path) -> None:
    """Window 8k first, 4k where the first is made to fail: every third call."""
    models = {
        "eight": SimulatedModel(window_tokens=8_000, output_limit=1_000),
        "four": SimulatedModel(window_tokens=4_000, output_limit=1_000),
    }
    with provider(models) as (simulated, up), gateway(tmp_path, SMALL.format(ledger=ledger_url, up=up)) as served:

        def fail_every_third(call: int) -> None:
            if call % 3 == 0:
                simulated.faults.append(Fault(kind="status", status=503))

        played = asyncio.run(play(served.url, SESSIONS, "m", before=fail_every_third))
        served.process.terminate()
        served.process.wait(10)
        verified = served.run("verify", "--json")
        asyncio.run(assert_prefixes(ledger_url))

    assert dict(played.statuses) == {200: sum(played.statuses.values())}
    assert played.targets["up/four"] == sum(played.statuses.values()) // 3
    assert simulated.refused == 0
    assert verified.returncode == 0, verified.stdout[-2000:] + verified.stderr[-2000:]


async def assert_prefixes(url: str) -> None:
    """Within a session and a target, a prompt begins with the items of the one before, except at a recorded cut.

    The note that holds the moved clock stands last and is no part of the growing prefix.
    """
    ledger = open_ledger(url, 10)
    last: dict[tuple[str, str], tuple[str, tuple[bytes, ...]]] = {}
    compared = 0
    async for record in ledger.read():
        if not isinstance(record, PromptComposed):
            continue
        bodies = await ledger.bodies(record.prompt.nodes)
        items = codec.leaves(record.prompt, bodies.__getitem__)
        items = items[:-1] if record.layout["moved"] else items
        cut, before = last.get((record.session, record.target), ("", ()))
        if cut == re.sub(r"kept=\d+;", "", record.compaction):
            assert items[: len(before)] == before, record.id
            compared += 1
        last[record.session, record.target] = (re.sub(r"kept=\d+;", "", record.compaction), items)
    await ledger.close()
    assert compared > 500


@needs_data
@pytest.mark.timeout(600)
def test_a_moving_clock_costs_no_cache_through_the_gateway(tmp_path: Path) -> None:
    chosen = SESSIONS
    models = {"wide": SimulatedModel(window_tokens=200_000, output_limit=4_000)}
    ratios = {}
    for name, change, through in (("still", unchanged, False), ("moving", with_clock, False), ("gateway", with_clock, True)):
        folder = tmp_path / name
        folder.mkdir()
        with provider(models) as (_, up):
            if not through:
                played = asyncio.run(play(f"http://127.0.0.1:{up}", chosen, "wide", change))
            else:
                with gateway(folder, WIDE.format(up=up)) as served:
                    played = asyncio.run(play(served.url, chosen, "m", change))
        assert set(played.statuses) == {200}
        ratios[name] = played.hit_ratio

    assert CLOCK in SESSIONS[0].messages[0]["content"]
    assert ratios["moving"] < 0.05, ratios
    assert abs(ratios["gateway"] - ratios["still"]) <= 0.03, ratios
