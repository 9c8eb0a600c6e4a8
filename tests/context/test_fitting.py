"""What goes to a target: never over its limit, calls with their results, a prefix that only grows, the same bytes always."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context import admission, fitting, tokens
from gateway.context.admission import Overrun, Refused
from gateway.context.compaction.plan import Plan
from gateway.context.compaction.pruning import MARKER
from gateway.context.items import Kind, Prompt
from gateway.context.layout import Arranged
from gateway.context.policy import Policy, Strategy, Window
from gateway.dialects.chat import CHAT, parse
from tests.context.talks import (
    MEMO,
    Message,
    arranged,
    assistant,
    calls,
    costs,
    jumbles,
    policy,
    result,
    system,
    talks,
    transcripts,
    true_cost,
    turns,
    user,
)  # fmt: skip

POLICIES = st.builds(
    policy,
    window=st.sampled_from([700, 1_500, 4_000]),
    prune_tool_outputs=st.booleans(),
    protect_first=st.integers(0, 3),
    protect_last_tokens=st.sampled_from([0, 100, 16_000]),
    low_water=st.sampled_from([0.35, 0.5, 0.9]),
    ask_usage=st.booleans(),
)


def planned(made: Arranged, rule: Policy) -> tuple[Plan, Prompt] | Refused:
    price = costs(made)
    fit = fitting.fit(made, price, rule)
    if isinstance(fit, Refused):
        return fit
    assert isinstance(fit, Plan)
    prompt = fitting.finish(made, fit, price, rule, CHAT)
    return prompt if isinstance(prompt, Refused) else (fit, prompt)


def sent(messages: list[Message], rule: Policy, **fields: Any) -> dict[str, Any]:
    found = planned(arranged(messages, **fields), rule)
    assert not isinstance(found, Refused), found.sums()
    body: dict[str, Any] = json.loads(found[1].body)
    return body


def unpaired(messages: list[Message]) -> list[int]:
    """Results whose nearest call is not there, each call answered once; calls count by place, not by name."""
    waiting: list[str] = []
    lost = []
    for at, message in enumerate(messages):
        waiting += [call["id"] for call in message.get("tool_calls", ())]
        if message["role"] == "tool":
            if message["tool_call_id"] in waiting:
                waiting.remove(message["tool_call_id"])
            else:
                lost.append(at)
    return lost


def pairs(messages: list[Message]) -> list[tuple[int, int]]:
    """Each call's place and the place of the result that answers it: the nearest call before it that still waits."""
    waiting: dict[str, list[int]] = {}
    made = []
    for at, message in enumerate(messages):
        for call in message.get("tool_calls", ()):
            waiting.setdefault(call["id"], []).append(at)
        if message["role"] == "tool" and waiting.get(message["tool_call_id"]):
            made.append((waiting[message["tool_call_id"]].pop(), at))
    return made


@given(st.one_of(talks(), jumbles()), POLICIES)
@settings(max_examples=80, deadline=None)
def test_a_call_goes_with_all_of_its_results_and_planning_again_says_the_same(messages: list[Message], rule: Policy) -> None:
    made = arranged(messages)
    found = planned(made, rule)

    assert found == planned(arranged(messages), rule)
    if not isinstance(found, Refused):
        kept = set(found[0].kept)
        assert all((call in kept) == (answer in kept) for call, answer in pairs(messages))


@given(st.integers(1, 3_000), st.integers(0, 2_500), st.integers(1, 600), st.booleans())
@settings(max_examples=80, deadline=None)
def test_a_shrunk_answer_keeps_at_least_one_token(asked: int, text: int, reserve: int, both: bool) -> None:
    rule = replace(policy(1_000, shrink_output=True, reserve_tokens=reserve), window=Window(tokens=1_000, output_limit=700))
    fields: dict[str, Any] = {"max_tokens": asked} | ({"max_completion_tokens": asked + 5} if both else {})
    made = arranged([user("x" * text)], **fields)
    found = planned(made, rule)
    if isinstance(found, Refused):
        return
    body = json.loads(found[1].body)

    for name, value in fields.items():
        assert 1 <= body[name] <= min(value, 700)
    assert found[0].after + max(body[name] for name in fields) <= 1_000


@given(talks(), POLICIES, st.booleans())
@settings(max_examples=100, deadline=None)
def test_what_is_sent_fits_whole_and_in_order(messages: list[Message], rule: Policy, stream: bool) -> None:
    made = arranged(messages, stream=stream)
    found = planned(made, rule)
    if isinstance(found, Refused):
        assert found.required_tokens >= (found.runway.limit_tokens or 0)
        return
    plan, prompt = found
    limit = admission.runway(rule, made.request).limit_tokens or 0
    body = json.loads(prompt.body)["messages"]
    users = [at for at, item in enumerate(made.request.items) if item.kind is Kind.USER]

    assert true_cost(prompt.request.items, prompt.request) < limit
    assert plan.after < limit
    assert list(plan.kept) == sorted(set(plan.kept))
    assert len(messages) - 1 in plan.kept
    assert users[-1] in plan.kept
    assert set(range(made.head)) <= set(plan.kept)
    assert plan.dropped == len(messages) - len(plan.kept)
    assert unpaired(body) == []
    if plan.dropped:
        assert body[made.head]["role"] == "user"


@given(jumbles(), st.sampled_from([450, 800]))
@settings(max_examples=80, deadline=None)
def test_no_call_parts_from_its_result_however_odd_the_history(messages: list[Message], window: int) -> None:
    made = arranged(messages)
    found = planned(made, policy(window))
    if isinstance(found, Refused):
        return
    lost = {messages[at]["tool_call_id"] for at in unpaired(messages)}
    body = json.loads(found[1].body)["messages"]

    assert {body[at]["tool_call_id"] for at in unpaired(body)} <= lost
    assert true_cost(found[1].request.items, found[1].request) < window - 200


@given(talks(max_turns=12), POLICIES)
@settings(max_examples=40, deadline=None)
def test_the_prefix_only_grows_until_the_boundary_moves(messages: list[Message], rule: Policy) -> None:
    before: tuple[Plan, Prompt] | None = None
    for turn in [*turns(messages), messages]:
        if turn[-1]["role"] == "system":
            continue
        now = planned(arranged(turn), rule)
        if isinstance(now, Refused):
            before = None
            continue
        if before is not None:
            state = [(each.boundary, len(each.pruned) and each.pruned[-1], each.dropped) for each in (before[0], now[0])]
            assert now[0].boundary >= before[0].boundary
            if state[0] == state[1]:
                assert now[1].request.items[: len(before[1].request.items)] == before[1].request.items
        before = now


@given(talks(), POLICIES)
@settings(max_examples=40, deadline=None)
def test_compacting_what_was_compacted_changes_nothing(messages: list[Message], rule: Policy) -> None:
    rule = replace(rule, ask_usage=False)
    first = planned(arranged(messages), rule)
    if isinstance(first, Refused):
        return
    again = planned(arranged(json.loads(first[1].body)["messages"]), rule)

    assert not isinstance(again, Refused)
    assert json.loads(first[1].body) == json.loads(again[1].body)


@given(st.integers(1, 600), st.integers(1, 600))
@settings(max_examples=30, deadline=None)
def test_a_jittering_output_limit_moves_no_boundary(one: int, other: int) -> None:
    talk = [system(), *(m for n in range(12) for m in (user(f"{n}" + "u" * 600), assistant("a" * 300))), user("and?")]
    rule = policy(3_000, reserve_tokens=600)
    limits = [sent(talk, rule, max_tokens=each)["messages"] for each in (one, other)]

    assert limits[0] == limits[1]


def test_a_larger_answer_than_the_route_reserves_cuts_deeper() -> None:
    talk = [system(), *(m for n in range(12) for m in (user(f"{n}" + "u" * 600), assistant("a" * 300))), user("and?")]
    rule = policy(3_000)
    made = arranged(talk, max_tokens=2_500)
    found = planned(made, rule)

    assert not isinstance(found, Refused)
    assert true_cost(found[1].request.items, found[1].request) < 500


def test_what_cannot_fit_is_refused_with_its_sums() -> None:
    found = planned(arranged([user("x" * 40_000)]), policy(2_000))

    assert isinstance(found, Refused)
    assert str(found.required_tokens) in found.sums()
    assert "1800" in found.sums()


def test_off_refuses_and_never_cuts() -> None:
    talk = [user("x" * 4_000), assistant(), user("x" * 4_000)]

    assert isinstance(planned(arranged(talk), policy(2_000, strategy=Strategy.OFF)), Refused)
    assert talk == sent(talk, policy(9_000, strategy=Strategy.OFF))["messages"]


def test_equal_is_over() -> None:
    made = arranged([user("hello")])
    total = costs(made).total
    off = {"strategy": Strategy.OFF, "reserve_tokens": 200}

    assert isinstance(planned(made, policy(total + 200, **off)), Refused)
    assert not isinstance(planned(made, policy(total + 201, **off)), Refused)


@pytest.mark.parametrize(("factor", "verdict"), [(1.4, Overrun), (1.7, Plan)])
def test_a_guess_is_believed_only_under_two_thirds(factor: float, verdict: type) -> None:
    made = arranged([user("x" * 9_000)])
    guess = tokens.by_bytes(made, CHAT)

    assert isinstance(fitting.fit(made, guess, policy(int(guess.total * factor) + 200)), verdict)


def test_nothing_to_change_sends_the_clients_bytes() -> None:
    body = b'{ "messages": [ {"role":"user" , "content":"h\\u00e9"} ],\n "x": 1.50e1, "model":"m" }\n'
    made = arranged([])
    made = replace(made, request=parse(body, MEMO))
    found = planned(made, policy())

    assert not isinstance(found, Refused)
    assert body == found[1].body
    assert found[1].request is made.request


def test_old_tool_outputs_go_first_and_keep_their_ids() -> None:
    talk = [system(), user("go")]
    for n in range(8):
        talk += [calls(f"c{n}"), result(f"c{n}", f"{n} " + "r" * 900)]
    body = sent(talk, policy(1_800, protect_last_tokens=300))["messages"]
    marked = [message for message in body if message["content"] == MARKER]

    assert len(talk) == len(body)
    assert [f"c{n}" for n in range(len(marked))] == [message["tool_call_id"] for message in marked]
    assert talk[-1] == body[-1]


@pytest.mark.parametrize("window", [8_000, 4_000])
def test_recorded_sessions_fit_and_keep_their_prefix(window: int) -> None:
    """Rarely cut: fewer than one turn in five rewrites the prefix once the window is small."""
    rule, cuts, played = policy(window, reserve_tokens=500, margin=0.02), 0, 0
    for session in transcripts():
        before: list[Any] = []
        for turn in turns(session):
            found = planned(arranged(turn), rule)
            assert not isinstance(found, Refused), found.sums()
            prompt = found[1]
            assert true_cost(prompt.request.items, prompt.request) < window * 0.98 - 500
            items = list(prompt.request.items[: len(prompt.request.items) - prompt.tail])
            cuts += items[: len(before)] != before
            played += 1
            before = items

    assert cuts * 5 < played


@pytest.mark.parametrize(("values", "fields", "expected"), [
    ({"model": "n"}, {}, {"model": "n"}),
    ({"drop_fields": ("user",)}, {"user": "u", "seed": 1}, {"seed": 1}),
    ({"rename_fields": (("max_tokens", "max_completion_tokens"),)}, {"max_tokens": 5}, {"max_completion_tokens": 5}),
    ({"ask_usage": True}, {"stream": True}, {"stream_options": {"include_usage": True}}),
    ({"ask_usage": True}, {"stream": True, "stream_options": None}, {"stream_options": {"include_usage": True}}),
    ({"ask_usage": True}, {"stream": True, "stream_options": {"include_usage": False, "x": 1}},
     {"stream_options": {"include_usage": True, "x": 1}}),
    ({"ask_usage": True}, {"stream": False}, {}),
    ({"ask_usage": True, "drop_fields": ("stream_options",)}, {"stream": True}, {}),
])  # fmt: skip
def test_a_target_gets_its_own_spelling(values: dict[str, Any], fields: dict[str, Any], expected: dict[str, Any]) -> None:
    body = sent([user("hello")], policy(2_000, **values), **fields)
    kept = {name for name in fields if name not in values.get("drop_fields", ()) and name != "max_tokens"}

    assert {"model": "m"} | {name: fields[name] for name in kept} | expected | {"messages": [user("hello")]} == body


def test_a_shrunk_answer_fits_beside_its_prompt() -> None:
    talk = [user("x" * 5_000)]
    rule = replace(policy(2_000, shrink_output=True), window=Window(tokens=2_000, output_limit=800))
    made = arranged(talk, max_tokens=1_900)
    found = planned(made, rule)

    assert not isinstance(found, Refused)
    asked = json.loads(found[1].body)["max_tokens"]
    assert 200 <= asked < 800
    assert true_cost(found[1].request.items, found[1].request) + asked <= 2_000


def test_developer_turns_go_as_system_where_the_target_knows_no_other() -> None:
    talk = [{"role": "developer", "content": "Be brief."}, user()]

    assert [m["role"] for m in sent(talk, policy(developer_role=False))["messages"]] == ["system", "user"]
    assert [m["role"] for m in sent(talk, policy())["messages"]] == ["developer", "user"]


def test_notes_stand_last_and_are_no_part_of_the_prefix() -> None:
    talk = [system("Help.\nCurrent time: 2026-01-01T10:00:01\nBe brief."), user("x" * 30)]
    found = planned(arranged(talk), policy())

    assert not isinstance(found, Refused)
    prompt = found[1]
    assert prompt.tail == 1
    assert "10:00:01" in json.loads(prompt.body)["messages"][-1]["content"]
    assert prompt.segments.moved > 0
    assert prompt.segments.stable + prompt.segments.semi + prompt.segments.dynamic == found[0].after


def test_each_process_makes_the_same_bytes() -> None:
    code = (
        "import hashlib\nfrom tests.context.talks import SAMPLE, arranged, policy, turns\n"
        "from tests.context.test_fitting import planned\n"
        "made = [planned(arranged(t), policy(4000, reserve_tokens=500)) for t in list(turns(SAMPLE))[::7]]\n"
        "print(hashlib.sha256(b''.join(p[1].body for p in made)).hexdigest())\n"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "1")
    }

    assert len(found) == 1
