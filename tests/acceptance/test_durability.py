"""No record, no call: whatever dies, the provider's own list of calls is a subset of the ledger's."""

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.providers.simulated import SimulatedModel
from tests.acceptance.harness import free_port, gateway, provider, redis_server, start

YAML = """
ledger: {{url: '{ledger}', timeout_s: 1}}
providers: {{up: {{kind: openai, base_url: 'http://127.0.0.1:{up}/v1', api_key: none}}}}
routes: [{{name: m, targets: [{{provider: up, model: m, window_tokens: 8000, output_limit_tokens: 1000}}]}}]
"""
MODELS = {"m": SimulatedModel(window_tokens=8_000, output_limit=1_000)}
KILLS = 20


async def storm(url: str, number: int, seconds: float) -> int:
    """Send calls over eight connections until the time is over or the server is gone; return how many were answered."""
    answered, end = 0, time.monotonic() + seconds

    async def worker(http: aiohttp.ClientSession, name: int) -> None:
        nonlocal answered
        for call in range(10_000):
            if time.monotonic() > end:
                return
            body = {"model": "m", "messages": [{"role": "user", "content": f"{number}/{name}/{call}"}]}
            try:
                async with http.post(url + "/v1/chat/completions", json=body) as reply:
                    await reply.read()
                    answered += reply.status == 200
            except (aiohttp.ClientError, OSError):
                return

    async with aiohttp.ClientSession() as http:
        await asyncio.gather(*(worker(http, name) for name in range(8)))
    return answered


@pytest.mark.timeout(300)
def test_kill_9_under_load_loses_no_record_of_a_call(ledger_url: str, tmp_path: Path) -> None:
    with provider(MODELS) as (simulated, up), gateway(tmp_path, YAML.format(ledger=ledger_url, up=up)) as served:
        answered = 0
        for number in range(KILLS):

            async def kill_in_the_middle(number: int = number) -> int:
                load = asyncio.create_task(storm(served.url, number, 5))
                await asyncio.sleep(0.25 + 0.01 * number)
                served.process.send_signal(signal.SIGKILL)
                return await load

            answered += asyncio.run(kill_in_the_middle())
            served.process.wait(10)
            served.process = start(served.folder, served.config, served.port)
        records: list[dict[str, Any]] = json.loads(served.run("log", "--json", "--limit", "1000000").stdout)

    recorded = {each["prompt_digest"] for each in records if each["type"] == "PromptComposed"}
    called = {call.sha256 for call in simulated.calls}
    assert answered > 20 * KILLS
    assert len(called) >= answered
    assert called - recorded == set()


@pytest.mark.timeout(120)
def test_a_stopped_redis_refuses_calls_in_time_and_service_returns(tmp_path: Path) -> None:
    port = free_port()
    with provider(MODELS) as (simulated, up):
        with redis_server(tmp_path, port), gateway(tmp_path, YAML.format(ledger=f"redis://127.0.0.1:{port}/0", up=up)) as served:
            assert asyncio.run(one(served.url))[0] == 200
            with_redis = len(simulated.calls)
            redis_stopped = served
        with gateway(tmp_path, YAML.format(ledger=f"redis://127.0.0.1:{port}/0", up=up)) as served:
            assert redis_stopped is not served
            status, took_s, headers = asyncio.run(one(served.url))
            assert status == 503
            assert took_s < 1.5
            assert int(headers["retry-after"]) > 0
            assert len(simulated.calls) == with_redis
            with redis_server(tmp_path, port):
                end = time.monotonic() + 5
                while (status := asyncio.run(one(served.url))[0]) != 200 and time.monotonic() < end:
                    time.sleep(0.1)
                assert status == 200


async def one(url: str) -> tuple[int, float, Any]:
    began = time.monotonic()
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    async with aiohttp.ClientSession() as http, http.post(url + "/v1/chat/completions", json=body) as reply:
        await reply.read()
        return reply.status, time.monotonic() - began, reply.headers
