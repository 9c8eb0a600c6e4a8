import json
from pathlib import Path

from tests.commands.ground import GOOD, run
from tests.test_replay import Kept


def test_whatif_prints_both_sides_by_route(tmp_path: Path, ledger: str, calls: list[Kept]) -> None:
    new = tmp_path / "new.yaml"
    new.write_text(GOOD.replace("LEDGER", str(tmp_path / "unused.db")))
    plain, as_json = (run("whatif", "--config", new, "--ledger", ledger, *more) for more in ([], ["--json"]))
    found = json.loads(as_json.stdout)["r"]

    assert (plain.exit_code, as_json.exit_code) == (0, 0)
    assert "before" in plain.stdout
    assert "after" in plain.stdout
    assert len(calls) == found["before"]["calls"] == found["after"]["calls"]
    assert found["after"]["compacted"] < found["before"]["compacted"]
    assert found["unreadable"] == 0


def test_whatif_reads_the_ledger_that_its_settings_name(config: Path, ledger: str) -> None:
    assert json.loads(run("whatif", "--config", config, "--json").stdout)["r"]["before"]["calls"] == 3


def test_whatif_of_nothing_is_an_empty_table(config: Path, ledger: str) -> None:
    assert json.loads(run("whatif", "--config", config, "--since", "2030-01-01", "--json").stdout) == {}
    assert run("whatif", "--config", config, "--since", "2030-01-01").exit_code == 0
