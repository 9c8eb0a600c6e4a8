import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.acceptance.harness import environment, free_port, until
from tests.commands.ground import run
from tests.context.talks import user


@pytest.mark.parametrize("words", [["--host", "0.0.0.0"], ["--config", "none.yaml"], ["--port", "70000"], ["--workers", "0"]])
def test_what_cannot_be_served_is_refused_without_a_traceback(config: Path, words: list[str]) -> None:
    done = run("serve", "--config", config, *words)

    assert done.exit_code == 2
    assert done.stderr != ""
    assert "Traceback" not in done.output


def test_serve_without_settings_and_keys_says_that_it_simulates_and_answers(tmp_path: Path) -> None:
    port = free_port()
    words = [sys.executable, "-m", "gateway", "serve", "--port", str(port)]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(words, cwd=tmp_path, env=environment(), stdout=log, stderr=log)
    try:
        until(port, "/health/ready", process)
        body = json.dumps({"model": "any", "messages": [user("hello")]}).encode()
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", body, {"content-type": "application/json"})
        with urllib.request.urlopen(asked, timeout=20) as reply:
            answer = json.loads(reply.read())
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    finally:
        process.kill()
        process.wait(10)

    assert "built-in simulated provider" in (tmp_path / "log").read_text()
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert run("verify", "--ledger", f"sqlite:{tmp_path / 'gateway.db'}").stdout == "1 prompts verified, bit for bit\n"


def test_the_demo_ends_after_its_table() -> None:
    done = run("demo", "--once")

    assert done.exit_code == 0
    assert "straight" in done.stdout
    assert "gateway" in done.stdout
