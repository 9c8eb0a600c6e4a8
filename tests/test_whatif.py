import asyncio
from collections.abc import Iterable
from dataclasses import replace

import pytest

from gateway import settings
from gateway.cache.cost import Prices
from gateway.context.policy import Policy
from gateway.ledger.memory import MemoryLedger
from gateway.ledger.records import CallFinished, Entry, Outcome
from gateway.routing import Route
from gateway.whatif import Aim, Compared, WhatIf
from tests.context.talks import policy, system, user
from tests.ledger.values import finished
from tests.test_replay import Kept, kept, turns

PRICES = Prices(input=2, cached=0.2, output=10)
TEXT = """
providers: {up: {base_url: 'http://127.0.0.1:9/v1', api_key: none}}
routes: [{name: ROUTE, models: [MODEL], targets: [{provider: up, model: big, window_tokens: 9000}, {provider: up, model: small}]}]
"""


def routes(name: str = "new", model: str = "m") -> tuple[Route, ...]:
    return settings.load(TEXT.replace("ROUTE", name).replace("MODEL", model), source="test", env={}).routes


def compared(
    calls: Iterable[Kept], big: Policy, small: Policy | None = None, *, found: tuple[Route, ...] | None = None, ends: bool = True
) -> dict[str, Compared]:
    """Run recorded calls through a configuration of two targets and return both sides by their old route."""
    found = found or routes()
    aims = {
        (found[0].name, "up/big"): Aim(target="up/big", policy=big, prices=PRICES),
        (found[0].name, "up/small"): Aim(target="up/small", policy=small or big, prices=None),
    }

    async def run() -> dict[str, Compared]:
        ledger = MemoryLedger()
        for at, each in enumerate(calls):
            await ledger.append(each.entry)
            if ends:
                await ledger.append(finished(each.record.id, at=at))
        running = WhatIf(found, aims, lambda target: PRICES)
        counts = [count async for count in running.run(ledger)]
        assert counts == sorted(counts)
        return running.compared

    return asyncio.run(run())


def session(length: int = 60, window: int = 4_000) -> list[Kept]:
    """A session whose every turn is a call under a window that compacts it now and then."""
    messages = [system("You are careful. " * 400), *turns(length)]
    ends = [at for at, message in enumerate(messages) if message["role"] == "user"]
    return [kept(messages[: end + 1], policy(window), at=n) for n, end in enumerate(ends)]


def test_the_same_configuration_gives_the_same_figures_on_both_sides() -> None:
    calls = session()
    found = compared(calls, policy(4_000))["r"]

    assert len(calls) == found.before.calls
    assert found.before == found.after
    assert found.before.compacted > 0
    assert found.before.hit_ratio is not None
    assert 0 < found.before.hit_ratio < 1


def test_a_larger_window_compacts_less_and_a_smaller_one_refuses() -> None:
    calls = session()
    wide, narrow = compared(calls, policy(100_000))["r"], compared(calls, policy(1_200), policy(1_300))["r"]

    assert (wide.after.compacted, wide.after.refused) == (0, 0)
    assert wide.after.input_tokens > wide.before.input_tokens
    assert (narrow.after.calls, narrow.after.refused) == (0, len(calls))


def test_the_first_target_that_holds_it_answers_and_an_unknown_price_is_no_cost() -> None:
    calls = session(10)
    found = compared(calls, policy(1_200), policy(100_000))["r"].after

    assert (found.calls, found.refused, found.unpriced) == (len(calls), 0, len(calls))
    assert found.cost_usd == 0


def test_two_runs_give_the_same_figures() -> None:
    calls = session()

    assert compared(calls, policy(6_000)) == compared(calls, policy(6_000))


def test_what_answers_cost_is_added_to_both_sides() -> None:
    calls = session(10)
    without, found = compared(calls, policy(4_000), ends=False)["r"], compared(calls, policy(4_000))["r"]
    tokens = found.before.output_tokens

    assert tokens > 0
    assert without.before.output_tokens == 0
    assert found.after.output_tokens == tokens
    assert found.before.cost_usd - without.before.cost_usd == pytest.approx(tokens * PRICES.output / 1e6)


def test_a_model_that_is_unknown_goes_where_its_old_route_is_and_else_nowhere() -> None:
    calls = [kept([user("hi")], at=0)]

    assert compared(calls, policy(9_000), found=routes("r", "other"))["r"].after.calls == 1
    assert compared(calls, policy(9_000), found=routes("new", "other"))["r"].after.refused == 1


def test_refusals_of_before_are_counted_and_broken_records_are_said() -> None:
    async def run() -> Compared:
        ledger, good, bad = MemoryLedger(), kept([user("hi")], at=0), kept([user("ho")], at=1)
        broken = replace(bad.record, policy=b"\0" * 32)
        for each in (good.entry, replace(bad.entry, records=(broken,))):
            await ledger.append(replace(each, bodies={**each.bodies, b"\0" * 32: b"{}"}))
        refused = CallFinished(id="f" * 32, at=good.record.at, route="r", outcome=Outcome.REFUSED)
        await ledger.append(Entry(records=(refused,)))
        found = routes()
        aims = {("new", name): Aim(target=name, policy=policy(9_000), prices=None) for name in ("up/big", "up/small")}
        running = WhatIf(found, aims, lambda target: None)
        _ = [count async for count in running.run(ledger)]
        return running.compared["r"]

    found = asyncio.run(run())

    assert (found.unreadable, found.before.refused, found.after.calls) == (1, 1, 1)
