"""How log lines look: readable on a terminal, JSON elsewhere. The only place that configures logging."""

import json
import logging
import sys
from datetime import UTC, datetime

from rich.logging import RichHandler

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
QUIET = ("asyncio", "aiohttp.access", "uvicorn.access")  # they say nothing a reader of ours can act on


class JSONLines(logging.Formatter):
    """One JSON object a line. Control characters are escaped by JSON, so no text can begin a line of its own."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"at": at, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure(level: str, form: str) -> None:
    """Send every log line of the process to standard error. `form` is auto (pretty on a terminal), pretty or json."""
    handler: logging.Handler
    if form == "pretty" or (form == "auto" and sys.stderr.isatty()):
        handler = RichHandler(show_path=False, markup=False)
        handler.setFormatter(logging.Formatter("%(message)s"))
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JSONLines())
    logging.basicConfig(level=LEVELS[level], handlers=[handler], force=True)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
