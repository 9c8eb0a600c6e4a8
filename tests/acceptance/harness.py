"""Runs the real program: `gateway serve` in a process of its own, with a simulated provider and a real Redis around it."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.providers.simulated import SimulatedModel, SimulatedProvider, app

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def until(port: int, path: str, process: "subprocess.Popen[bytes]", limit_s: float = 30) -> None:
    """Return when the server answers 200; RuntimeError when it ends first or takes too long."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"nothing answers on {port}{path}; exit status {process.poll()}")


@contextlib.contextmanager
def redis_server(folder: Path, port: int | None = None) -> Iterator[int]:
    """Run a Redis of our own on a free port; every write is in its file before it answers."""
    program = shutil.which("redis-server")
    if program is None:
        raise RuntimeError("redis-server is needed on the path")
    port = port or free_port()
    words = [program, "--port", str(port), "--dir", str(folder), "--save", "", "--appendonly", "yes", "--appendfsync", "always"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
                break
            time.sleep(0.02)
        yield port
    finally:
        process.kill()
        process.wait(10)


@contextlib.contextmanager
def running(application: ASGIApp) -> Iterator[int]:
    """Run an application in a thread of this process; yields its port."""
    port = free_port()
    server = uvicorn.Server(
        uvicorn.Config(application, host="127.0.0.1", port=port, log_config=None, access_log=False, ws="none", lifespan="off")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join(10)


@contextlib.contextmanager
def provider(models: Mapping[str, SimulatedModel]) -> Iterator[tuple[SimulatedProvider, int]]:
    """Run a simulated provider in a thread of this process; yields it and its port."""
    made = SimulatedProvider(models)
    with running(app(made)) as port:
        yield made, port


HEAD = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,'
PIECE = HEAD + b'"delta":{"content":"x"}}]}\n\n'
END = HEAD + b'"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


async def dripping(scope: Scope, receive: Receive, send: Send) -> None:
    """A provider that streams slowly: as many pieces as the body's `max_tokens`, one each tenth of a second."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for _ in range(int(json.loads(body)["max_tokens"])):
        await send({"type": "http.response.body", "body": PIECE, "more_body": True})
        await asyncio.sleep(0.1)
    await send({"type": "http.response.body", "body": END})


@dataclass
class Served:
    """One gateway that runs. `config` is its settings file, `folder` where it lives."""

    process: "subprocess.Popen[bytes]"
    port: int
    config: Path
    folder: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run another command of the program on the same settings, in a process of its own."""
        command = [sys.executable, "-m", "gateway", *words, "--config", str(self.config)]
        return subprocess.run(command, cwd=self.folder, env=environment(), capture_output=True, text=True, timeout=110)


def environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": os.environ.get("HOME", "/")}


@contextlib.contextmanager
def gateway(folder: Path, text: str, *words: str) -> Iterator[Served]:
    """Run `gateway serve` on these settings, with more words if given; `{port}` in the settings is its own port."""
    port = free_port()
    config = folder / "gateway.yaml"
    config.write_text(text.replace("{port}", str(port)))
    served = Served(start(folder, config, port, *words), port, config, folder)
    try:
        yield served
    finally:
        served.process.terminate()
        try:
            served.process.wait(10)
        except subprocess.TimeoutExpired:
            served.process.kill()
            served.process.wait(10)


def start(folder: Path, config: Path, port: int, *more: str) -> "subprocess.Popen[bytes]":
    with open(folder / "gateway.log", "ab") as log:
        words = [sys.executable, "-m", "gateway", "serve", "--config", str(config), "--port", str(port), *more]
        process = subprocess.Popen(words, cwd=folder, env=environment(), stdout=log, stderr=log)
    try:
        until(port, "/health/live", process)
    except RuntimeError as error:
        process.kill()
        raise RuntimeError(f"{error}: {(folder / 'gateway.log').read_text()[-1500:]}") from None
    return process
