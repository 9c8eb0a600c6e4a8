"""What a YAML text says, and where; what of YAML is refused."""

import pytest

from gateway.yamlfile import BadFile, Bare, Document, read


def document(text: str, **env: str) -> Document:
    return read(text, source="c.yaml", env=env)


def told(text: str, **env: str) -> list[str]:
    try:
        return [str(each) for each in document(text, **env).problems]
    except BadFile as error:
        return [str(each) for each in error.problems]


def test_scalars_have_the_types_of_yaml_1_2() -> None:
    read = document("{a: 1, b: 0x1F, c: 0o17, d: 1_000, e: 1.5, f: 1e3, g: true, h: x, i: '1', j: -.inf, k: 007}").root

    expected = {
        "a": 1,
        "b": 31,
        "c": 15,
        "d": 1000,
        "e": 1.5,
        "f": 1000.0,
        "g": True,
        "h": "x",
        "i": "1",
        "j": float("-inf"),
        "k": 7,
    }
    assert expected == read


@pytest.mark.parametrize("text", ["no", "on", "Yes", "OFF", "y", "n", "2024-01-01"])
def test_words_that_another_reader_takes_for_something_else_are_bare(text: str) -> None:
    assert isinstance(document(f"a: {text}").root["a"], Bare)
    assert not isinstance(document(f"a: '{text}'").root["a"], Bare)


def test_places_are_those_of_the_value_and_of_the_key() -> None:
    read = document("a:\n  - b: 1\n    c: [x]\n")

    assert (read.keys["a", 0, "c"].line, read.keys["a", 0, "c"].column) == (3, 5)
    assert (read.values["a", 0, "c", 0].line, read.values["a", 0, "c", 0].column) == (3, 9)


def test_merged_keys_give_way_to_direct_ones_and_to_earlier_merges() -> None:
    read = document("x-1: &one {a: 1, b: 1}\nx-2: &two {b: 2, c: 2}\nk: {<<: [*one, *two], a: 0}\nl: *two\n")

    assert read.root == {"k": {"a": 0, "b": 1, "c": 2}, "l": {"b": 2, "c": 2}}
    assert (read.problems, read.keys["k", "a"].line) == ([], 3)


def test_a_merge_of_a_merge_works() -> None:
    assert document("x-1: &one {a: 1, b: 1}\nx-2: &two {<<: *one, b: 2}\nk: {<<: *two, c: 3}").root["k"] == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "c.yaml:1:1: the file is empty"),
        ("# only a comment\n", "c.yaml:1:1: the file is empty"),
        ("- a\n", "c.yaml:1:1: the file is no mapping"),
        ("a: 1\nb: 2\na: 3\n", "c.yaml:3:1: a: this key is here twice, first in line 1"),
        ("x-a: {b: {c: 1, c: 2}}\nk: 1", "c.yaml:1:17: x-a.b.c: this key is here twice"),
        ("a: {b: &b [*b]}", "a.b[0]: this alias holds itself"),
        ("a: &a {<<: *a}", "a: << merges a mapping"),
        ("a: {<<: 3}", "a: << merges a mapping"),
        ("a: *b", "c.yaml:1:4: cannot be read as YAML: found undefined alias 'b'"),
        ("a: [1\nb: 2", "c.yaml:2:2: cannot be read as YAML"),
        ("a: 1\n---\nb: 2", "c.yaml:2:1: cannot be read as YAML"),
        ("a:\n\tb: 1", "c.yaml:2:1: cannot be read as YAML"),
        ("a: \x01", "c.yaml:1:4: cannot be read as YAML: a control character"),
        ("a: {b: ${X}}", 'in quotes'),
        ("a: !foo 1", "a: the tag !foo is not accepted"),
        ("a: !foo {b: 1}", "a: the tag !foo is not accepted"),
        ("a: !foo [b]", "a: the tag !foo is not accepted"),
        ("a: !!int x", "a: cannot be read as the int"),
        ("a: {b: }", "c.yaml:1:5: a.b: has no value"),
        ("a: ~", "a: has no value"),
        ("1.10: x", 'c.yaml:1:1: 1.10: quote this key: "1.10"; bare it may be read as a number'),
        ("a: {on: x}", 'a.on: quote this key: "on"'),
        ("a: {[b]: x}", "a.?: a key is text"),
        ("a: ${X}", "c.yaml:1:4: a: the environment variable X is not set"),
        ("a: ${E}", "a: the environment variable E is empty"),
        ("a: x${X:-y}", "a: a variable is written ${NAME}"),
        ("a: ${X", "a: a variable is written ${NAME}"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_told_with_its_place(text: str, expected: str) -> None:
    problems = told(text, E="")

    assert len(problems) == 1
    assert expected in problems[0]


def test_a_file_that_unfolds_without_end_is_refused() -> None:
    lines = ["x-0: &a0 [1,1,1,1,1,1,1,1,1]"] + [f"x-{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 6)]

    assert any("unfolds" in each for each in told("\n".join([*lines, "k: *a5", "l: *a5"])))


def test_deep_nesting_is_refused_and_not_a_crash() -> None:
    assert any("too deep" in each for each in told("a: " + "[" * 800 + "]" * 800))


def test_variables_are_replaced_inside_text_only() -> None:
    read = document("{a: 'x${A}y${B}', '${A}': 1, c: $A}", A="1", B="${A}")

    assert read.root == {"a": "x1y${A}", "${A}": 1, "c": "$A"}


def test_syntax_errors_show_none_of_the_file() -> None:
    assert "sk-secret" not in told("api_key: [sk-secret\nb: 1")[0]


def test_an_anchor_given_anew_holds_from_there_on() -> None:
    assert document("x-1: &n 1\na: *n\nx-2: &n 2\nb: *n").root == {"a": 1, "b": 2}
