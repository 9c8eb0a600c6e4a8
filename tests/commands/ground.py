"""What tests of commands stand on: how one is run, a settings file, and how a ledger is filled."""

from collections.abc import Iterable
from pathlib import Path

from typer.testing import CliRunner, Result

from gateway.cli import cli
from gateway.ledger.records import Entry
from gateway.ledger.sqlite import SQLiteLedger

GOOD = """
ledger: {url: 'sqlite:LEDGER'}
providers: {up: {kind: openai, base_url: 'http://127.0.0.1:9/v1', api_key: none}}
routes:
  - name: coding
    models: [m]
    targets:
      - {provider: up, model: big, window_tokens: 100000, tokenizer: bytes}
      - {provider: up, model: small, window_tokens: 1500, tokenizer: bytes}
    budget: {output_reserve_tokens: 100}
"""


def run(*words: str | Path, **env: str) -> Result:
    # Keys of providers in the environment of whoever runs the tests must not choose the settings.
    return CliRunner().invoke(cli, list(map(str, words)), env={"OPENAI_API_KEY": None, **env})


async def store(path: Path, entries: Iterable[Entry]) -> None:
    ledger = SQLiteLedger.open(str(path), 5)
    for each in entries:
        await ledger.append(each)
    await ledger.close()
