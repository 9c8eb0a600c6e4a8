"""What each kind of cache finds, over texts of one token a character and a clock that is a number."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.providers.simulated_cache import Block, Hit, MarkCache, NoCache, PrefixCache, common_length, render, scope_of


def blocks(*texts: str, marks: tuple[int, ...] = ()) -> list[Block]:
    return [Block(text=text, tokens=len(text), marked=at in marks) for at, text in enumerate(texts)]


def automatic(ttl_s: float = 300.0) -> PrefixCache:
    return PrefixCache(step=128, minimum=1_024, ttl_s=ttl_s, count=len)


def test_a_first_prompt_finds_nothing_and_the_same_prompt_all_whole_steps() -> None:
    cache, prompt = automatic(), blocks("s" * 1_000, "u" * 300)

    assert Hit() == cache.use("", prompt, 0.0)
    assert Hit(cached=1_280) == cache.use("", prompt, 1.0)


def test_a_longer_prompt_finds_the_one_before() -> None:
    cache = automatic()
    cache.use("", blocks("s" * 1_100), 0.0)

    assert Hit(cached=1_024) == cache.use("", blocks("s" * 1_100, "more"), 1.0)


def test_a_prefix_below_the_minimum_is_not_found() -> None:
    cache = automatic()
    cache.use("", blocks("s" * 1_023), 0.0)

    assert Hit() == cache.use("", blocks("s" * 1_023, "more"), 1.0)


def test_a_changed_character_loses_all_behind_it() -> None:
    cache = automatic()
    cache.use("", blocks("a" * 2_000 + "1" + "b" * 2_000), 0.0)

    assert Hit(cached=1_920) == cache.use("", blocks("a" * 2_000 + "2" + "b" * 2_000), 1.0)


def test_the_nearest_of_many_prompts_is_found() -> None:
    cache = automatic()
    for at in range(20):
        cache.use("", blocks("a" * (1_100 + at * 128) + "x" * 400), 0.0)

    assert Hit(cached=2_176) == cache.use("", blocks("a" * 2_200 + "y" * 500), 1.0)


def test_an_unused_prefix_expires_and_use_refreshes_it() -> None:
    cache, prompt = automatic(ttl_s=10), blocks("s" * 1_024)
    cache.use("", prompt, 0.0)

    assert Hit(cached=1_024) == cache.use("", prompt, 9.0)
    assert Hit(cached=1_024) == cache.use("", prompt, 18.0)
    assert Hit() == cache.use("", prompt, 28.0)


def test_an_expired_neighbour_is_not_found_in_part() -> None:
    cache = automatic(ttl_s=10)
    cache.use("", blocks("s" * 2_000), 0.0)

    assert Hit() == cache.use("", blocks("s" * 1_999 + "t"), 11.0)


def test_scopes_do_not_share() -> None:
    cache, prompt = automatic(), blocks("s" * 2_000)
    cache.use("one", prompt, 0.0)

    assert Hit() == cache.use("two", prompt, 1.0)


def test_blocks_are_found_whole() -> None:
    cache = PrefixCache(step=64, minimum=64, ttl_s=300, count=len)
    cache.use("", blocks("s" * 200), 0.0)

    assert Hit(cached=128) == cache.use("", blocks("s" * 150 + "t" * 50), 1.0)
    assert Hit() == cache.use("", blocks("s" * 63 + "t"), 1.0)


def test_marks_write_and_read_only_where_they_stand() -> None:
    cache = MarkCache(minimum=100, ttl_s=300)

    assert Hit(written=200) == cache.use("", blocks("s" * 200, "u" * 50, marks=(0,)), 0.0)
    assert Hit(cached=200, written=70) == cache.use("", blocks("s" * 200, "v" * 50, "w" * 20, marks=(2,)), 1.0)
    assert Hit() == cache.use("", blocks("s" * 200, "u" * 50), 1.0)


def test_a_mark_on_a_short_prefix_is_silently_ignored() -> None:
    cache = MarkCache(minimum=100, ttl_s=300)

    assert Hit() == cache.use("", blocks("s" * 99, marks=(0,)), 0.0)
    assert Hit() == cache.use("", blocks("s" * 99, marks=(0,)), 1.0)


def test_a_mark_looks_back_twenty_positions_and_no_further() -> None:
    for turns, found in ((20, 200), (21, 0)):
        cache = MarkCache(minimum=1, ttl_s=300)
        cache.use("", blocks("s" * 200, marks=(0,)), 0.0)
        hit = cache.use("", blocks("s" * 200, *(str(at) for at in range(turns)), marks=(turns,)), 1.0)

        assert found == hit.cached


def test_a_run_of_results_is_one_position() -> None:
    cache = MarkCache(minimum=1, ttl_s=300)
    cache.use("", blocks("s" * 200, marks=(0,)), 0.0)
    run = [Block(text=str(at), tokens=1, joined=at > 0) for at in range(30)]

    assert cache.use("", [*blocks("s" * 200), *run, Block(text="end", tokens=3, marked=True)], 1.0).cached == 200


def test_marked_prefixes_expire() -> None:
    cache, prompt = MarkCache(minimum=1, ttl_s=10), blocks("s" * 200, marks=(0,))
    cache.use("", prompt, 0.0)

    assert Hit(cached=200) == cache.use("", prompt, 9.0)
    assert Hit(written=200) == cache.use("", prompt, 20.0)


def test_no_cache_finds_nothing() -> None:
    assert Hit() == NoCache().use("", blocks("s" * 5_000), 0.0)


@settings(max_examples=50, deadline=None)
@given(st.text("ab", max_size=40), st.text("ab", max_size=40))
def test_the_common_length_is_the_longest_shared_start(one: str, other: str) -> None:
    length = common_length(one, other)

    assert one[:length] == other[:length]
    assert length == min(len(one), len(other)) or one[length] != other[length]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=4), min_size=1, max_size=6))
def test_a_prefix_cache_finds_the_longest_prefix_of_all_before(prompts: list[list[str]]) -> None:
    """A block border ends a text, so that the plain model compares blocks with their borders."""
    cache, before = PrefixCache(step=1, minimum=1, ttl_s=300, count=len), list[str]()
    for at, texts in enumerate(prompts):
        whole = "\n".join(texts) + "\n"
        best = max((whole[: common_length(whole, each)].replace("\n", "") for each in before), key=len, default="")
        before.append(whole)

        assert len(best) == cache.use("", blocks(*texts), float(at)).cached


def texts(*messages: dict[str, Any], **fields: Any) -> list[str]:
    return [block.text for block in render({"messages": messages, **fields}, len)]


def test_tools_stand_before_messages_and_marks_are_no_text() -> None:
    tool = {"type": "function", "function": {"name": "look"}}
    plain = texts({"role": "user", "content": [{"type": "text", "text": "x"}]}, tools=[tool])
    mark = {"cache_control": {"type": "ephemeral"}}

    assert "look" in plain[0]
    assert plain == texts({"role": "user", "content": [{"type": "text", "text": "x", **mark}]}, tools=[{**tool, **mark}])


def test_a_string_and_one_text_part_read_the_same() -> None:
    assert texts({"role": "user", "content": "x"}) == texts({"role": "user", "content": [{"type": "text", "text": "x"}]})


def test_a_call_costs_its_arguments_and_an_image_its_flat_price() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"q": "where is it"}'}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 90_000}}

    assert '{"q": "where is it"}' in texts({"role": "assistant", "content": None, "tool_calls": [call]})[0]
    assert 1_200 > render({"messages": [{"role": "user", "content": [image]}]}, len)[0].tokens > 1_100


def test_a_schema_parts_caches() -> None:
    assert scope_of({}) != scope_of({"response_format": {"type": "json_object"}})
    assert scope_of({"tool_choice": "none"}) == scope_of({})
