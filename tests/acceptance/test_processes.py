"""The life of the processes: reload while calls run, several workers, and an end that loses nothing."""

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.acceptance.harness import Served, dripping, gateway, provider, running
from tests.acceptance.test_durability import MODELS

YAML = """
server: {{shutdown_grace_s: {grace}}}
ledger: {{url: 'sqlite:ledger.db'}}
providers: {{up: {{kind: openai, base_url: 'http://127.0.0.1:{up}/v1', api_key: none}}}}
routes: [{{name: {name}, targets: [{{provider: up, model: m, window_tokens: 8000, output_limit_tokens: 1000}}]}}]
"""


def text(up: int, name: str = "m", grace: float = 5) -> str:
    return YAML.format(up=up, name=name, grace=grace)


def body(model: str = "m", pieces: int = 5) -> dict[str, Any]:
    return {"model": model, "stream": True, "max_tokens": pieces, "messages": [{"role": "user", "content": "hi"}]}


async def streamed(http: aiohttp.ClientSession, url: str, model: str, pieces: int) -> str:
    async with http.post(url + "/v1/chat/completions", json=body(model, pieces)) as reply:
        assert reply.status == 200, await reply.text()
        return await reply.text()


async def config(http: aiohttp.ClientSession, served: Served) -> dict[str, Any]:
    async with http.get(served.url + "/gateway/config") as reply:
        found: dict[str, Any] = await reply.json()
        return found


async def status(http: aiohttp.ClientSession, served: Served, model: str) -> int:
    call = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
    async with http.post(served.url + "/v1/chat/completions", json=call) as reply:
        await reply.read()
        return reply.status


def records(served: Served) -> list[dict[str, Any]]:
    made = served.run("log", "--json")
    assert made.returncode == 0, made.stderr
    found: list[dict[str, Any]] = json.loads(made.stdout)
    return found


def test_a_stream_lives_on_when_its_route_is_dropped(tmp_path: Path) -> None:
    async def play(served: Served, up: int) -> None:
        async with aiohttp.ClientSession() as http:
            stream = asyncio.create_task(streamed(http, served.url, "m", 25))
            await asyncio.sleep(0.5)
            served.config.write_text(text(up, "other"))
            await asyncio.sleep(1)
            assert await status(http, served, "m") == 404
            assert not stream.done()
            whole = await stream
            assert (whole.count('"content":"x"'), whole.endswith("data: [DONE]\n\n")) == (25, True)

    with running(dripping) as up, gateway(tmp_path, text(up)) as served:
        asyncio.run(play(served, up))


def test_a_bad_file_keeps_the_old_in_force_and_says_why(tmp_path: Path) -> None:
    async def play(served: Served, up: int) -> None:
        async with aiohttp.ClientSession() as http:
            before = await config(http, served)
            served.config.write_text(text(up).replace("targets", "tragets"))
            await asyncio.sleep(1)
            bad = await config(http, served)
            assert (bad["digest"], bad["since"]) == (before["digest"], before["since"])
            assert bad["last_reload"]["ok"] is False
            assert f"{served.config}:5" in bad["last_reload"]["error"]
            assert await status(http, served, "m") == 200
            served.config.write_text(text(up, "other"))
            served.process.send_signal(signal.SIGHUP)
            await asyncio.sleep(1)
            good = await config(http, served)
            assert good["digest"] != before["digest"]
            assert good["last_reload"]["ok"] is True
            assert [await status(http, served, name) for name in ("m", "other")] == [404, 200]

    with provider(MODELS) as (_, up), gateway(tmp_path, text(up)) as served:
        asyncio.run(play(served, up))
        assert len([each for each in records(served) if each["type"] == "ConfigChanged"]) == 2


@pytest.mark.parametrize("words", [(), ("--workers", "2")])
def test_a_reload_under_load_drops_nothing(tmp_path: Path, words: tuple[str, ...]) -> None:
    async def play(served: Served, up: int) -> None:
        answers: list[int] = []
        end = time.monotonic() + 4

        async def worker(http: aiohttp.ClientSession) -> None:
            while time.monotonic() < end:
                answers.append(await status(http, served, "m"))

        async with aiohttp.ClientSession() as http:
            load = [asyncio.create_task(worker(http)) for _ in range(8)]
            for number in range(6):
                await asyncio.sleep(0.5)
                served.config.write_text(text(up) + f"log: {{level: {('info', 'warning')[number % 2]}}}\n")
                served.process.send_signal(signal.SIGHUP)
            await asyncio.gather(*load)
        assert len(answers) > 50
        assert set(answers) == {200}

    with provider(MODELS) as (_, up), gateway(tmp_path, text(up), *words) as served:
        asyncio.run(play(served, up))


def test_every_worker_reloads(tmp_path: Path) -> None:
    async def play(served: Served, up: int) -> None:
        served.config.write_text(text(up, "other"))
        await asyncio.sleep(1.5)
        found = []
        for _ in range(24):  # each on a connection of its own: the workers take turns
            async with aiohttp.ClientSession() as http:
                found.append(await status(http, served, "other"))
        assert set(found) == {200}

    with provider(MODELS) as (_, up), gateway(tmp_path, text(up), "--workers", "2") as served:
        asyncio.run(play(served, up))
        changes = [each["digest"] for each in records(served) if each["type"] == "ConfigChanged"]
        assert changes.count(changes[-1]) == 2  # each of them says so; one may have been so late that it began with it


def test_an_end_lets_streams_finish_and_takes_no_new_calls(tmp_path: Path) -> None:
    async def play(served: Served) -> None:
        async with aiohttp.ClientSession() as http:
            stream = asyncio.create_task(streamed(http, served.url, "m", 12))
            await asyncio.sleep(0.5)
            served.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.3)
            with pytest.raises(aiohttp.ClientConnectorError):
                await status(http, served, "m")
            assert (await stream).endswith("data: [DONE]\n\n")

    with running(dripping) as up, gateway(tmp_path, text(up)) as served:
        asyncio.run(play(served))
        served.process.wait(10)
        assert [each["outcome"] for each in records(served) if each["type"] == "CallFinished"] == ["completed"]


def test_a_stream_past_the_grace_time_is_cut_with_an_error_and_its_record(tmp_path: Path) -> None:
    async def play(served: Served) -> None:
        async with aiohttp.ClientSession() as http:
            stream = asyncio.create_task(streamed(http, served.url, "m", 30))
            await asyncio.sleep(0.5)
            served.process.send_signal(signal.SIGTERM)
            whole = await stream
        assert "[DONE]" not in whole
        assert '"code": "overloaded"' in whole or '"code":"overloaded"' in whole

    with running(dripping) as up, gateway(tmp_path, text(up, grace=1)) as served:
        began = time.monotonic()
        asyncio.run(play(served))
        served.process.wait(10)
        assert time.monotonic() - began < 5
        assert [each["outcome"] for each in records(served) if each["type"] == "CallFinished"] == ["client_closed"]
