"""Rebuilds recorded prompts: joined from their bodies, and composed anew from their inputs. Both must give the recorded digest.

The same pure functions as the request path, on the recorded request, policy and evidence.
"""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from gateway import planning
from gateway.context import layout
from gateway.context.admission import Refused
from gateway.context.digest import digest
from gateway.context.items import Request
from gateway.context.layout import Arranged
from gateway.context.policy import LayoutPolicy, Policy
from gateway.context.tokens import Costs
from gateway.dialects import table
from gateway.errors import GatewayError, LedgerError, SnapshotUnavailable
from gateway.ledger import codec
from gateway.ledger.base import Ledger
from gateway.ledger.records import CallFinished, PromptComposed
from gateway.planning import Planned
from gateway.providers.tokenizers import Counter

BATCH = 64  # snapshots whose bodies are asked for together
BATCH_BYTES = 32 << 20  # of their prompts together, so that long ones do not fill the memory
BODIES_BYTES = 256 << 20  # of bodies kept: some hundred sessions that go on side by side
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
        policy = self.policy(record, bodies)
        planned = self.plan(self.arranged(record, self.request(record, bodies), policy.layout), policy)
        if isinstance(planned, Refused):
            raise LedgerError(f"the recorded request is refused now: {planned.sums()}")
        return planned.prompt.body

    def arranged(self, record: PromptComposed, request: Request, policy: LayoutPolicy) -> Arranged:
        """Return a recorded request laid out under a policy, the recorded one or another."""
        observe = bool(record.evidence.get("observe"))
        return layout.arrange(request, policy, table.DIALECTS[record.dialect], observe=observe, memo=self._scans)

    def plan(self, arranged: Arranged, policy: Policy) -> Planned | Refused:
        """Return it planned for one target."""
        return planning.plan_now(arranged, policy, self._counter, self._plans)

    def counted(self, record: PromptComposed, prompt: Request, policy: Policy) -> Costs:
        """Return the counted tokens of a prompt as it stands, by the policy's tokenizer."""
        return self._counter.costs_now(Arranged(request=prompt, dialect=table.DIALECTS[record.dialect]), policy)

    def request(self, record: PromptComposed, bodies: Mapping[bytes, bytes]) -> Request:
        """Return the recorded request. Raises as `recompute`."""
        dialect = table.DIALECTS.get(record.dialect)
        if dialect is None:
            raise LedgerError(f"the dialect {record.dialect!r} is not known here")
        return dialect.parse(_joined(record, bodies, prompt=False), self._memos[dialect.name])

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

    def policy(self, record: PromptComposed, bodies: Mapping[bytes, bytes]) -> Policy:
        """Return the policy in force when it was recorded. Raises LedgerError when it cannot be read."""
        name = record.policy
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


class Shelf:
    """Bodies that were read, the last used ones within `BODIES_BYTES`: the turns of a session share nearly all of theirs.

    What was read was checked against its digest, so a replay checks each body once and not with every turn.
    """

    def __init__(self, ledger: Ledger, limit_bytes: int = BODIES_BYTES) -> None:
        self._ledger, self._limit, self._size = ledger, limit_bytes, 0
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()

    async def of(self, records: Sequence[PromptComposed]) -> Mapping[bytes, bytes]:
        """Return every body that these snapshots need. Raises LedgerError for one that is missing or altered."""
        roots: dict[bytes, None] = {}
        for record in records:
            roots.update(dict.fromkeys((*codec.roots(record.request), *codec.roots(record.prompt), record.policy)))
        found = await self._read(roots)
        nodes = dict.fromkeys(node for record in records for each in (record.request, record.prompt) for node in each.nodes)
        below = dict.fromkeys(child for node in nodes for child in codec.children(found[node]))
        return found | await self._read(below) if below else found

    async def each(self, records: Sequence[PromptComposed]) -> list[tuple[PromptComposed, Mapping[bytes, bytes] | LedgerError]]:
        """Return each snapshot with its bodies, or why it has none. SnapshotUnavailable: the ledger does not answer."""
        try:
            bodies = await self.of(records)
        except SnapshotUnavailable:
            raise
        except LedgerError as error:
            if len(records) == 1:
                return [(records[0], error)]
            return [pair for record in records for pair in await self.each([record])]
        return [(record, bodies) for record in records]

    async def _read(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        found, wanted = dict[bytes, bytes](), list[bytes]()
        for each in digests:
            body = self._kept.get(each)
            if body is None:
                wanted.append(each)
            else:
                self._kept.move_to_end(each)
                found[each] = body
        if wanted:
            read = await self._ledger.bodies(wanted)
            found.update(read)
            self._kept.update(read)
            self._size += sum(map(len, read.values()))
            while self._size > self._limit:
                self._size -= len(self._kept.popitem(last=False)[1])
        return found


@dataclass(slots=True)
class Batch:
    """Snapshots whose bodies are asked for together, and the ends of calls that were read among them."""

    records: list[PromptComposed] = field(default_factory=list)
    ends: list[CallFinished] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, record: PromptComposed) -> None:
        """Add one snapshot."""
        self.records.append(record)
        self.size_bytes += record.prompt_bytes

    @property
    def full(self) -> bool:
        """Whether it is time to read the bodies."""
        return len(self.records) >= BATCH or self.size_bytes > BATCH_BYTES or len(self.ends) >= 4 * BATCH


async def verify(ledger: Ledger, since: datetime | None = None) -> AsyncGenerator[Verdict, None]:
    """Yield a verdict for each recorded prompt, oldest first, in bounded memory.

    Raises SnapshotUnavailable when the ledger does not answer, which says nothing about what it holds, and LedgerError for
    a record that cannot be read at all.
    """
    replay, shelf, batch = Replay(), Shelf(ledger), Batch()
    async for record in ledger.read(since=since):
        if isinstance(record, PromptComposed):
            batch.add(record)
        if batch.full:
            for pair in await shelf.each(batch.records):
                yield _checked(replay, *pair)
            batch = Batch()
    for pair in await shelf.each(batch.records):
        yield _checked(replay, *pair)


def _checked(replay: Replay, record: PromptComposed, bodies: Mapping[bytes, bytes] | LedgerError) -> Verdict:
    if isinstance(bodies, LedgerError):
        return _wrong(record, f"the prompt cannot be rebuilt: {bodies.message}")
    return replay.check(record, bodies)
