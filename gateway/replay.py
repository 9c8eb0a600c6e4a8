"""Rebuilds recorded prompts: joined from their bodies, and composed anew from their inputs. Both must give the recorded digest.

The same pure functions as the request path, on the recorded request, policy and evidence.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from gateway.context import layout
from gateway.context.admission import Refused
from gateway.context.digest import digest
from gateway.context.policy import Policy
from gateway.dialects import chat
from gateway.errors import GatewayError, LedgerError
from gateway.ledger import codec
from gateway.ledger.base import Ledger
from gateway.ledger.records import PromptComposed
from gateway.planning import plan_now
from gateway.providers.tokenizers import Counter

BATCH = 64  # snapshots whose bodies are asked for together
AROUND = 60  # bytes shown on both sides of a difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the check of one snapshot found. `problem` None: both ways gave the recorded bytes."""

    snapshot_id: str
    problem: str | None = None
    offset: int | None = None
    recorded: str | None = None
    rebuilt: str | None = None


@dataclass(slots=True)
class Replay:
    """What replays share: parsed messages, scans and counts, each done once."""

    memo: chat.Memo
    counter: Counter
    scans: layout.Scans

    @classmethod
    def new(cls) -> "Replay":
        return cls(chat.Memo(), Counter(), {})

    def composed(self, record: PromptComposed, bodies: Mapping[bytes, bytes]) -> bytes:
        """Return the prompt composed anew from the recorded request, policy and evidence.

        Raises LedgerError when the recorded inputs would be refused today, or a body is missing.
        """
        request = chat.parse(codec.joined(record.request, bodies.__getitem__), self.memo)
        policy = Policy.from_json(bodies[record.policy])
        observe = bool(record.evidence.get("observe"))
        arranged = layout.arrange(request, policy.layout, chat.CHAT, observe=observe, memo=self.scans)
        planned = plan_now(arranged, policy, self.counter)
        if isinstance(planned, Refused):
            raise LedgerError(f"the recorded request is refused now: {planned.sums()}")
        return planned.prompt.body

    def check(self, record: PromptComposed, bodies: Mapping[bytes, bytes]) -> Verdict:
        """Return whether both ways give the bytes whose digest was recorded. Never raises for a record that is damaged."""
        try:
            joined = codec.joined(record.prompt, bodies.__getitem__)
            if digest(joined) != record.prompt_digest:
                return Verdict(snapshot_id=record.id, problem="the stored bodies are not those of the recorded prompt")
            made = self.composed(record, bodies)
        except (GatewayError, KeyError, ValueError, TypeError) as error:
            said = error.message if isinstance(error, GatewayError) else type(error).__name__
            return Verdict(snapshot_id=record.id, problem=f"it cannot be rebuilt: {said}")
        if made == joined:
            return Verdict(snapshot_id=record.id)
        at = next((n for n, (a, b) in enumerate(zip(joined, made, strict=False)) if a != b), min(len(joined), len(made)))
        start = max(0, at - AROUND)
        return Verdict(
            snapshot_id=record.id,
            problem="composed anew, it is not the recorded prompt",
            offset=at,
            recorded=joined[start : at + AROUND].decode("utf-8", "replace"),
            rebuilt=made[start : at + AROUND].decode("utf-8", "replace"),
        )


async def bodies_of(ledger: Ledger, records: list[PromptComposed]) -> Mapping[bytes, bytes]:
    """Return every body that these snapshots need. Raises LedgerError for one that is missing or altered."""
    first: dict[bytes, None] = {}
    for record in records:
        first.update(dict.fromkeys((*codec.roots(record.request), *codec.roots(record.prompt), record.policy)))
    found = dict(await ledger.bodies(first))
    nodes = {node for record in records for each in (record.request, record.prompt) for node in each.nodes}
    below = {child for node in nodes for child in codec.children(found[node])} - found.keys()
    if below:
        found.update(await ledger.bodies(below))
    return found


async def verify(ledger: Ledger, since: datetime | None = None) -> AsyncIterator[Verdict]:
    """Yield a verdict for each recorded prompt, oldest first, in bounded memory."""
    replay, batch = Replay.new(), list[PromptComposed]()
    async for record in ledger.read(since=since):
        if isinstance(record, PromptComposed):
            batch.append(record)
        if len(batch) == BATCH:
            for verdict in await _checked(ledger, replay, batch):
                yield verdict
            batch = []
    for verdict in await _checked(ledger, replay, batch):
        yield verdict


async def _checked(ledger: Ledger, replay: Replay, batch: list[PromptComposed]) -> list[Verdict]:
    try:
        bodies = await bodies_of(ledger, batch)
    except LedgerError:  # one of them lacks a body: find out which
        if len(batch) == 1:
            return [Verdict(snapshot_id=batch[0].id, problem="a body of it is missing or altered")]
        return [verdict for record in batch for verdict in await _checked(ledger, replay, [record])]
    return [replay.check(record, bodies) for record in batch]
