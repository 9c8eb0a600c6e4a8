"""Makes a ledger of many calls from the real transcripts, and times what reads it: `verify` and `whatif`.

    python -m tests.bench.ledger [--calls 100000] [--keep FOLDER]

Sessions are the transcripts, joined to about 300 messages, some side by side; every turn is a call, recorded as the request
path records it. Nothing is sent.
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from gateway import planning
from gateway.cache.usage import Usage
from gateway.context import layout
from gateway.context.digest import digest
from gateway.context.policy import Policy, Window
from gateway.dialects import chat
from gateway.ledger.base import Ledger
from gateway.ledger.records import CallFinished, Entry, Outcome
from gateway.ledger.sqlite import SQLiteLedger
from gateway.planning import Planned, Snapshot
from gateway.providers.tokenizers import Counter
from tests.acceptance.transcripts import sessions

MESSAGES = 300  # of a joined session
BESIDE = 16  # sessions that go on side by side
START = datetime(2026, 11, 1, tzinfo=UTC)
AT_ONCE = 64  # entries appended together
NEW = """
providers: {{up: {{base_url: 'http://127.0.0.1:9/v1', api_key: none}}}}
routes:
  - name: m
    models: [m]
    targets: [{{provider: up, model: m, window_tokens: {window}, output_limit_tokens: 4096, tokenizer: o200k_base,
               prices: {{input: 2, cached: 0.2, cache_write: 2.5, output: 10}}}}]
    budget: {{output_reserve_tokens: 1024}}
"""


def talks() -> Iterator[list[dict[str, Any]]]:
    """Yield joined sessions without end; the second round differs from the first by a word at its front."""
    every, number, joined = cycle(sessions()), 0, list[dict[str, Any]]()
    for each in every:
        joined += each.messages if not joined else each.messages[1:]
        if len(joined) >= MESSAGES:
            number += 1
            yield [{**joined[0], "content": f"Session {number}.\n{joined[0]['content']}"}, *joined[1:MESSAGES]]
            joined = []


def turns() -> Iterator[list[dict[str, Any]]]:
    """Yield the messages of one call after the other, some sessions side by side."""
    made = talks()
    while group := list(islice(made, BESIDE)):
        for at in range(MESSAGES):
            for talk in group:
                if talk[at]["role"] == "assistant":
                    yield talk[:at]


def policy(window: int) -> Policy:
    return Policy(
        model="m", window=Window(tokens=window, output_limit=4_096, source="yaml"), reserve_tokens=1_024, tokenizer="o200k_base"
    )


async def fill(ledger: Ledger, calls: int, window: int = 16_384) -> None:
    """Record so many calls."""
    rule, memo, counter, plans = policy(window), chat.Memo(), Counter(), planning.Memo()
    scans: layout.Scans = {}
    body_of_policy = rule.to_json()
    record = (digest(body_of_policy), body_of_policy)
    waiting: list[Entry] = []
    for number, messages in enumerate(islice(turns(), calls)):
        request = chat.parse(json.dumps({"model": "m", "messages": messages}).encode(), memo)
        arranged = layout.arrange(request, rule.layout, chat.CHAT, memo=scans)
        planned = planning.plan_now(arranged, rule, counter, plans)
        assert isinstance(planned, Planned)
        at, name = START + timedelta(seconds=number), f"{number:012x}{os.urandom(10).hex()}"
        snapshot = Snapshot(
            id=name, at=at, route="m", session="", lineage="l", tenant="", request_id=name, attempt=1, target="up/m",
            observe=False, expected=0,
        )  # fmt: skip
        waiting.append(planning.entry(snapshot, request, planned, record))
        usage = Usage(input_tokens=planned.estimate, output_tokens=200)
        end = CallFinished(
            id=name + "e", at=at, **snapshot.names, outcome=Outcome.COMPLETED, target="up/m", status=200, usage=usage
        )
        waiting.append(Entry(records=(end,)))
        if len(waiting) >= AT_ONCE:
            await asyncio.gather(*map(ledger.append, waiting))
            waiting = []
    await asyncio.gather(*map(ledger.append, waiting))


def timed(words: list[str], folder: Path) -> tuple[float, float]:
    """Run a command; return its seconds and how many of them were CPU."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "gateway", *words], cwd=folder, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(done.stdout, done.stderr.splitlines()[-1] if done.returncode else "")
    return time.perf_counter() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run(folder: Path, calls: int) -> None:
    path = folder / "calls.db"
    if not path.exists():

        async def make() -> None:
            ledger = SQLiteLedger.open(str(path), 60)
            await fill(ledger, calls)
            await ledger.close()

        began = time.perf_counter()
        asyncio.run(make())
        print(f"recorded {calls} calls in {time.perf_counter() - began:.0f} s, {path.stat().st_size / 1e6:.0f} MB")
    (folder / "new.yaml").write_text(NEW.format(window=8_192))
    where = ["--ledger", f"sqlite:{path}"]
    for words in (["verify"], ["whatif", "--config", "new.yaml"]):
        seconds, cpu = timed([*words, *where], folder)
        print(f"{words[0]}: {calls / seconds:,.0f} a second ({seconds:.1f} s, {cpu:.1f} s of CPU)")
    print(f"most memory of either: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MB")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--calls", type=int, default=100_000)
    asked.add_argument("--keep", type=Path, help="a folder whose ledger is made once and used again")
    options = asked.parse_args()
    if options.keep:
        options.keep.mkdir(exist_ok=True)
        run(options.keep, options.calls)
        return
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), options.calls)


if __name__ == "__main__":
    main()
