import json
from pathlib import Path

from typer.testing import CliRunner

from gateway.cli import cli

TEXT = """
ledger: {url: 'sqlite:%s'}
providers: {up: {base_url: 'http://127.0.0.1:9/v1', api_key: none}}
routes: [{name: m, targets: [{provider: up, model: m, window_tokens: 8000}]}]
"""


def test_a_good_installation_is_well(tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text(TEXT % (tmp_path / "ledger.db"))

    made = CliRunner().invoke(cli, ["doctor", "--config", str(config), "--json"])

    assert made.exit_code == 0, made.output
    found = {each["about"]: each["level"] for each in json.loads(made.stdout)}
    assert found == {"installation": "ok", "settings": "ok", "ledger": "ok"}


def test_a_bad_file_is_said_with_its_place(tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text("routes: []\n")

    made = CliRunner().invoke(cli, ["doctor", "--config", str(config)])

    assert made.exit_code == 1
    assert f"{config}:1" in made.output
