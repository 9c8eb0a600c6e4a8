import asyncio
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from gateway.cli import cli
from gateway.commands import moment
from gateway.commands.ledger import followed, line_of, newest
from gateway.ledger.base import Ledger
from gateway.ledger.memory import MemoryLedger
from gateway.ledger.records import CallFinished, ConfigChanged, Entry, Outcome, Record
from tests.commands.ground import run, store
from tests.context.talks import SAMPLE, policy, user
from tests.test_replay import START, Kept, kept, turns


def test_log_prints_a_line_for_each_record_oldest_first_under_the_id_that_show_takes(ledger: str, calls: list[Kept]) -> None:
    lines = run("log", "--ledger", ledger).stdout.splitlines()

    assert [each.record.id for each in calls for _ in range(2)] == [line.split()[1] for line in lines if "Applied" not in line]
    assert [line.split()[2] for line in lines[:2]] == ["PromptComposed", "CallFinished"]
    assert "outcome=completed status=200" in lines[1]
    assert lines[0].startswith("2026-03-01T12:00:00.000Z  ")
    assert sum("CompactionApplied" in line for line in lines) == 1


def test_log_finds_the_ledger_through_the_settings(config: Path, ledger: str) -> None:
    assert run("log", "--config", config).stdout == run("log", "--ledger", ledger).stdout


@pytest.mark.parametrize(("words", "count"), [([], 7), (["--route", "r"], 4), (["--session", "s"], 4), (["--session", "other"], 0)])
def test_log_selects(ledger: str, words: list[str], count: int) -> None:
    assert len(json.loads(run("log", "--ledger", ledger, "--json", *words).stdout)) == count


def test_a_limit_takes_the_newest_oldest_first(ledger: str) -> None:
    every = run("log", "--ledger", ledger).stdout.splitlines()

    assert run("log", "--ledger", ledger, "--limit", "2").stdout.splitlines() == every[-2:]


def changed(number: int, route: str = "") -> ConfigChanged:
    return ConfigChanged(id=f"{number:032x}", at=START - timedelta(hours=number), route=route, digest="d", source="s")


def test_following_writes_what_is_appended_once_whatever_its_time() -> None:
    """An end of a call that waited for the ledger is older than what stands before it."""

    async def play() -> list[str]:
        store, seen = MemoryLedger(), list[str]()
        await store.append(Entry(records=(changed(1),)))
        _, last = await newest(store, lambda record: True)
        task = asyncio.create_task(
            followed(store, lambda record: record.route != "no", last, lambda r: seen.append(r.id[-1]), 0.001)
        )
        for number in (2, 3, 4):
            await store.append(Entry(records=(changed(number), changed(number + 4, route="no"))))
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return seen

    assert asyncio.run(play()) == ["2", "3", "4"]


def test_following_an_empty_ledger_begins_with_its_first_record() -> None:
    async def play() -> tuple[list[Record], list[Record]]:
        store: Ledger = MemoryLedger()
        before, last = await newest(store, lambda record: True)
        await store.append(Entry(records=(changed(1), changed(2))))
        after, _ = await newest(store, lambda record: True, after=last)
        return before, after

    assert asyncio.run(play()) == ([], [changed(1), changed(2)])


def test_a_line_says_why_a_call_was_refused() -> None:
    record = CallFinished(id="1" * 32, at=START, route="r", outcome=Outcome.REFUSED, reason="too long")

    assert line_of(record) == f"2026-03-01T12:00:00.000Z  {'1' * 32}  CallFinished      r  outcome=refused reason=too long"


def test_show_prints_records_sums_and_the_exact_prompt(ledger: str, calls: list[Kept]) -> None:
    shown = run("show", calls[2].record.id, "--ledger", ledger)

    assert shown.exit_code == 0
    assert calls[2].sent in shown.stdout_bytes
    for word in ("PromptComposed", "CompactionApplied", "CallFinished", "estimate", "limit", "stable", "dynamic", "yes"):
        assert word in shown.stdout


def test_show_as_json_is_what_the_server_answers(ledger: str, calls: list[Kept]) -> None:
    found = json.loads(run("show", calls[1].record.id, "--ledger", ledger, "--json").stdout)

    assert found["prompt"].encode() == calls[1].sent
    assert found["request"].encode() == calls[1].received
    assert [each["type"] for each in found["records"]] == ["PromptComposed", "CallFinished"]
    assert found["reply_text"] == "yes"


def test_show_of_a_refused_call_has_its_record_and_no_prompt(tmp_path: Path) -> None:
    record = CallFinished(id="1" * 32, at=START, route="r", outcome=Outcome.REFUSED, reason="too long")
    asyncio.run(store(tmp_path / "l.db", [Entry(records=(record,))]))
    shown = run("show", record.id, "--ledger", f"sqlite:{tmp_path / 'l.db'}")

    assert shown.stdout == line_of(record) + "\n"


def test_show_of_an_unknown_id_says_where_ids_are(ledger: str) -> None:
    shown = run("show", "0" * 32, "--ledger", ledger)

    assert shown.exit_code == 2
    assert "gateway log" in shown.stderr


@pytest.mark.parametrize("words", [["log"], ["show", "0"], ["verify"]])
def test_reading_makes_no_ledger_where_there_is_none(tmp_path: Path, words: list[str]) -> None:
    done = run(*words, "--ledger", f"sqlite:{tmp_path / 'none.db'}")

    assert done.exit_code == 2
    assert "there is no ledger file" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["mongo://x", "redis://127.0.0.1:1/0"])
def test_a_ledger_that_cannot_be_reached_is_said_without_a_traceback(url: str) -> None:
    done = run("log", "--ledger", url)

    assert done.exit_code == 2
    assert done.stderr.strip() != ""
    assert "Traceback" not in done.output


# -- verify


def test_verify_counts_what_it_rebuilt(ledger: str) -> None:
    plain, as_json = run("verify", "--ledger", ledger), run("verify", "--ledger", ledger, "--json")

    assert (plain.exit_code, plain.stdout) == (0, "3 prompts verified, bit for bit\n")
    assert json.loads(as_json.stdout) == {"verified": 3, "difference": None}


def test_verify_since_leaves_out_what_is_older(ledger: str) -> None:
    words = ("verify", "--ledger", ledger, "--json", "--since")

    assert json.loads(run(*words, "2026-03-01T12:00:02").stdout)["verified"] == 1
    assert json.loads(run(*words, "2099-01-01T00:00:00+02:00").stdout)["verified"] == 0


def test_verify_ends_at_the_first_difference_and_shows_it(tmp_path: Path) -> None:
    """A record whose policy is not the one that the prompt was made with."""
    good, other = kept([*SAMPLE[:9], user("?")], at=0), kept([user()], policy(1_000), at=1)
    bad = kept(turns(40), policy(1_500), at=2)
    record = replace(bad.record, policy=good.record.policy)
    forged = replace(bad.entry, records=(record,), bodies=dict(bad.entry.bodies) | dict(good.entry.bodies))
    asyncio.run(store(tmp_path / "l.db", [good.entry, other.entry, forged, kept([user()], at=3).entry]))
    url = f"sqlite:{tmp_path / 'l.db'}"
    plain, as_json = run("verify", "--ledger", url), run("verify", "--ledger", url, "--json")
    found = json.loads(as_json.stdout)

    assert (plain.exit_code, as_json.exit_code) == (1, 1)
    assert found["verified"] == 2
    assert found["difference"]["snapshot_id"] == bad.record.id
    assert found["difference"]["recorded_digest"] == bad.record.prompt_digest.hex()
    assert found["difference"]["offset"] > 0
    assert bad.record.id in plain.stdout
    assert f"offset           {found['difference']['offset']}" in plain.stdout
    assert "2 prompts before it verified" in plain.stdout


def test_verify_finds_a_body_that_was_altered(tmp_path: Path, ledger: str, calls: list[Kept]) -> None:
    victim = calls[1].record.prompt.items[0]
    with closing(sqlite3.connect(tmp_path / "l.db")) as connection, connection:
        connection.execute("UPDATE bodies SET body = ? WHERE digest = ?", (b"pother", victim))
    done = run("verify", "--ledger", ledger)

    assert done.exit_code == 1
    assert f"{calls[1].record.id}: the prompt cannot be rebuilt: body {victim.hex()} does not match its digest" in done.stdout


def test_since_takes_times_and_spans() -> None:
    now = datetime.now(UTC)

    assert moment(None) is None
    assert moment("2026-03-01T12:00:00") == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert moment("2026-03-01T12:00:00+02:00") == datetime(2026, 3, 1, 10, tzinfo=UTC)
    assert abs((moment("2h") or now) - (now - timedelta(hours=2))) < timedelta(seconds=5)


@pytest.mark.parametrize("text", ["yesterday", "2w", "", "99999999999d"])
def test_since_refuses_anything_else(text: str, ledger: str) -> None:
    with pytest.raises(typer.BadParameter):
        moment(text)

    assert run("verify", "--ledger", ledger, "--since", text).exit_code == 2


def test_an_id_that_is_no_text_is_refused_without_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.touch()

    made = CliRunner().invoke(cli, ["show", "\udced\udca0\udc80", "--ledger", f"sqlite:{path}"])

    assert made.exit_code == 2
    assert "no such snapshot" in made.output
