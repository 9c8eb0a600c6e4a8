"""Runs the gateway in processes: what the server is told, and how a worker learns what it is to serve."""

import logging
import os
import signal
from pathlib import Path
from typing import Any

import uvicorn

from gateway import logs
from gateway import settings as configuration
from gateway.app import App, build
from gateway.errors import ConfigurationError
from gateway.providers import simulated
from gateway.settings import Settings

LOG = logging.getLogger("gateway")
KEEP_ALIVE_S = 75  # longer than the 60 s of usual balancers, so that they and not we close an idle connection
CONFIG_VARIABLE = "GATEWAY_CONFIG_FILE"  # how a worker process learns which file its parent was given


def from_file() -> App:
    """Return the application of one worker process, which reads the same settings file as its parent."""
    settings = configuration.read(Path(os.environ[CONFIG_VARIABLE]), os.environ)
    logs.configure(settings.log.level, settings.log.format)
    return build(settings)


def serve(settings: Settings, workers: int = 1) -> None:
    """Serve until a signal ends it. Several workers need a settings file, which each of them reads."""
    logs.configure(settings.log.level, settings.log.format)
    options: dict[str, Any] = {
        "host": settings.server.host,
        "port": settings.server.port,
        "loop": "uvloop",
        "http": "httptools",
        "ws": "none",
        "access_log": False,
        "proxy_headers": False,  # who calls is decided by keys, never by what a client says of its address
        "server_header": False,
        "log_config": None,
        "timeout_keep_alive": int(settings.server.keepalive_s) or KEEP_ALIVE_S,
        "timeout_graceful_shutdown": max(1, int(settings.server.shutdown_grace_s)),
    }
    if workers == 1:
        signal.signal(
            signal.SIGHUP, lambda number, frame: LOG.warning("SIGHUP: reload is not in this version; the config in force stays")
        )
        uvicorn.run(build(settings), **options)
        return
    if not Path(settings.source).is_file():
        raise ConfigurationError("several workers need a settings file: give one with --config")
    os.environ[CONFIG_VARIABLE] = settings.source
    uvicorn.run("gateway.serving:from_file", factory=True, workers=workers, **options)


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
