import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.context.digest import digest
from gateway.context.policy import CompactionPolicy, Policy, Window
from gateway.errors import RouteNotAllowed, SnapshotUnavailable
from gateway.ledger import codec
from gateway.ledger.memory import MemoryLedger
from gateway.ledger.records import CallFinished, CompactionApplied, Entry, Outcome, PromptComposed
from gateway.pipeline import Aim, Answer, Call, Gateway
from gateway.providers.base import AttemptFailed, Failure, Headers, Outgoing
from gateway.providers.tokenizers import Counter
from gateway.routing import Cooldown, Retry, Route, Target
from gateway.telemetry import Metrics

JSON: Headers = (("content-type", "application/json"),)
EVENTS: Headers = (("content-type", "text/event-stream"),)
REPLY = (
    b'{"choices":[{"index":0,"message":{"content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}'
)
TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}],"usage":null}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"
OVERFLOW = b'{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}'
HANG = None  # in a script: nothing more comes
BROKEN = AttemptFailed(Failure.BROKEN, "the connection broke")
pytestmark = pytest.mark.anyio


Chunk = bytes | AttemptFailed | None


class ScriptedReply:
    """One scripted answer: its head, then chunks; a failure among them breaks it, HANG stalls it."""

    def __init__(self, *chunks: Chunk, status: int = 200, headers: Headers = JSON) -> None:
        self.script, self.status, self.headers = chunks, status, headers
        self.name, self.log = "", [""]
        self.closed = False

    async def chunks(self) -> AsyncIterator[bytes]:
        for chunk in self.script:
            if isinstance(chunk, AttemptFailed):
                raise chunk
            if chunk is None:
                await asyncio.Event().wait()
            else:
                yield chunk

    async def read(self, limit_bytes: int) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])[:limit_bytes]

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed = True
        self.log.append(f"close {self.name}")


def stream(*chunks: Chunk) -> ScriptedReply:
    return ScriptedReply(*chunks, headers=EVENTS)


def refusal(status: int, body: bytes = b'{"error":{"message":"no"}}', *headers: tuple[str, str]) -> ScriptedReply:
    return ScriptedReply(body, status=status, headers=(*JSON, *headers))


class ScriptedUpstream:
    """A provider that says what the script has, call by call. HANG: no head ever comes."""

    def __init__(self, name: str, log: list[str], script: Sequence[ScriptedReply | AttemptFailed | None]) -> None:
        self.name, self.log, self.script = name, log, list(script)
        self.sent: list[Outgoing] = []

    async def send(self, call: Outgoing) -> ScriptedReply:
        self.log.append(f"send {self.name}")
        self.sent.append(call)
        said = self.script.pop(0)
        if isinstance(said, AttemptFailed):
            raise said
        if said is None:
            await asyncio.Event().wait()
            raise AssertionError
        said.name, said.log = self.name, self.log
        return said

    @property
    def bodies(self) -> list[bytes]:
        return [call.body for call in self.sent if isinstance(call.body, bytes)]

    async def close(self) -> None: ...


class LoggedLedger(MemoryLedger):
    """Notes what is appended, in the order in which it counts. `fails` names a target whose snapshots are not taken."""

    def __init__(self, log: list[str], fails: str = "") -> None:
        super().__init__()
        self.log, self.fails = log, fails

    async def append(self, entry: Entry) -> None:
        await asyncio.sleep(0)  # a store answers later: what is sent before it did shows in the log
        for record in entry.records:
            if isinstance(record, PromptComposed) and record.target == self.fails:
                self.log.append(f"lost {record.target}")
                raise SnapshotUnavailable("the ledger is away")
        await super().append(entry)
        for record in entry.records:
            if isinstance(record, CallFinished):
                self.log.append(f"finished {record.target} {record.outcome}".replace("  ", " "))
            elif not isinstance(record, CompactionApplied):
                self.log.append(f"append {getattr(record, 'target', '')}")


@dataclass
class World:
    """A gateway with one route over scripted targets, named a/m, b/m, and so on in the order of the scripts."""

    scripts: Sequence[Sequence[ScriptedReply | AttemptFailed | None]]
    windows: Sequence[int | None] = ()
    retry: Retry = Retry(attempts=1)
    cooldown: Cooldown = Cooldown()
    fails: str = ""
    speaks: Sequence[str] = ("chat",)  # what the targets' servers speak
    log: list[str] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ids = 0
        self.upstreams = {
            f"{name}/m": ScriptedUpstream(f"{name}/m", self.log, each) for name, each in zip("abcd", self.scripts, strict=False)
        }
        windows = self.windows or [None] * len(self.scripts)
        targets = [
            Target(provider=name[0], model="m", window_tokens=each) for name, each in zip(self.upstreams, windows, strict=True)
        ]
        route = Route(name="r", models=("*",), targets=tuple(targets), retry=self.retry, cooldown=self.cooldown)
        self.ledger = LoggedLedger(self.log, self.fails)
        self.gateway = Gateway(
            routes=(route,),
            aims={("r", each.name): self.aim(each) for each in targets},
            ledger=self.ledger,
            counter=Counter(),
            new_id=self.new_id,
            meter=Metrics(),
        )

    def new_id(self) -> str:
        self.ids += 1
        return f"{self.ids:032x}"

    def aim(self, target: Target) -> Aim:
        keep = CompactionPolicy(protect_last_tokens=100)
        window = Window(tokens=target.window_tokens)
        policy = Policy(model="m", window=window, reserve_tokens=50, margin=0.0, compaction=keep, speaks=tuple(self.speaks))
        body = policy.to_json()
        return Aim(target=target, policy=policy, policy_record=(digest(body), body), upstream=self.upstreams[target.name])

    async def ask(self, sent: bytes | None = None, **call: Any) -> Answer:
        made = Call(body=sent or body(), request_id="q", arrived=time.perf_counter(), **call)
        return await self.gateway.complete(made, self.facts)

    async def all_of(self, sent: bytes | None = None) -> bytes:
        """Ask, read the answer to its end, and wait until all is recorded."""
        try:
            answer = await self.ask(sent)
            if answer.stream is None:
                return answer.body or b""
            return b"".join([chunk async for chunk in answer.stream])
        finally:
            await self.gateway.recorder.drain(5)

    def ends(self) -> list[CallFinished]:
        return [each for each in self.ledger.records if isinstance(each, CallFinished)]


def body(*texts: str, **fields: Any) -> bytes:
    messages = [{"role": "user" if at % 2 == 0 else "assistant", "content": text} for at, text in enumerate(texts or ["hi"])]
    return json.dumps({"model": "m", "messages": messages} | fields).encode()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


LONG = body(*(f"{n} " + "word " * 60 for n in range(9)))  # some 1,000 tokens
ASKED = body(stream=True, stream_options={"include_usage": True})


async def test_the_record_is_appended_before_the_prompt_leaves_and_its_end_after() -> None:
    world = World([[ScriptedReply(REPLY)]])

    assert await world.all_of(body(odd=1.50)) == REPLY
    assert world.log == ["append a/m", "send a/m", "close a/m", "finished a/m completed"]
    assert world.upstreams["a/m"].bodies[0] == body(odd=1.50)
    usage = world.ends()[0].usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, world.ends()[0].usage_estimated) == (7, 2, False)


async def test_without_a_record_nothing_is_sent() -> None:
    world = World([[ScriptedReply(REPLY)], [ScriptedReply(REPLY)]], fails="a/m")

    with pytest.raises(SnapshotUnavailable):
        await world.all_of()
    assert world.log == ["lost a/m"]


async def test_a_fallback_needs_a_record_of_its_own() -> None:
    world = World([[refusal(500)], [ScriptedReply(REPLY)]], fails="b/m")

    with pytest.raises(SnapshotUnavailable):
        await world.all_of()
    assert "send b/m" not in world.log
    assert world.log[-1] == "finished a/m upstream_error"


async def test_a_fallback_is_planned_from_the_draft_for_its_own_window() -> None:
    world = World([[refusal(500)], [ScriptedReply(REPLY)]], windows=[500, 100_000])

    await world.all_of(LONG)

    first, second = (world.upstreams[name].bodies[0] for name in ("a/m", "b/m"))
    assert len(first) < len(LONG)
    assert second == LONG
    composed = [each for each in world.ledger.records if isinstance(each, PromptComposed)]
    assert [(each.attempt, each.target, each.runway["window"]) for each in composed] == [(1, "a/m", 500), (2, "b/m", 100_000)]
    cuts = [each for each in world.ledger.records if isinstance(each, CompactionApplied)]
    assert [(each.scope, each.snapshot_id) for each in cuts] == [("target:a/m", composed[0].id)]
    assert world.facts["x-gateway-compaction"] == "none"
    assert composed[0].prompt_digest == digest(first)


async def test_half_an_event_after_the_finish_reason_is_left_out() -> None:
    world = World([[stream(TEXT, STOP, USAGE[:30])]])

    assert await world.all_of(ASKED) == TEXT + STOP
    assert world.log[-1] == "finished a/m completed"


@pytest.mark.parametrize(
    ("failure", "outcome"), [(Failure.BROKEN, Outcome.UPSTREAM_ERROR), (Failure.TIMEOUT, Outcome.UPSTREAM_TIMEOUT)]
)
async def test_a_stream_broken_after_content_ends_in_an_error_event(failure: Failure, outcome: Outcome) -> None:
    world = World([[stream(TEXT, TEXT[:20], AttemptFailed(failure, "it stalled"))], [stream(TEXT)]])

    told = await world.all_of(ASKED)

    assert told.startswith(TEXT + b'data: {"error"')
    assert json.loads(told.removeprefix(TEXT)[6:])["error"]["code"] == outcome
    assert b"[DONE]" not in told
    assert world.log == ["append a/m", "send a/m", "close a/m", f"finished a/m {outcome}"]
    assert world.ends()[0].usage_estimated


async def test_a_stream_without_a_finish_reason_is_truncated() -> None:
    world = World([[stream(TEXT, TEXT)]])

    told = await world.all_of(ASKED)

    assert json.loads(told.removeprefix(TEXT + TEXT)[6:])["error"]["code"] == "upstream_truncated"
    assert world.log[-1] == "finished a/m upstream_truncated"


async def test_a_missing_end_marker_after_a_finish_reason_is_an_answer() -> None:
    world = World([[stream(TEXT, STOP.rstrip())]])

    assert await world.all_of(ASKED) == TEXT + STOP
    assert world.log[-1] == "finished a/m completed"


async def test_an_error_event_of_the_provider_is_passed_on_and_nothing_added() -> None:
    error = b'data: {"error":{"message":"gone"}}\n\n'
    world = World([[stream(TEXT, error)]])

    assert await world.all_of(ASKED) == TEXT + error
    assert world.log[-1] == "finished a/m upstream_error"


async def test_usage_that_only_we_asked_for_is_hidden() -> None:
    world = World([[stream(TEXT, STOP, USAGE, DONE)]])

    told = await world.all_of(body(stream=True))

    assert told == TEXT.replace(b',"usage":null', b"") + STOP + DONE
    assert b'"include_usage":true' in world.upstreams["a/m"].bodies[0]
    assert world.ends()[0].usage is not None
    assert not world.ends()[0].usage_estimated


async def test_usage_that_the_client_asked_for_is_passed_on() -> None:
    world = World([[stream(TEXT, STOP, USAGE, DONE)]])

    assert await world.all_of(ASKED) == TEXT + STOP + USAGE + DONE
    assert world.upstreams["a/m"].bodies[0] == ASKED


async def test_a_stream_that_is_closed_early_closes_the_upstream_and_is_recorded() -> None:
    world = World([[stream(TEXT, HANG)]])

    answer = await world.ask(ASKED)
    assert answer.stream is not None
    assert await anext(answer.stream) == TEXT
    await answer.stream.aclose()
    await world.gateway.recorder.drain(5)
    assert world.log == ["append a/m", "send a/m", "close a/m", "finished a/m client_closed"]


async def test_a_stream_that_nobody_reads_is_recorded_when_closed() -> None:
    world = World([[stream(TEXT, HANG)]])

    answer = await world.ask(ASKED)
    assert answer.stream is not None
    await answer.stream.aclose()
    await world.gateway.recorder.drain(5)
    assert world.log[-2:] == ["close a/m", "finished a/m client_closed"]


@pytest.mark.parametrize(
    ("script", "closed"), [([HANG], []), ([stream(HANG)], ["close a/m"]), ([ScriptedReply(HANG)], ["close a/m"])]
)
async def test_a_client_that_leaves_before_the_first_byte_is_recorded(script: list[Any], closed: list[str]) -> None:
    world = World([script])
    asking = asyncio.create_task(world.ask(ASKED))
    await asyncio.sleep(0.02)

    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await world.gateway.recorder.drain(5)

    assert world.log == ["append a/m", "send a/m", *closed, "finished a/m client_closed"]


async def test_the_facts_say_what_was_sent() -> None:
    world = World([[ScriptedReply(REPLY)]], windows=[500])

    await world.all_of(LONG)

    composed = next(each for each in world.ledger.records if isinstance(each, PromptComposed))
    told = world.facts
    assert (told["x-gateway-route"], told["x-gateway-target"], told["x-gateway-snapshot-id"]) == ("r", "a/m", composed.id)
    assert "limit=450;window=500;reserve=50" in told["x-gateway-runway"]
    assert told["x-gateway-compaction"].startswith("sliding_window;kept=")
    assert float(told["x-gateway-overhead-ms"]) >= 0


async def test_a_key_that_may_not_use_the_route_sends_nothing() -> None:
    world = World([[]])

    with pytest.raises(RouteNotAllowed):
        await world.ask(allows=lambda route: False)
    assert world.log == []


async def test_the_ends_of_calls_wait_for_a_ledger_that_is_away() -> None:
    world = World([[ScriptedReply(REPLY)]])
    await world.ask()
    world.ledger.unavailable = "away"
    await asyncio.sleep(0.05)
    assert world.log[-1] == "close a/m"

    world.ledger.unavailable = None
    await world.gateway.recorder.drain(5)
    assert world.log[-1] == "finished a/m completed"


async def test_a_reply_is_stored_as_its_record_says() -> None:
    world = World([[stream(TEXT, STOP, DONE)]])
    await world.all_of(ASKED)

    reply = world.ends()[0].reply
    assert reply is not None
    assert json.loads((await world.ledger.bodies([reply]))[reply])["text"] == "Hi"
    assert codec.group(world.ends()[0]) == next(e.id for e in world.ledger.records if isinstance(e, PromptComposed))


@pytest.mark.parametrize(
    ("fields", "header", "session"),
    [
        ({"gateway": {"session": "g"}, "session_id": "s"}, None, "g"),
        ({"gateway": {"session": "g"}}, "h", "h"),
        ({"prompt_cache_key": "p"}, None, "p"),
        ({}, None, ""),
    ],
)
async def test_the_session_is_what_the_client_calls_it(fields: dict[str, Any], header: str | None, session: str) -> None:
    world = World([[ScriptedReply(REPLY)]])

    await world.ask(body(**fields), session=header)
    await world.gateway.recorder.drain(5)

    assert {each.session for each in world.ledger.records} == {session}
    assert b"gateway" not in world.upstreams["a/m"].bodies[0]


async def test_a_clock_that_moves_on_stays_in_its_lineage() -> None:
    """The chain runs over the arranged items: the clock has left them."""
    world = World([[ScriptedReply(REPLY), ScriptedReply(REPLY)]])
    clock = "You help.\nThe current time is 2026-05-15 15:00:0{} EST."
    first = [{"role": "system", "content": clock.format(1)}, {"role": "user", "content": "hi"}]
    more = [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    second = [{"role": "system", "content": clock.format(2)}, *first[1:], *more]
    for messages in (first, second):
        await world.all_of(json.dumps({"model": "m", "messages": messages}).encode())
    lineages = {record.lineage async for record in world.ledger.read() if isinstance(record, PromptComposed)}

    assert len(lineages) == 1
