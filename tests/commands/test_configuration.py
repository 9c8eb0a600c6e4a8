import json
from pathlib import Path

import pytest

from tests.commands.ground import GOOD, run
from tests.context.talks import user
from tests.test_replay import turns


def test_a_good_file_passes(config: Path) -> None:
    plain, as_json = run("check", config), run("check", config, "--json")

    assert (plain.exit_code, plain.stdout) == (0, f"{config}: ok, 1 route: coding\n")
    assert as_json.exit_code == 0
    assert json.loads(as_json.stdout)["ok"] is True


def test_every_problem_of_a_file_is_told_with_its_place(config: Path) -> None:
    config.write_text(GOOD.replace("base_url", "base_urn").replace("models:", "modles:"))
    plain, as_json = run("check", config), run("check", config, "--json")

    assert (plain.exit_code, as_json.exit_code) == (2, 2)
    assert plain.stdout == ""
    assert f"{config}:3:" in plain.stderr
    assert f"{config}:6:" in plain.stderr
    problems = json.loads(as_json.stdout)["problems"]
    assert {3, 6} <= {each["line"] for each in problems}
    assert set(problems[0]) == {"file", "line", "column", "path", "value", "message"}


def test_a_file_that_is_not_there_is_one_problem(tmp_path: Path) -> None:
    plain, as_json = run("check", tmp_path / "none.yaml"), run("check", tmp_path / "none.yaml", "--json")

    assert (plain.exit_code, as_json.exit_code) == (2, 2)
    assert "cannot be read" in plain.stderr
    assert "cannot be read" in json.loads(as_json.stdout)["problems"][0]["message"]


def test_the_schema_is_json() -> None:
    assert "routes" in json.loads(run("schema").stdout)["properties"]


def asked(path: Path, body: object) -> Path:
    path.write_text(json.dumps(body))
    return path


def test_explain_says_for_each_target_what_would_happen(tmp_path: Path, config: Path) -> None:
    body = asked(tmp_path / "request.json", {"model": "m", "messages": turns(40)})
    plain, as_json = run("explain", body, "--config", config), run("explain", body, "--config", config, "--json")
    big, small = json.loads(as_json.stdout)["targets"]

    assert (plain.exit_code, as_json.exit_code) == (0, 0)
    assert (big["verdict"], big["compaction"]) == ("fits", "none")
    assert (small["verdict"], small["cut"]["dropped"] > 0) == ("fits", True)
    assert "up/big: fits" in plain.stdout
    assert "estimate" in plain.stdout
    assert not (tmp_path / "l.db").exists()


def test_explain_says_why_a_target_refuses(tmp_path: Path, config: Path) -> None:
    body = asked(tmp_path / "request.json", {"model": "m", "messages": [user("long " * 2_000)]})
    shown = run("explain", body, "--config", config).stdout

    assert "up/small: refused" in shown
    assert "the required content does not fit" in shown


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("{", [], "JSON"),
        ('{"model": "other", "messages": []}', [], "other"),
        ('{"model": "m", "messages": []}', ["--route", "none"], "coding"),
    ],
)
def test_explain_refuses_what_the_gateway_would_refuse(
    tmp_path: Path, config: Path, text: str, words: list[str], said: str
) -> None:
    (tmp_path / "request.json").write_text(text)
    done = run("explain", tmp_path / "request.json", "--config", config, *words)

    assert done.exit_code == 2
    assert said in done.stderr


def test_explain_of_a_file_that_is_not_there_ends_with_status_2(tmp_path: Path) -> None:
    assert run("explain", tmp_path / "none.json").exit_code == 2


def test_import_litellm_writes_settings_that_check_and_says_what_became_of_each_key(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "litellm.yaml", tmp_path / "ours.yaml"
    theirs.write_text("model_list: [{model_name: m, litellm_params: {model: openai/m, weight: 2}}]")
    printed, written = run("import-litellm", theirs), run("import-litellm", theirs, "--output", ours)
    as_json = run("import-litellm", theirs, "--json")

    assert (printed.exit_code, written.exit_code, written.stdout) == (0, 0, "")
    assert printed.stdout == ours.read_text()
    assert "refused  model_list[0].litellm_params.weight: nothing here corresponds to it" in printed.stderr
    assert "set in the environment: OPENAI_API_KEY" in printed.stderr
    assert json.loads(as_json.stdout)["yaml"] == printed.stdout
    assert run("check", ours, OPENAI_API_KEY="k").exit_code == 0


def test_import_litellm_of_something_else_ends_with_status_2(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("routes: []")

    assert run("import-litellm", tmp_path / "x.yaml").exit_code == 2
