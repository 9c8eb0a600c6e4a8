import contextlib
import hashlib
import io
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from gateway import settings
from gateway.errors import ConfigurationError
from gateway.litellm_import import Imported, convert
from gateway.litellm_import.tables import Fate
from tests.litellm_import.public import SHAPES

PLACES = {"AZURE_API_BASE": "https://azure.example", "VLLM_BASE": "http://vllm:8000/v1", "UPSTREAM": "http://up:4000/v1",
          "REDIS_URL": "redis://redis:6379/0", "REDIS_HOST": "redis"}  # fmt: skip


def environment(made: Imported) -> dict[str, str]:
    return {name: PLACES.get(name, "x") for name in made.variables}


def one(text: str, **env: str) -> tuple[dict[str, object], dict[str, str]]:
    """Return our settings as plain values and the fate of each key by its path."""
    made = convert(text, env)
    return YAML(typ="safe").load(made.yaml), {each.path: str(each.fate) for each in made.findings}


@contextlib.contextmanager
def noted(wrong: list[str]) -> Iterator[None]:
    """Note what is wrong with settings beside what a version does not do yet."""
    try:
        yield
    except settings.BadFile as error:
        wrong += [str(each) for each in error.problems if not each.message.startswith("not in this version")]


@pytest.mark.parametrize("name", SHAPES)
def test_public_configurations_give_settings_that_load(name: str) -> None:
    text, routes = SHAPES[name]
    made = convert(text, {})
    wrong: list[str] = []
    with noted(wrong):
        settings.load(made.yaml, source="imported", env=environment(made))

    assert wrong == []
    assert [each["name"] for each in YAML(typ="safe").load(made.yaml)["routes"]] == list(routes)


@pytest.mark.parametrize("name", SHAPES)
def test_no_secret_of_the_file_comes_out(name: str) -> None:
    text, _ = SHAPES[name]

    assert re.findall(r"SECRET-LITERAL-\d", str(convert(text, {}))) == []


@pytest.mark.parametrize("name", SHAPES)
def test_every_key_has_one_fate(name: str) -> None:
    text, _ = SHAPES[name]
    paths = [each.path for each in convert(text, {}).findings]

    assert len(set(paths)) == len(paths)
    assert len(paths) == count(YAML(typ="safe").load(text))


def count(value: object) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return sum(map(count, inner)) if inner else 1


keys = st.sampled_from(
    ["model_name", "litellm_params", "model", "api_base", "rpm", "fallbacks", "model_info", "callbacks", "order", "mode", "timeout"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(values, max_size=2), st.dictionaries(keys, values), st.dictionaries(keys, values), values)
def test_odd_shapes_are_refused_or_told_and_never_break(
    entries: list[object], router: dict[str, object], general: dict[str, object], other: object
) -> None:
    good = {"model_name": "m", "litellm_params": {"model": "openai/m"}}
    found = {
        "model_list": [good, *entries],
        "router_settings": router,
        "litellm_settings": router,
        "general_settings": general,
        "x": other,
    }
    out = io.StringIO()
    YAML().dump(found, out)
    made = convert(out.getvalue(), {})

    assert all(each.fate in Fate and each.said for each in made.findings)
    assert YAML(typ="safe").load(made.yaml)["routes"][0]["name"] == "m"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "line "),
        ("model_list: 3", "no model_list"),
        ("- 1", "no model_list"),
        ("model_list: []", "no model"),
        ("model_list: [{model_name: m, litellm_params: {model: nobody}}]", "no model of this file can be served: which provider"),
        ("model_list:\n\t- a", "line 2"),
    ],
)
def test_what_is_no_configuration_is_said(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        convert(text, {})

    assert said in error.value.message


def test_fallbacks_become_targets_once_whatever_circles_they_go_in() -> None:
    made, said = one(SHAPES["every fallback at once (reliability page)"][0])
    targets = [[target["provider"] for target in route["targets"]] for route in made["routes"]]  # type: ignore[attr-defined]

    assert targets == [["groq", "xai", "openrouter"], ["xai", "groq", "openrouter"], ["openrouter"]]
    assert said["litellm_settings.content_policy_fallbacks[0].a[0]"] == "refused"
    assert said["litellm_settings.fallbacks[1].b[0]"] == "kept"


def test_aliases_of_any_form_become_names_of_the_route() -> None:
    made, said = one(SHAPES["aliases as text, hidden and as a list (three repositories)"][0])

    assert made["routes"][0]["models"] == ["qwen", "gpt-4", "tier", "agent", "4.1"]  # type: ignore[index]
    assert said["router_settings.model_group_alias.several[0]"] == "refused"


def test_a_master_key_goes_on_working_when_its_value_is_at_hand() -> None:
    text = SHAPES["one model from the environment, stored models (terraform module)"][0]
    without, _ = one(text)
    given_, _ = one(text, MASTER="sk-master")

    assert without["auth"] == {"admin_key": "${MASTER}"}
    assert given_["auth"] == {
        "admin_key": "${MASTER}",
        "keys": [{"name": "litellm-master", "sha256": hashlib.sha256(b"sk-master").hexdigest()}],
    }
