"""The attempts of one request: what each brought, whether another may follow, and what all of them mean at the end.

Values and small state; waiting is the only effect. Knows nothing of HTTP servers or stores.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime

import orjson

from gateway import charges
from gateway.cache.cost import Prices, parts_usd
from gateway.cache.usage import Usage
from gateway.charges import Worst
from gateway.context.admission import Refused
from gateway.context.digest import digest
from gateway.context.items import Prompt
from gateway.dialects.answers import Answer
from gateway.dialects.base import Dialect
from gateway.dialects.chat import CHAT
from gateway.dialects.sse import Splitter
from gateway.errors import ContextLengthExceeded, GatewayError, UpstreamError, UpstreamRefused, UpstreamTimeout
from gateway.ledger.records import CallFinished, Entry, Outcome
from gateway.limits.reservations import Reservation
from gateway.planning import Snapshot
from gateway.providers.base import Failure, Headers, Reply
from gateway.routing import Retry

BACKOFF_S = 0.5  # doubled with each try, as the OpenAI SDKs do
KEPT_BYTES = 64 << 20  # of one answer, for its record; what is beyond is forwarded and not recorded
OVERFLOWS = (Failure.OVERFLOW, Failure.TOO_LARGE)
OUTCOMES = {
    Failure.OVERFLOW: Outcome.OVERFLOW,
    Failure.TIMEOUT: Outcome.UPSTREAM_TIMEOUT,
    Failure.TRUNCATED: Outcome.UPSTREAM_TRUNCATED,
}


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One recorded prompt on its way to one target, and what was seen of its answer."""

    snapshot: Snapshot
    prompt: Prompt
    estimate: int
    prices: Prices | None
    strip_usage: bool
    dialect: Dialect = CHAT  # of the wire
    prefix: tuple[bytes, list[bytes]]  # the digest before the items and the chain over them, for the expected cache
    began: float = field(default_factory=time.perf_counter)
    status: int | None = None
    first_token_s: float | None = None
    reason: str | None = None
    kept: list[bytes] = field(default_factory=list)
    kept_bytes: int = 0
    answer: Answer | None = None
    reservation: Reservation | None = None
    worst: Worst = Worst()
    sent: bool = False

    @property
    def target(self) -> str:
        return self.snapshot.target

    def keep(self, chunk: bytes) -> None:
        """Keep the answer's bytes for its record, within bounds."""
        self.kept_bytes += len(chunk)
        if self.kept_bytes <= KEPT_BYTES:
            self.kept.append(chunk)

    def settle(self, record: CallFinished | None) -> None:
        """End the claim of this attempt with what it cost; `record` None: that is not known."""
        if self.reservation is not None:
            self.reservation.spent(charges.of(record, self.worst, self.prices, sent=self.sent), self.worst.amounts)


@dataclass(frozen=True, slots=True)
class Delivered:
    """What one attempt brought. `failure` None: an answer that may go to the client, `chunks` the rest of its stream."""

    failure: Failure | None
    reply: Reply | None
    body: bytes
    message: str = ""
    chunks: AsyncIterator[bytes] | None = None
    splitter: Splitter | None = None

    @property
    def status(self) -> int | None:
        return None if self.reply is None else self.reply.status

    @property
    def headers(self) -> Headers:
        return () if self.reply is None else self.reply.headers

    @property
    def outcome(self) -> Outcome:
        return Outcome.COMPLETED if self.failure is None else OUTCOMES.get(self.failure, Outcome.UPSTREAM_ERROR)

    @property
    def reason(self) -> str:
        """Why the attempt failed, in words that are safe to show: never the provider's text."""
        said = f"answered {self.status}" if self.status is not None else self.message
        word = "context_length_exceeded" if self.failure in OVERFLOWS else str(self.failure)
        return f"{word}: {said}"


class Attempts:
    """The tries of one request. Tries of one target and of the whole request are bounded by the route's `retry`."""

    def __init__(self, rule: Retry) -> None:
        self._rule = rule
        self._tries: dict[str, int] = {}
        self._causes: list[str] = []
        self._refused: list[Refused] = []
        self._last: tuple[str, Delivered] | None = None
        self._wait_s: float | None = None
        self.waited = 0.0  # seconds spent waiting for providers, or between tries

    @property
    def target(self) -> str:
        """The last target that was tried, "" when none was."""
        return self._last[0] if self._last else ""

    @property
    def count(self) -> int:
        """How many attempts began."""
        return sum(self._tries.values())

    def left(self, target: str) -> bool:
        """Whether this target may be tried (again)."""
        return self._tries.get(target, 0) < self._rule.attempts and self.count < self._rule.total_attempts

    def begin(self, target: str) -> int:
        """Count one try; return its number within the request, from 1."""
        self._tries[target] = self._tries.get(target, 0) + 1
        return self.count

    def refused(self, target: str, refused: Refused) -> None:
        """Note that the prompt cannot be made to fit this target."""
        self._refused.append(refused)
        self._causes.append(f"{target}: {refused.sums()}")

    def failed(self, target: str, delivered: Delivered, wait_s: float | None) -> None:
        """Note a failure; the newest answer's wait is the one that counts."""
        self._causes.append(f"{target}: {delivered.reason}")
        self._last = (target, delivered)
        self._wait_s = wait_s

    @property
    def final(self) -> bool:
        """Whether no other target can do better: the fault is the request's own."""
        return self._last is not None and self._last[1].failure is not None and not self._last[1].failure.try_other

    async def again(self, target: str) -> bool:
        """Wait as the provider asked, or back off, and return True when the same target is worth another try.

        A wait beyond the route's `max_wait_s` is not waited for: the next target is tried at once.
        """
        failure = self._last[1].failure if self._last else None
        if failure is None or not failure.retry_same or not self.left(target):
            return False
        wait_s = self._wait_s if self._wait_s is not None else BACKOFF_S * 2 ** (self._tries[target] - 1)
        if wait_s > self._rule.max_wait_s:
            return False
        await asyncio.sleep(wait_s)
        self.waited += wait_s
        return True

    def error(self) -> GatewayError:
        """Return the error that stands for all of it; each cause is listed, without keys or content."""
        causes = "; ".join(self._causes)
        if self._last is None:
            return ContextLengthExceeded(f"no target can hold the required content, nothing was sent. {causes}", param="messages")
        target, last = self._last
        if last.failure in OVERFLOWS:
            return ContextLengthExceeded(f"every target's window is too small for this prompt. {causes}", param="messages")
        if last.status is not None and 400 <= last.status < 500:
            return UpstreamRefused(status=last.status, body=last.body, target=target, headers=dict(last.headers))
        kind = UpstreamTimeout if last.failure is Failure.TIMEOUT else UpstreamError
        return kind(f"every attempt failed. {causes}", target=target, headers=dict(last.headers))


def answer_of(data: bytes, stream: bool, dialect: Dialect) -> Answer:
    """Return what an answer's bytes say, plain or streamed; a plain answer to a request for a stream is read as plain."""
    if stream and data.lstrip()[:1] != b"{":
        return dialect.read_stream(data)
    return dialect.read_reply(data)


def finished(attempt: Attempt, answer: Answer, outcome: Outcome, record_id: str, at: datetime) -> tuple[Entry, CallFinished]:
    """Return the entry that ends an attempt. A usage that was not reported for an answer is estimated, and says so."""
    bodies: dict[bytes, bytes] = {}
    reply = None
    if attempt.kept:
        said: dict[str, object] = {
            "text": answer.text,
            "tool_calls": answer.tool_calls,
            "finish_reason": answer.finish_reason,
            "refusal": answer.refusal,
        }
        body = orjson.dumps(said)
        reply = digest(body)
        bodies[reply] = body
    usage, estimated = answer.usage, False
    if usage is None and attempt.kept and (attempt.status or 500) < 400:
        usage, estimated = (
            Usage(input_tokens=attempt.estimate, output_tokens=-(-len(answer.text.encode("utf-8", "replace")) // 3)),
            True,
        )
    snapshot, parts = attempt.snapshot, {} if estimated else parts_usd(usage, attempt.prices)
    record = CallFinished(
        id=record_id,
        at=at,
        **snapshot.names,
        outcome=outcome,
        target=snapshot.target,
        status=attempt.status,
        latency_s=round(time.perf_counter() - attempt.began, 6),
        first_token_s=attempt.first_token_s,
        usage=usage,
        usage_estimated=estimated,
        cost_usd=sum(parts.values()) if parts else None,
        cost_parts_usd=parts,
        cache_expected_tokens=snapshot.expected,
        cache_reported_tokens=None if usage is None or estimated else usage.cached_tokens,
        reply=reply,
        reason=attempt.reason,
    )
    return Entry(records=(record,), bodies=bodies, roots=tuple(bodies)), record
