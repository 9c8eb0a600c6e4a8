"""Measures the gateway's CPU a request beside a bare proxy and, where it is installed, the LiteLLM proxy, in one run.

    python -m tests.bench.run [--requests 2000] [--litellm PATH/TO/litellm] [--ledger redis|sqlite]

Snapshots are on; Redis runs on the same machine. Every figure is printed with its ratio to "bare", taken in turn with it.
"""

import argparse
import asyncio
import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.bodies import KINDS
from tests.bench.load import Measured, load

ROUNDS = 3  # rivals take turns; the median round is printed


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def running(
    words: list[str], port: int, cwd: str, health: str | None = None, limit_s: float = 60
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends; yields when its port answers."""
    with open(Path(cwd) / f"{port}.log", "wb") as log:
        process = subprocess.Popen(words, cwd=cwd, stdout=log, stderr=log, env=environment())
        try:
            end = time.monotonic() + limit_s
            while time.monotonic() < end and process.poll() is None and not answers(port, health):
                time.sleep(0.05)
            if not answers(port, health):
                raise RuntimeError(f"{words[:4]} did not start: {Path(log.name).read_text()[-800:]}")
            yield process
        finally:
            process.terminate()
            process.wait(15)


def environment() -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": root,
        "HOME": tempfile.gettempdir(),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


def answers(port: int, health: str | None) -> bool:
    try:
        if health:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{health}", timeout=1) as answer:
                return bool(answer.status == 200)
        socket.create_connection(("127.0.0.1", port), 0.2).close()
    except OSError:
        return False
    return True


def gateway_yaml(folder: str, upstream: int, ledger: str, window: int) -> str:
    path = Path(folder) / "gateway.yaml"
    path.write_text(
        f"ledger: {{url: '{ledger}'}}\n"
        f"providers: {{up: {{kind: openai, base_url: 'http://127.0.0.1:{upstream}/v1', api_key: none}}}}\n"
        f"routes: [{{name: m, targets: [{{provider: up, model: m, window_tokens: {window}, "
        "output_limit_tokens: 8000, tokenizer: o200k_base}]}]\n"
    )
    return str(path)


def litellm_yaml(folder: str, upstream: int) -> str:
    path = Path(folder) / "litellm.yaml"
    path.write_text(
        "model_list:\n  - model_name: m\n    litellm_params:\n      model: openai/m\n"
        f"      api_base: http://127.0.0.1:{upstream}/v1\n      api_key: k\n"
        "litellm_settings: {telemetry: false}\n"
        "general_settings: {dangerously_permit_weak_or_unset_master_key: true}\n"  # on loopback, for the length of the run
    )
    return str(path)


Found = dict[tuple[str, str], Measured]  # by rival and body


async def measure(rivals: dict[str, tuple[int, int]], requests: int, connections: int, stream: bool) -> Found:
    """Return the median round of each rival and body, the rivals taking turns."""
    found: Found = {}
    number = 0
    for kind, body in KINDS.items():
        rounds: dict[str, list[Measured]] = {name: [] for name in rivals}
        for _ in range(ROUNDS + 1):
            for name, (port, pid) in rivals.items():
                count = requests // 10 if name == "litellm" else requests
                count = max(40, count // (4 if kind == "500 KB" else 1) // (10 if stream else 1))
                made = await load(port, pid, partial(body, stream=stream), count, connections, number)
                number += count
                rounds[name].append(made)
        for name, each in rounds.items():
            found[name, kind] = sorted(each[1:], key=lambda m: m.cpu_ms)[ROUNDS // 2]  # the first round warms up
    return found


def show(found: Found, rivals: list[str], title: str) -> None:
    table = Table(title=title)
    for name in (
        "body",
        *(f"{rival} CPU ms" for rival in rivals),
        "x bare",
        "LiteLLM / gateway",
        *(f"{rival} p50 ms" for rival in rivals),
    ):
        table.add_column(name, justify="right")
    for kind in KINDS:
        cpu = {name: found[name, kind].cpu_ms for name in rivals}
        ratio = f"{cpu['gateway'] / cpu['bare']:.2f}"
        rival = f"{cpu['litellm'] / cpu['gateway']:.1f}" if "litellm" in cpu else "not measured"
        table.add_row(
            kind, *(f"{cpu[name]:.3f}" for name in rivals), ratio, rival, *(f"{found[name, kind].p50_ms:.2f}" for name in rivals)
        )
    Console(width=150).print(table)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--requests", type=int, default=2000)
    asked.add_argument("--connections", type=int, default=16)
    asked.add_argument("--litellm", default="", help="the litellm program of a venv with litellm[proxy]")
    asked.add_argument("--ledger", choices=("redis", "sqlite"), default="redis")
    asked.add_argument("--stream", action="store_true")
    options = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        ports = {name: free_port() for name in ("up", "bare", "gateway", "redis", "litellm")}
        stack.enter_context(running([sys.executable, "-m", "tests.bench.upstream", str(ports["up"])], ports["up"], folder))
        ledger = "sqlite:bench.db"
        if options.ledger == "redis":
            server = shutil.which("redis-server") or sys.exit("redis-server is needed for --ledger redis")
            words = [server, "--port", str(ports["redis"]), "--save", "", "--appendonly", "no", "--dir", folder]
            stack.enter_context(running(words, ports["redis"], folder))
            ledger = f"redis://127.0.0.1:{ports['redis']}/0"
        bare = [sys.executable, "-m", "tests.bench.bare", str(ports["bare"]), str(ports["up"])]
        rivals = {"bare": (ports["bare"], stack.enter_context(running(bare, ports["bare"], folder)).pid)}
        path = gateway_yaml(folder, ports["up"], ledger, 400_000)
        words = [sys.executable, "-m", "gateway", "serve", "--config", path, "--port", str(ports["gateway"])]
        process = stack.enter_context(running(words, ports["gateway"], folder, "/health/live"))
        rivals["gateway"] = (ports["gateway"], process.pid)
        if options.litellm:
            words = [
                options.litellm,
                "--config",
                litellm_yaml(folder, ports["up"]),
                "--port",
                str(ports["litellm"]),
                "--host",
                "127.0.0.1",
            ]
            process = stack.enter_context(running(words, ports["litellm"], folder, "/health/liveliness", 120))
            rivals["litellm"] = (ports["litellm"], process.pid)
        found = asyncio.run(measure(rivals, options.requests, options.connections, options.stream))
        title = f"{options.connections} connections, {'streams' if options.stream else 'plain'}, ledger {options.ledger}"
        show(found, list(rivals), title)


if __name__ == "__main__":
    main()
