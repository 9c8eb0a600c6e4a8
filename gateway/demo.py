"""One agent session, played twice: straight to a simulated provider, and through the gateway. Real HTTP, no network, no key.

Each run has a provider of its own, with cold caches and the same outage in the middle, so the two differ in nothing but
the gateway. The client is a plain agent: it sends the whole history each turn, its clock and request id anew, and when
the primary model fails it tries the fallback with the same body.
"""

import asyncio
import contextlib
import io
import json
import socket
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import aiohttp
import uvicorn
from rich.console import Console
from rich.table import Table as Grid

from gateway.providers.simulated import Fault, SimulatedModel, SimulatedProvider, app

PRIMARY, FALLBACK = "harbour-8k", "harbour-4k"
MODELS = {
    PRIMARY: SimulatedModel(window_tokens=8_192, output_limit=1_024),
    FALLBACK: SimulatedModel(window_tokens=4_096, output_limit=1_024),
}
PRICES = {"input": 1.25, "cached": 0.125, "output": 10.0}  # USD per million tokens: an example, of no provider's list
OUTAGE = (14, 15)  # turns, from 0, on which the primary model is out of service
MILLION = 1_000_000
START_S = 10.0

ASGI = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[MutableMapping[str, Any]]],
        Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
]

SETTINGS = """
x-model: &model {{provider: simulated, output_limit_tokens: 1024, tokenizer: o200k_base, prices: {prices}}}
ledger: {{url: 'sqlite:{ledger}'}}
providers:
  simulated: {{kind: openai, base_url: 'http://127.0.0.1:{port}/v1', api_key: none}}
routes:
  - name: demo
    models: ['{primary}']
    targets:
      - {{<<: *model, model: '{primary}', window_tokens: {primary_window}}}
      - {{<<: *model, model: '{fallback}', window_tokens: {fallback_window}}}
    budget: {{output_reserve_tokens: 768}}
    retry: {{attempts: 1}}
    cooldown: {{failures: 3, seconds: 1}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A recorded session. `system` holds `{clock}` and `{request_id}`; `messages` are those behind the system prompt."""

    system: str
    tools: Sequence[Mapping[str, Any]]
    messages: Sequence[Mapping[str, Any]]

    def turns(self) -> Iterator[tuple[dict[str, Any], Mapping[str, Any]]]:
        """Yield the body of each request, without its model, and the assistant message recorded as its answer."""
        for at, message in enumerate(self.messages):
            if message["role"] != "assistant":
                continue
            clock = f"2026-04-15 {9 + at // 60:02d}:{at % 60:02d}:{at * 7 % 60:02d}"
            identity = uuid.uuid5(uuid.NAMESPACE_OID, f"demo {at}")  # looks like chance, is the same in every run
            system = self.system.replace("{clock}", clock).replace("{request_id}", str(identity))
            yield {"messages": [{"role": "system", "content": system}, *self.messages[:at]], "tools": list(self.tools)}, message


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one way of playing the session came to. Tokens are as the provider reported them, cost in USD at example prices.

    `calls` and `rejections` are the provider's: requests that reached it, and those that it refused as malformed or too long.
    """

    name: str
    turns: int
    completed: int
    calls: int
    rejections: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int

    @property
    def cached_share(self) -> float:
        """Return cached by all input tokens, 0 when there are none."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else 0.0

    @property
    def cost_usd(self) -> float:
        """Return what the answered calls cost."""
        uncached = self.input_tokens - self.cached_tokens
        return (
            uncached * PRICES["input"] + self.cached_tokens * PRICES["cached"] + self.output_tokens * PRICES["output"]
        ) / MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Both runs side by side."""

    straight: Run
    gateway: Run


def read_session() -> Session:
    """Return the shipped session."""
    given = json.loads(files("gateway").joinpath("data/session.json").read_text(encoding="utf-8"))
    return Session(system=given["system"], tools=given["tools"], messages=given["messages"])


class Server(uvicorn.Server):
    """A server beside others in one process: signals stay with whoever runs the process."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving(application: ASGI) -> AsyncIterator[int]:
    """Serve an ASGI application on a free port of 127.0.0.1 while the block runs; yields the port.

    TimeoutError when it does not start.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(application, log_config=None, access_log=False, ws="none", timeout_graceful_shutdown=2)
    server = Server(config)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        async with asyncio.timeout(START_S):
            await server.up.wait()
        yield int(listening.getsockname()[1])
    finally:
        server.should_exit = True
        await running
        listening.close()


@dataclass(slots=True)
class Stage:
    """A provider that answers with the recorded message of the turn that is being played."""

    reply: Mapping[str, Any] | None = None

    def provider(self) -> SimulatedProvider:
        return SimulatedProvider(MODELS, script=lambda body: self.reply)


async def perform(name: str, url: str, models: Sequence[str], provider: SimulatedProvider, stage: Stage, session: Session) -> Run:
    """Play the session against a base URL and return what came of it. A turn tries the models in order, with the same body."""
    turns = completed = 0
    used = {"prompt_tokens": 0, "completion_tokens": 0, "cached_tokens": 0}
    async with aiohttp.ClientSession() as client:
        for body, stage.reply in session.turns():
            if turns in OUTAGE:
                provider.faults.append(Fault(kind="status", status=503))
            turns += 1
            usage = await _turn(client, url, models, body)
            if usage is None:
                continue
            completed += 1
            for key in ("prompt_tokens", "completion_tokens"):
                used[key] += usage[key]
            used["cached_tokens"] += usage["prompt_tokens_details"]["cached_tokens"]
    return Run(
        name=name,
        turns=turns,
        completed=completed,
        calls=len(provider.calls),
        rejections=provider.refused,
        input_tokens=used["prompt_tokens"],
        cached_tokens=used["cached_tokens"],
        output_tokens=used["completion_tokens"],
    )


async def _turn(client: aiohttp.ClientSession, url: str, models: Sequence[str], body: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the usage of the first model that answers, None when none does."""
    for model in models:
        async with client.post(f"{url}/v1/chat/completions", json={"model": model, **body}) as answer:
            if answer.status == 200:
                usage: dict[str, Any] = (await answer.json())["usage"]
                return usage
    return None


async def play(*, once: bool, write: Callable[[str], None]) -> Table:
    """Play the shipped session both ways, write both side by side, and return them.

    Without `once` the gateway keeps serving its dashboard until the task is cancelled. Nothing stays on disk.
    """
    session = read_session()
    stage = Stage()
    write("Playing the session straight to the simulated provider …")
    provider = stage.provider()
    async with serving(app(provider)) as port:
        straight = await perform("straight", f"http://127.0.0.1:{port}", (PRIMARY, FALLBACK), provider, stage, session)
    write("Playing it through the gateway …")
    provider = stage.provider()
    with tempfile.TemporaryDirectory(prefix="gateway-demo-") as folder:
        async with serving(app(provider)) as upstream, serving(_gateway(upstream, Path(folder))) as port:
            url = f"http://127.0.0.1:{port}"
            table = Table(straight=straight, gateway=await perform("gateway", url, (PRIMARY,), provider, stage, session))
            write(render(table))
            if not once:
                write(f"The dashboard is open at {url}/dashboard; Ctrl-C ends the demo.")
                await asyncio.Event().wait()
    return table


def _gateway(upstream: int, folder: Path) -> ASGI:
    """Return the gateway's application before that upstream, its ledger in the folder."""
    # Loaded here: the straight half and the types of this module need none of it.
    from gateway.app import build
    from gateway.settings import load

    text = SETTINGS.format(
        ledger=folder / "demo.db",
        port=upstream,
        primary=PRIMARY,
        fallback=FALLBACK,
        primary_window=MODELS[PRIMARY].window_tokens,
        fallback_window=MODELS[FALLBACK].window_tokens,
        prices=json.dumps(PRICES),
    )
    return build(load(text, source="demo", env={}))


def render(table: Table) -> str:
    """Return the table as text for a terminal, both runs side by side."""
    grid = Grid(title=f"One agent session of {table.straight.turns} turns, twice")
    grid.add_column("")
    grid.add_column("straight to the provider", justify="right")
    grid.add_column("through the gateway", justify="right")
    for label, cell in ROWS:
        grid.add_row(label, cell(table.straight), cell(table.gateway))
    out = io.StringIO()
    Console(file=out, width=88).print(grid)
    return out.getvalue().rstrip()


def _per_turn(run: Run) -> str:
    return f"{run.cost_usd / run.completed:.5f}" if run.completed else "–"


ROWS: Sequence[tuple[str, Callable[[Run], str]]] = (
    ("turns completed", lambda run: f"{run.completed} of {run.turns}"),
    ("refused by the provider", lambda run: str(run.rejections)),
    ("calls", lambda run: str(run.calls)),
    ("input tokens", lambda run: f"{run.input_tokens:,}"),
    ("cached share of input", lambda run: f"{run.cached_share:.1%}"),
    ("cost, USD at example prices", lambda run: f"{run.cost_usd:.4f}"),
    ("cost of one completed turn", _per_turn),
)
