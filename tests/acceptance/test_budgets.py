"""Budgets over several processes on one store: real gateways, a real Redis, a simulated provider."""

import concurrent.futures
import json
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.providers.simulated import SimulatedModel
from tests.acceptance.harness import Served, free_port, gateway, provider, redis_server, start

SETTINGS = """
ledger: {{url: '{ledger}'}}
budgets: {{lease_s: 3}}
providers: {{up: {{base_url: 'http://127.0.0.1:{up}/v1', api_key: none}}}}
routes:
  - name: m
    models: [m]
    targets: [{{provider: up, model: m, window_tokens: 16000, tokenizer: bytes, prices: {{input: 1, output: 1}}}}]
    budget: {{output_reserve_tokens: 100, {limits}}}
    retry: {{attempts: 1}}
"""
BODY = json.dumps({"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "word " * 60}]}).encode()


def post(port: int) -> tuple[int, dict[str, str]]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions", BODY, {"content-type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()
            return answer.status, dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers) | {"body": error.read().decode()}


def budgets(port: int) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/gateway/budgets", timeout=10) as answer:
        found: list[dict[str, Any]] = json.load(answer)["items"]
    return found


@contextmanager
def gateways(folder: Path, store: str, limits: str, count: int) -> Iterator[tuple[list[int], list["subprocess.Popen[bytes]"]]]:
    """Run so many gateways on one store, each a process of its own; yields their ports and processes."""
    with ExitStack() as stack:
        _, up = stack.enter_context(provider({"m": SimulatedModel(window_tokens=16_000, output_limit=4_000)}))
        ledger = f"sqlite:{folder / 'shared.db'}"
        if store == "redis":
            ledger = f"redis://127.0.0.1:{stack.enter_context(redis_server(folder))}/0"
        first: Served = stack.enter_context(gateway(folder, SETTINGS.format(ledger=ledger, up=up, limits=limits)))
        ports, processes = [first.port], [first.process]
        try:
            for _ in range(count - 1):
                port = free_port()
                processes.append(start(folder, first.config, port))
                ports.append(port)
            yield ports, processes
        finally:
            for each in processes[1:]:
                each.terminate()
                each.wait(15)


@pytest.mark.parametrize(("store", "count", "clients"), [("redis", 4, 64), ("sqlite", 2, 32)])
def test_many_clients_of_many_processes_never_pass_one_budget(tmp_path: Path, store: str, count: int, clients: int) -> None:
    """The limit is in tokens, of which each call takes what the provider reports; nothing stays reserved at the end."""
    with gateways(tmp_path, store, "tokens: {limit: 6000, per: day}", count) as (ports, _):
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            found = list(pool.map(lambda n: post(ports[n % count]), range(clients * 3)))
        standing = budgets(ports[-1])[0]
        statuses = {status for status, _ in found}
        refused = [headers for status, headers in found if status == 429]

    assert statuses == {200, 429}
    assert 0 < standing["used"] <= standing["limit"] == 6_000
    assert standing["reserved"] == 0
    assert all(json.loads(each["body"])["error"]["code"] == "insufficient_quota" for each in refused)
    assert all(int(each["retry-after"]) > 0 and "x-gateway-target" not in each for each in refused)


def test_what_a_killed_process_had_reserved_lapses(tmp_path: Path) -> None:
    with gateways(tmp_path, "redis", "max_parallel: 4", 2) as (ports, processes):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            calls = [pool.submit(post, ports[1]) for _ in range(64)]
            time.sleep(0.2)
            processes[1].send_signal(signal.SIGKILL)
            for each in calls:
                each.exception(30)
        deadline = time.monotonic() + 10
        while budgets(ports[0])[0]["reserved"] and time.monotonic() < deadline:
            time.sleep(0.2)

        assert budgets(ports[0])[0]["reserved"] == 0
        assert post(ports[0])[0] == 200
