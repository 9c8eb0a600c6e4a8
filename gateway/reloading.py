"""When settings are read again, and what becomes of them: on SIGHUP, and when their file has changed.

The new settings are read and checked whole before anything is touched; a bad file leaves the old settings in force, and
the log and `/gateway/config` say why. Knows nothing of what settings mean: `apply` does.
"""

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from gateway.api.admin import Reload
from gateway.errors import GatewayError
from gateway.settings import Settings

LOG = logging.getLogger("gateway")
LOOK_S = 0.25  # between two looks at the file; a look is one `stat`
FAULT = "the gateway failed on the new settings; its log has the cause"

Mark = tuple[int, int, int] | None  # what tells one version of a file from the next: inode, size, time; None: not there


def mark(path: Path) -> Mark:
    """Return the file's mark. Follows links: a mounted ConfigMap is changed by pointing a link elsewhere."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class Source:
    """Where settings come from: a file (`path`), or elsewhere. `seen` is the file's mark from before it was last read.

    `load` returns checked settings, or raises a GatewayError.
    """

    def __init__(self, load: Callable[[], Settings], path: Path | None = None) -> None:
        self._load, self.path = load, path
        self.seen: Mark = None

    def read(self) -> Settings:
        """Return the settings as they are now."""
        if self.path is not None:
            self.seen = mark(self.path)  # before it is read: what changes meanwhile is a change
        return self._load()


class Reloading:
    """Reads settings again and applies them, one attempt at a time. `last` is the newest attempt, None before the first."""

    def __init__(
        self,
        source: Source,
        apply: Callable[[Settings], Awaitable[None]],
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        look_s: float = LOOK_S,
    ) -> None:
        self._source, self._apply, self._clock, self._look_s = source, apply, clock, look_s
        self._lock = asyncio.Lock()
        self._asked = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.last: Reload | None = None

    async def reload(self, why: str) -> None:
        """Read and apply once. Never raises; a failure is in `last` and in the log."""
        async with self._lock:
            error: str | None = None
            try:
                await self._apply(await asyncio.to_thread(self._source.read))  # a long file takes a while to check
            except GatewayError as fault:
                error = fault.message
            except Exception:
                LOG.exception("the reload (%s) failed", why)
                error = FAULT
            self.last = Reload(at=self._clock(), error=error)
            if error is not None:
                LOG.error("reload (%s) refused, the configuration in force stays: %s", why, error)

    def start(self) -> None:
        """Watch the file, and listen for SIGHUP where this thread may."""
        self._tasks.append(asyncio.create_task(self._on_signal()))
        if self._source.path is not None:
            self._tasks.append(asyncio.create_task(self._on_change(self._source.path)))
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._asked.set)

    async def stop(self) -> None:
        """Stop watching."""
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._tasks.clear()

    async def _on_signal(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            await self.reload("SIGHUP")

    async def _on_change(self, path: Path) -> None:
        """Reload when the file has another mark than before and has kept it for one look: half a file is being written."""
        before = self._source.seen
        while True:
            await asyncio.sleep(self._look_s)
            now = mark(path)
            if now != self._source.seen and now == before and now is not None:
                await self.reload(f"{path} changed")
            before = now
