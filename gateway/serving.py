"""Runs the gateway in processes: what the server is told, and how a worker learns what it is to serve."""

import logging
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from gateway import logs, telemetry
from gateway import settings as configuration
from gateway.app import App, build
from gateway.doctor import refuse_poisoned
from gateway.errors import ConfigurationError
from gateway.protocol import Protocol
from gateway.providers import simulated
from gateway.reloading import Source
from gateway.settings import Settings

LOG = logging.getLogger("gateway")
KEEP_ALIVE_S = 75  # longer than the 60 s of usual balancers, so that they and not we close an idle connection
# How a worker process learns what its parent serves: the settings file ("" for the environment), and the address given to it.
CONFIG_VARIABLE, HOST_VARIABLE, PORT_VARIABLE = "GATEWAY_CONFIG_FILE", "GATEWAY_SERVED_HOST", "GATEWAY_SERVED_PORT"


def source_of(path: Path | None, *, host: str | None = None, port: int | None = None) -> Source:
    """Return where the settings are read: a file, or the environment's provider keys; the command line's address wins."""

    def load() -> Settings:
        found = configuration.read(path, os.environ) if path else configuration.from_environment(os.environ)
        if found is None:
            raise ConfigurationError("no provider key is left in the environment")
        return configuration.with_server(found, host=host, port=port)

    return Source(load, path)


def worker() -> App:
    """Return the application of one worker process, which reads the same settings as its parent."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the application listens: a reload must not end a starting worker
    path, port = os.environ[CONFIG_VARIABLE], os.environ[PORT_VARIABLE]
    source = source_of(Path(path) if path else None, host=os.environ[HOST_VARIABLE], port=int(port))
    settings = source.read()
    telemetry.forget_dead()
    logs.configure(settings.log.level, settings.log.format)
    return build(settings, source)


class Workers(Multiprocess):
    """The parent of worker processes: starts them, starts a dead one again, and passes signals on."""

    def handle_hup(self) -> None:
        """Have every worker reload by itself: a restart, which the class would do, cuts long answers."""
        for process in self.processes:
            if process.pid is not None and process.exitcode is None:
                os.kill(process.pid, signal.SIGHUP)


def serve(settings: Settings, workers: int = 1, source: Source | None = None) -> None:
    """Serve until a signal ends it. `source` gives the settings anew; without it there is no reload, and one process."""
    refuse_poisoned()
    logs.configure(settings.log.level, settings.log.format)
    options: dict[str, Any] = {
        "host": settings.server.host,
        "port": settings.server.port,
        "loop": "uvloop",
        "http": Protocol,
        "ws": "none",
        "access_log": False,
        "proxy_headers": False,  # who calls is decided by keys, never by what a client says of its address
        "server_header": False,
        "log_config": None,
        "timeout_keep_alive": int(settings.server.keepalive_s) or KEEP_ALIVE_S,
        "timeout_graceful_shutdown": max(1, int(settings.server.shutdown_grace_s)),
    }
    if workers == 1:
        server = uvicorn.Server(uvicorn.Config(build(settings, source), **options))
        server.run()
        if not server.started:
            sys.exit(STARTUP_FAILURE)
        return
    if source is None:
        raise ConfigurationError("several workers need a settings file or a provider key: each of them reads it anew")
    os.environ[CONFIG_VARIABLE] = str(source.path or "")
    os.environ[HOST_VARIABLE], os.environ[PORT_VARIABLE] = settings.server.host, str(settings.server.port)
    config = uvicorn.Config("gateway.serving:worker", factory=True, workers=workers, **options)
    with tempfile.TemporaryDirectory(prefix="gateway-metrics-") as folder:
        telemetry.share(folder)
        Workers(config, [config.bind_socket()]).run()


SIMULATED = """
providers: {{simulated: {{kind: openai, base_url: 'http://127.0.0.1:{port}/v1', api_key: none}}}}
routes:
  - name: simulated
    models: ['*']
    targets: [{{provider: simulated, model: simulated, window_tokens: 128000, output_limit_tokens: 16000, tokenizer: o200k_base}}]
"""


def simulated_settings() -> Settings:
    """Return settings for the built-in simulated provider, which is started beside the gateway on a free port."""
    port = simulated.start_in_thread({"simulated": simulated.SimulatedModel(window_tokens=128_000, output_limit=16_000)})
    return configuration.load(SIMULATED.format(port=port), source="the built-in simulated provider", env={})
