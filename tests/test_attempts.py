import time
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from gateway.attempts import Attempt, Attempts, Delivered, answer_of, finished
from gateway.cache.usage import Usage
from gateway.context.admission import Refused, Runway
from gateway.dialects.chat import CHAT
from gateway.errors import ContextLengthExceeded, GatewayError, UpstreamError, UpstreamRefused, UpstreamTimeout
from gateway.ledger.records import Outcome
from gateway.planning import Planned, Snapshot, plan_now
from gateway.providers.base import AttemptFailed, Failure
from gateway.providers.tokenizers import Counter
from gateway.routing import Cooldown, Prices, Retry
from tests.context import talks
from tests.test_pipeline import ASKED, BROKEN, DONE, OVERFLOW, REPLY, STOP, TEXT, ScriptedReply, World, body, refusal, stream


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


RULE = Retry(attempts=2, max_wait_s=1, total_attempts=3)


def gave(failure: Failure, status: int | None = None, said: bytes = b"", *headers: tuple[str, str]) -> Delivered:
    reply = None if status is None else ScriptedReply(said, status=status, headers=headers)
    return Delivered(failure, reply, said, "no answer")


@pytest.mark.anyio
async def test_the_newest_wait_is_the_one_that_counts() -> None:
    attempts = Attempts(RULE)

    attempts.begin("a")
    attempts.failed("a", gave(Failure.RATE_LIMIT, 429), 60)
    assert not await attempts.again("a")  # longer than the route would wait
    attempts.failed("a", gave(Failure.RATE_LIMIT, 429), 0.01)
    began = time.perf_counter()
    assert await attempts.again("a")
    assert 0.005 < time.perf_counter() - began < 0.4
    assert attempts.waited == 0.01


@pytest.mark.anyio
async def test_tries_are_bounded_by_target_and_by_request() -> None:
    attempts = Attempts(RULE)

    assert [attempts.begin("a"), attempts.begin("a")] == [1, 2]
    assert (attempts.left("a"), attempts.left("b")) == (False, True)
    attempts.failed("a", gave(Failure.SERVER, 500), 0)
    assert not await attempts.again("a")
    assert attempts.begin("b") == 3
    assert not attempts.left("b")


@pytest.mark.anyio
async def test_what_another_try_cannot_mend_is_not_tried_again() -> None:
    for failure in (Failure.OVERFLOW, Failure.AUTH, Failure.REQUEST, Failure.MODEL, Failure.TRUNCATED):
        attempts = Attempts(RULE)
        attempts.begin("a")
        attempts.failed("a", gave(failure, 400), 0)
        assert not await attempts.again("a")
        assert attempts.final == (failure is Failure.REQUEST)


@pytest.mark.parametrize(
    ("last", "kind"),
    [
        (gave(Failure.OVERFLOW, 400), ContextLengthExceeded),
        (gave(Failure.TOO_LARGE, 413), ContextLengthExceeded),
        (gave(Failure.RATE_LIMIT, 429, b"{}"), UpstreamRefused),
        (gave(Failure.TIMEOUT), UpstreamTimeout),
        (gave(Failure.CONNECT), UpstreamError),
        (gave(Failure.SERVER, 500), UpstreamError),
        (gave(Failure.TRUNCATED, 200), UpstreamError),
    ],
)
def test_the_last_answer_is_what_the_request_ends_in(last: Delivered, kind: type[GatewayError]) -> None:
    attempts = Attempts(RULE)
    attempts.begin("a")
    attempts.failed("a", gave(Failure.SERVER, 503), None)
    attempts.begin("b")
    attempts.failed("b", last, None)

    assert type(attempts.error()) is kind


def test_the_newest_answers_headers_travel_on() -> None:
    attempts = Attempts(RULE)
    attempts.failed("a", gave(Failure.RATE_LIMIT, 429, b"", ("retry-after", "60")), 60)
    attempts.failed("b", gave(Failure.RATE_LIMIT, 429, b"", ("retry-after", "2")), 2)

    error = attempts.error()

    assert isinstance(error, UpstreamError)
    assert (error.target, error.headers) == ("b", {"retry-after": "2"})


def test_causes_never_hold_the_providers_text() -> None:
    attempts = Attempts(RULE)
    attempts.refused("a", Refused(required_tokens=9, runway=Runway(limit_tokens=3, window_tokens=4, reserve_tokens=1)))
    attempts.failed("b", gave(Failure.SERVER, 500, b"the prompt was: secret"), None)

    message = attempts.error().message

    assert "secret" not in message
    assert "a: the required content does not fit: 9 estimated tokens" in message
    assert "b: server: answered 500" in message


def attempt(*kept: bytes, status: int | None = 200, prices: Prices | None = None, **fields: Any) -> Attempt:
    arranged = talks.arranged([talks.user()], **fields)
    planned = plan_now(arranged, talks.policy(), Counter())
    assert isinstance(planned, Planned)
    names = {name: name for name in ("id", "route", "session", "lineage", "tenant", "key", "request_id", "target")}
    snapshot = Snapshot(**names, at=datetime.now(UTC), attempt=1, observe=False, expected=5)
    made = Attempt(snapshot=snapshot, prompt=planned.prompt, estimate=40, prices=prices, strip_usage=False, prefix=(b"", []))
    made.status = status
    for chunk in kept:
        made.keep(chunk)
    return made


def test_the_end_of_an_attempt_names_its_snapshot_and_holds_its_reply() -> None:
    made = attempt(REPLY, prices=Prices(input=1e6, output=1e6))

    entry, record = finished(made, answer_of(REPLY, False, CHAT), Outcome.COMPLETED, "x", datetime.now(UTC))

    assert (record.id, record.snapshot_id, record.target, record.cache_expected_tokens) == ("x", "id", "target", 5)
    assert (record.cost_usd, record.usage_estimated, entry.records) == (9, False, (record,))
    assert record.reply is not None
    assert orjson.loads(entry.bodies[record.reply])["finish_reason"] == "stop"
    assert entry.roots == (record.reply,)


def test_usage_that_was_not_reported_is_estimated_and_costs_nothing_known() -> None:
    made = attempt(TEXT + STOP, prices=Prices(input=1, output=1))

    _, record = finished(made, answer_of(TEXT + STOP, True, CHAT), Outcome.COMPLETED, "x", datetime.now(UTC))

    assert record.usage == Usage(input_tokens=40, output_tokens=1)
    assert (record.usage_estimated, record.cost_usd, record.cache_reported_tokens) == (True, None, None)


@pytest.mark.parametrize("made", [attempt(status=None), attempt(status=500)])
def test_an_attempt_without_an_answer_has_no_usage(made: Attempt) -> None:
    entry, record = finished(made, CHAT.read_reply(b""), Outcome.UPSTREAM_ERROR, "x", datetime.now(UTC))

    assert (record.usage, record.reply, dict(entry.bodies)) == (None, None, {})


def test_a_plain_answer_to_a_request_for_a_stream_is_read() -> None:
    assert answer_of(b" " + REPLY, True, CHAT).text == "ok"


@pytest.mark.anyio
async def test_an_overflow_at_the_provider_goes_on_to_the_next_target() -> None:
    world = World([[refusal(400, OVERFLOW)], [ScriptedReply(REPLY)]], retry=Retry(attempts=2))

    assert await world.all_of() == REPLY
    assert sorted(world.log) == sorted(
        [
            "append a/m",
            "send a/m",
            "append b/m",
            "send b/m",
            "close a/m",
            "close b/m",
            "finished a/m overflow",
            "finished b/m completed",
        ]
    )
    assert world.log.index("append b/m") < world.log.index("send b/m")
    assert not world.gateway.cooldowns.cooling(time.monotonic())


@pytest.mark.anyio
async def test_an_overflow_everywhere_is_context_length_exceeded() -> None:
    world = World([[refusal(400, OVERFLOW)], [refusal(413)]])

    with pytest.raises(ContextLengthExceeded, match=r"a/m: .*b/m: "):
        await world.all_of()
    assert [each.target for each in world.ends()] == ["a/m", "b/m"]


@pytest.mark.anyio
async def test_a_client_error_of_another_kind_is_final_and_keeps_the_providers_body() -> None:
    said = b'{"error":{"message":"bad temperature","code":"invalid_value"}}'
    world = World([[refusal(400, said)], [ScriptedReply(REPLY)]], retry=Retry(attempts=3))

    with pytest.raises(UpstreamRefused) as caught:
        await world.all_of()
    assert (caught.value.upstream_status, caught.value.body, caught.value.target) == (400, said, "a/m")
    assert world.log == ["append a/m", "send a/m", "close a/m", "finished a/m upstream_error"]


@pytest.mark.anyio
async def test_the_total_of_attempts_is_bounded() -> None:
    failing = [refusal(500, b"{}", ("retry-after", "0")) for _ in range(9)]
    world = World([failing[:3], failing[3:6], failing[6:]], retry=Retry(attempts=2, total_attempts=3))

    with pytest.raises(UpstreamError) as caught:
        await world.all_of()
    assert [each for each in world.log if each.startswith("send")] == ["send a/m", "send a/m", "send b/m"]
    assert caught.value.message.count("answered 500") == 3
    assert len(world.ends()) == 3


@pytest.mark.anyio
async def test_each_try_of_a_target_has_a_record_of_its_own() -> None:
    world = World([[AttemptFailed(Failure.BROKEN, "no"), ScriptedReply(REPLY)]], retry=Retry(attempts=2, max_wait_s=1))

    assert await world.all_of() == REPLY
    assert [each for each in world.log if not each.startswith("finished")] == [
        "append a/m",
        "send a/m",
        "append a/m",
        "send a/m",
        "close a/m",
    ]
    assert [each.outcome for each in world.ends()] == [Outcome.UPSTREAM_ERROR, Outcome.COMPLETED]
    assert len({each.snapshot_id for each in world.ends()}) == 2


@pytest.mark.anyio
async def test_a_target_that_keeps_failing_is_tried_last_until_it_answers() -> None:
    world = World(
        [[refusal(500), ScriptedReply(REPLY)], [ScriptedReply(REPLY), refusal(500), ScriptedReply(REPLY)]],
        cooldown=Cooldown(failures=1, seconds=60),
    )

    for _ in range(2):
        await world.all_of()
    sent = [each for each in world.log if each.startswith("send")]
    assert sent == ["send a/m", "send b/m", "send b/m", "send a/m"]  # the second time b goes first, fails, and a answers


@pytest.mark.anyio
async def test_a_prompt_that_fits_nowhere_is_refused_with_its_sums_and_recorded() -> None:
    world = World([[], []], windows=[60, 70])

    with pytest.raises(ContextLengthExceeded, match=r"a/m: .*fewer than 10 fit .window 60, 50 reserved.*b/m: .*window 70"):
        await world.all_of(body("word " * 500))
    assert world.log == ["finished refused"]
    assert (world.ends()[0].target, world.ends()[0].request_id) == ("", "q")
    assert "window 70" in (world.ends()[0].reason or "")


@pytest.mark.anyio
async def test_a_small_target_is_passed_over_without_a_call() -> None:
    world = World([[], [ScriptedReply(REPLY)]], windows=[60, None])

    assert await world.all_of(body("word " * 500)) == REPLY
    assert world.log[:2] == ["append b/m", "send b/m"]
    assert world.facts["x-gateway-attempts"] == "1"


@pytest.mark.anyio
async def test_an_error_as_first_event_goes_on_to_the_next_target() -> None:
    error = b'data: {"error":{"message":"overloaded","type":"overloaded_error"}}\n\n'
    world = World([[stream(b": wa", b"it\n\n" + error, DONE)], [stream(TEXT + STOP, DONE)]])

    assert await world.all_of(ASKED) == TEXT + STOP + DONE
    assert {each.target: each.outcome for each in world.ends()} == {"a/m": Outcome.UPSTREAM_ERROR, "b/m": Outcome.COMPLETED}


@pytest.mark.anyio
async def test_an_error_in_a_plain_200_goes_on_to_the_next_target() -> None:
    world = World([[ScriptedReply(b'{"error":{"message":"x","code":502}}')], [ScriptedReply(REPLY)]])

    assert await world.all_of() == REPLY


@pytest.mark.anyio
async def test_a_stream_broken_before_its_first_event_goes_on_to_the_next_target() -> None:
    world = World([[stream(TEXT[:9], BROKEN)], [stream(TEXT, STOP, DONE)]])

    assert await world.all_of(ASKED) == TEXT + STOP + DONE


@pytest.mark.anyio
@pytest.mark.parametrize("chunks", [(), (b'data: {"error":{"message":"busy"}}',)])
async def test_a_stream_that_holds_no_answer_goes_on_to_the_next_target(chunks: tuple[bytes, ...]) -> None:
    world = World([[stream(*chunks)], [stream(TEXT, STOP, DONE)]])

    assert await world.all_of(ASKED) == TEXT + STOP + DONE


@pytest.mark.anyio
@pytest.mark.parametrize("garbage", [b"", b"<html>busy</html>", b"[1]", b"\xff\xfe"])
async def test_a_good_status_without_an_answer_goes_to_the_next_target(garbage: bytes) -> None:
    world = World([[ScriptedReply(garbage)], [ScriptedReply(REPLY)]])

    assert await world.all_of() == REPLY
    assert world.log.count("send a/m") == world.log.count("send b/m") == 1


@pytest.mark.anyio
async def test_comments_before_the_first_event_do_not_use_up_the_fallback() -> None:
    failing = stream(b": ping\n\n", b'data: {"error":{"message":"busy","code":503}}\n\n')
    world = World([[failing], [stream(b": ping\n\n", TEXT, STOP, DONE)]])

    assert await world.all_of(body(stream=True)) == b": ping\n\n" + TEXT.replace(b',"usage":null', b"") + STOP + DONE
