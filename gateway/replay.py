"""Rebuilds recorded prompts: joined from their bodies, and composed anew from their inputs. Both must give the recorded digest.

The same pure functions as the request path, on the recorded request, policy and evidence.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gateway import planning
from gateway.context import layout
from gateway.context.admission import Refused
from gateway.context.digest import digest
from gateway.context.policy import Policy
from gateway.dialects import table
from gateway.errors import GatewayError, LedgerError, SnapshotUnavailable
from gateway.ledger import codec
from gateway.ledger.base import Ledger
from gateway.ledger.records import PromptComposed
from gateway.providers.tokenizers import Counter

BATCH = 64  # snapshots whose bodies are asked for together
BATCH_BYTES = 32 << 20  # of their prompts together, so that long ones do not fill the memory
POLICIES = 1_000  # parsed policies kept: one for each target of each configuration that was in force
AROUND = 60  # bytes shown on both sides of a difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the check of one snapshot found. `problem` None: both ways gave the recorded bytes.

    Digests are in hex, and None where that way gave no bytes. `offset` is the first byte in which the stored prompt and
    the one composed anew differ, None when they do not or when one is not at hand; `stored_text` and `composed_text` are
    what stands around it in each.
    """

    snapshot_id: str
    problem: str | None = None
    recorded_digest: str | None = None
    stored_digest: str | None = None
    composed_digest: str | None = None
    offset: int | None = None
    stored_text: str | None = None
    composed_text: str | None = None


def rebuild(record: PromptComposed, bodies: Mapping[bytes, bytes]) -> bytes:
    """Return the prompt joined from its stored bodies. Raises LedgerError when a body is missing or a manifest is broken."""
    return _joined(record, bodies, prompt=True)


class Replay:
    """What replays share: parsed messages, policies, scans and counts, each done once. None of it changes a result."""

    def __init__(self) -> None:
        self._memos, self._counter = table.memos(), Counter()
        self._scans: layout.Scans = {}
        self._plans = planning.Memo()
        self._policies: dict[bytes, Policy] = {}

    def recompute(self, record: PromptComposed, bodies: Mapping[bytes, bytes]) -> bytes:
        """Return the prompt composed anew from the recorded request, policy and evidence.

        Raises LedgerError when a body is missing or broken, or when the recorded inputs would be refused today, and
        RequestError when the recorded request is none.
        """
        dialect = table.DIALECTS.get(record.dialect)
        if dialect is None:
            raise LedgerError(f"the dialect {record.dialect!r} is not known here")
        request = dialect.parse(_joined(record, bodies, prompt=False), self._memos[dialect.name])
        policy = self._policy(record.policy, bodies)
        observe = bool(record.evidence.get("observe"))
        arranged = layout.arrange(request, policy.layout, dialect, observe=observe, memo=self._scans)
        planned = planning.plan_now(arranged, policy, self._counter, self._plans)
        if isinstance(planned, Refused):
            raise LedgerError(f"the recorded request is refused now: {planned.sums()}")
        return planned.prompt.body

    def check(self, record: PromptComposed, bodies: Mapping[bytes, bytes]) -> Verdict:
        """Return whether both ways give the bytes whose digest was recorded. A damaged record is a verdict, not an error."""
        try:
            stored = rebuild(record, bodies)
        except LedgerError as error:
            return _wrong(record, f"the recorded prompt cannot be joined: {error.message}")
        try:
            made = self.recompute(record, bodies)
        except GatewayError as error:
            return _wrong(record, f"the prompt cannot be composed anew: {error.message}", stored=stored)
        if digest(stored) == record.prompt_digest and made == stored:
            return Verdict(snapshot_id=record.id)
        if made == stored:
            return _wrong(record, "the recorded digest is not that of the prompt, stored or composed anew", stored, made)
        if digest(stored) == record.prompt_digest:
            return _wrong(record, "composed anew, it is not the recorded prompt", stored, made)
        return _wrong(record, "the stored prompt is not the recorded one", stored, made)

    def _policy(self, name: bytes, bodies: Mapping[bytes, bytes]) -> Policy:
        found = self._policies.get(name)
        if found is None:
            try:
                found = Policy.from_json(bodies[name])
            except (KeyError, TypeError, ValueError) as error:
                raise LedgerError(f"the policy {name.hex()} cannot be read ({type(error).__name__})") from error
            if len(self._policies) >= POLICIES:
                self._policies.clear()
            self._policies[name] = found
        return found


def _joined(record: PromptComposed, bodies: Mapping[bytes, bytes], *, prompt: bool) -> bytes:
    try:
        return codec.joined(record.prompt if prompt else record.request, bodies.__getitem__)
    except KeyError as error:
        raise LedgerError(f"body {bytes(error.args[0]).hex()} is not at hand") from None


def _wrong(record: PromptComposed, problem: str, stored: bytes | None = None, made: bytes | None = None) -> Verdict:
    offset = None if stored is None or made is None or stored == made else first_difference(stored, made)
    return Verdict(
        snapshot_id=record.id,
        problem=problem,
        recorded_digest=record.prompt_digest.hex(),
        stored_digest=None if stored is None else digest(stored).hex(),
        composed_digest=None if made is None else digest(made).hex(),
        offset=offset,
        stored_text=_around(stored, offset),
        composed_text=_around(made, offset),
    )


def first_difference(one: bytes, other: bytes) -> int:
    """Return the offset of the first byte in which two texts differ; where one begins with the other, the shorter length."""
    low, high = 0, min(len(one), len(other))
    while low < high:  # the longest common prefix by halves: comparing slices is a hundred times quicker than byte by byte
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _around(text: bytes | None, offset: int | None) -> str | None:
    if text is None or offset is None:
        return None
    return text[max(0, offset - AROUND) : offset + AROUND].decode("utf-8", "replace")


async def bodies_of(ledger: Ledger, records: Sequence[PromptComposed]) -> Mapping[bytes, bytes]:
    """Return every body that these snapshots need. Raises LedgerError for one that is missing or altered."""
    first: dict[bytes, None] = {}
    for record in records:
        first.update(dict.fromkeys((*codec.roots(record.request), *codec.roots(record.prompt), record.policy)))
    found = dict(await ledger.bodies(first))
    nodes = dict.fromkeys(node for record in records for each in (record.request, record.prompt) for node in each.nodes)
    below = dict.fromkeys(child for node in nodes for child in codec.children(found[node]) if child not in found)
    if below:
        found.update(await ledger.bodies(below))
    return found


async def verify(ledger: Ledger, since: datetime | None = None) -> AsyncGenerator[Verdict, None]:
    """Yield a verdict for each recorded prompt, oldest first, in bounded memory.

    Raises SnapshotUnavailable when the ledger does not answer, which says nothing about what it holds, and LedgerError for
    a record that cannot be read at all.
    """
    replay, batch, size = Replay(), list[PromptComposed](), 0
    async for record in ledger.read(since=since):
        if not isinstance(record, PromptComposed):
            continue
        batch.append(record)
        size += record.prompt_bytes
        if len(batch) == BATCH or size > BATCH_BYTES:
            for verdict in await _checked(ledger, replay, batch):
                yield verdict
            batch, size = [], 0
    for verdict in await _checked(ledger, replay, batch):
        yield verdict


async def _checked(ledger: Ledger, replay: Replay, batch: Sequence[PromptComposed]) -> Iterable[Verdict]:
    try:
        bodies = await bodies_of(ledger, batch)
    except SnapshotUnavailable:
        raise
    except LedgerError as error:
        if len(batch) == 1:
            return [_wrong(batch[0], f"the prompt cannot be rebuilt: {error.message}")]
        return [verdict for record in batch for verdict in await _checked(ledger, replay, [record])]
    return [replay.check(record, bodies) for record in batch]
