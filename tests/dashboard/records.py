"""Records to fold, in the tests of the dashboard."""

from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.ledger.records import CallFinished, CompactionApplied, Manifest, Outcome, PromptComposed, Usage

START = datetime(2026, 1, 1, tzinfo=UTC)
NOTHING = Manifest(head=(), nodes=(), items=(), tail=())


def composed(number: int, *, compaction: str = "none", second: float = 0, target: str = "up/m", **more: Any) -> PromptComposed:
    name = f"{number:032x}"
    fields: dict[str, Any] = {"route": "r", "attempt": 1, "request_id": name, "lineage": f"l{number}", **more}
    return PromptComposed(
        id=name,
        snapshot_id=name,
        at=START + timedelta(seconds=second),
        target=target,
        dialect="chat",
        request=NOTHING,
        prompt=NOTHING,
        prompt_digest=b"",
        prompt_bytes=0,
        policy=b"",
        compaction=compaction,
        **fields,
    )


def cut(number: int, boundary: int, *, second: float = 0, **more: Any) -> CompactionApplied:
    fields: dict[str, Any] = {"route": "r", "lineage": f"l{number}", "scope": "target:up/m", **more}
    return CompactionApplied(
        id=f"{number:032x}-cut",
        at=START + timedelta(seconds=second),
        strategy="sliding_window",
        kept=3,
        dropped=2,
        pruned=0,
        boundary=boundary,
        before_tokens=100,
        after_tokens=40,
        **fields,
    )


def finished(number: int = 0, usage: Usage | None = None, *, second: float | None = None, **more: Any) -> CallFinished:
    fields: dict[str, Any] = {"route": "r", "target": "up/m", "outcome": Outcome.COMPLETED, **more}
    return CallFinished(
        id=f"f{number}",
        at=START + timedelta(seconds=number if second is None else second),
        snapshot_id=f"{number:032x}",
        usage=usage,
        **fields,
    )


def usage(input_tokens: int, cached_tokens: int | None = None, **more: Any) -> Usage:
    return Usage(input_tokens=input_tokens, cached_tokens=cached_tokens, **more)
