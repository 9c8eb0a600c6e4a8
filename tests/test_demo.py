import asyncio
import json
from importlib.resources import files
from typing import Any

import aiohttp
import pytest

from gateway import demo
from gateway.context import volatile
from gateway.demo import FALLBACK, MODELS, OUTAGE, PRIMARY, Run, Stage, Table
from gateway.providers.simulated import SimulatedProvider, app
from gateway.providers.simulated_rules import check

TURNS = 22


def run(name: str = "straight", completed: int = 2, cached: int = 0) -> Run:
    return Run(
        name=name,
        turns=2,
        completed=completed,
        calls=3,
        rejections=1,
        input_tokens=1_000_000,
        cached_tokens=cached,
        output_tokens=100_000,
    )


def test_every_turn_of_the_session_is_a_body_that_a_provider_takes() -> None:
    turns = list(demo.read_session().turns())

    assert len(turns) == TURNS
    for body, reply in turns:
        check({"model": PRIMARY, **body}, output_limit=1_024, marks=False, lenient=False)
        assert reply["role"] == "assistant"


def test_the_system_prompt_changes_each_turn_in_two_lines_that_are_volatile() -> None:
    systems = [body["messages"][0]["content"] for body, _ in demo.read_session().turns()]
    spans = volatile.scan(systems[0])

    assert len(set(systems)) == TURNS
    assert [span.kind for span in spans] == ["clock", "id"]
    bare = [text[: spans[0].start] + text[spans[1].end :] for text in systems]
    assert len(set(bare)) == 1


def test_the_session_is_the_same_in_every_run() -> None:
    assert list(demo.read_session().turns()) == list(demo.read_session().turns())


def test_cost_and_share_are_of_reported_tokens() -> None:
    assert run().cost_usd == pytest.approx(1.25 + 1.0)
    assert run(cached=1_000_000).cost_usd == pytest.approx(0.125 + 1.0)
    assert run(cached=250_000).cached_share == 0.25


def test_the_table_lays_both_runs_side_by_side() -> None:
    text = demo.render(Table(straight=run(), gateway=run("gateway", completed=0, cached=500_000)))

    assert "2 of 2" in text
    assert "50.0%" in text
    assert "1.12500" in text
    assert "–" in text


def test_a_served_application_answers_and_stops() -> None:
    async def scenario() -> tuple[int, bool]:
        async with (
            demo.serving(app(SimulatedProvider(MODELS))) as port,
            aiohttp.ClientSession() as client,
            client.get(f"http://127.0.0.1:{port}/v1/models") as answer,
        ):
            status = answer.status
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return status, True
        writer.close()
        return status, False

    assert asyncio.run(scenario()) == (200, True)


def test_straight_to_the_provider_loses_turns_and_caches_nothing() -> None:
    async def scenario() -> Run:
        stage = Stage()
        provider = stage.provider()
        async with demo.serving(app(provider)) as port:
            url = f"http://127.0.0.1:{port}"
            return await demo.perform("straight", url, (PRIMARY, FALLBACK), provider, stage, demo.read_session())

    made = asyncio.run(scenario())

    assert made.turns == TURNS
    assert made.completed < TURNS - len(OUTAGE)
    assert made.rejections > 0
    assert made.cached_tokens == 0


def test_through_the_gateway_every_turn_completes_and_the_prefix_is_cached() -> None:
    said: list[str] = []
    table = asyncio.run(demo.play(once=True, write=said.append))

    assert table.gateway.completed == table.gateway.turns == TURNS
    assert table.gateway.rejections == 0
    assert table.gateway.cached_share > 0.4
    assert table.gateway.cost_usd / table.gateway.completed < table.straight.cost_usd / table.straight.completed
    assert said[-1] == demo.render(table)


def test_without_once_the_dashboard_stays_open_until_it_is_cancelled() -> None:
    async def scenario() -> tuple[int, str]:
        opened: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def write(text: str) -> None:
            if "/dashboard" in text:
                opened.set_result(next(word for word in text.split() if word.startswith("http")).rstrip(";"))

        playing = asyncio.create_task(demo.play(once=False, write=write))
        awaited: set[asyncio.Future[Any]] = {playing, opened}
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        if playing.done():
            playing.result()
        async with aiohttp.ClientSession() as client, client.get(await opened) as answer:
            page = await answer.text()
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
        return answer.status, page

    status, page = asyncio.run(scenario())

    assert status == 200
    assert "demo" in page


def test_the_shipped_session_is_json_with_placeholders() -> None:
    text = (files("gateway") / "data" / "session.json").read_text(encoding="utf-8")

    assert {"about", "system", "tools", "messages"} == json.loads(text).keys()
    assert text.count("{clock}") == 2
    assert text.count("{request_id}") == 2
