import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.api.admin import Reload
from gateway.errors import ConfigurationError
from gateway.reloading import FAULT, Reloading, Source, mark
from gateway.settings import Settings
from tests.test_app import settings

pytestmark = pytest.mark.anyio
AT = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def ignored(applied: list[Settings]) -> Callable[[Settings], Awaitable[None]]:
    async def apply(given: Settings) -> None:
        applied.append(given)

    return apply


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - what it waits for has no event of its own
            await asyncio.sleep(0.005)


def source(load: Callable[[], Settings], path: Path | None = None) -> Source:
    """Return a source that was read once, as at start."""
    found = Source(load, path)
    if path is not None:
        found.seen = mark(path)
    return found


def made(read: Callable[[], Settings], applied: list[Settings], path: Path | None = None) -> Reloading:
    return Reloading(source(read, path), ignored(applied), clock=lambda: AT, look_s=0.01)


async def test_good_settings_are_applied() -> None:
    applied: list[Settings] = []
    reloading = made(settings, applied)

    await reloading.reload("a test")

    assert (applied, reloading.last) == ([settings()], Reload(at=AT))


@pytest.mark.parametrize(
    ("fault", "said"), [(ConfigurationError("line 3: unknown key"), "line 3: unknown key"), (RuntimeError("secret"), FAULT)]
)
async def test_bad_settings_are_not_and_it_says_so(fault: Exception, said: str, caplog: pytest.LogCaptureFixture) -> None:
    def read() -> Settings:
        raise fault

    applied: list[Settings] = []
    reloading = made(read, applied)

    await reloading.reload("a test")

    assert (applied, reloading.last) == ([], Reload(at=AT, error=said))
    assert any(each.levelno == logging.ERROR and said in each.getMessage() for each in caplog.records)


async def test_a_changed_file_is_read_once_it_stands_still(tmp_path: Path) -> None:
    path, applied, reads = tmp_path / "gateway.yaml", list[Settings](), list[str]()
    path.write_text("one")

    def read() -> Settings:
        reads.append(path.read_text())
        return settings()

    reloading = made(read, applied, path)
    reloading.start()
    await asyncio.sleep(0.05)
    assert reads == []
    path.write_text("second")
    await until(lambda: len(applied) == 1)
    other = tmp_path / "other"
    other.write_text("third, by a rename")
    other.rename(path)
    await until(lambda: len(applied) == 2)
    path.unlink()
    await asyncio.sleep(0.05)
    await reloading.stop()

    assert reads == ["second", "third, by a rename"]


async def test_a_change_while_the_file_is_read_is_seen(tmp_path: Path) -> None:
    path, applied = tmp_path / "gateway.yaml", list[Settings]()
    path.write_text("one")

    def load() -> Settings:
        if not applied:
            path.write_text(path.read_text() + ", another")
        return settings()

    found = Source(load, path)
    found.read()
    reloading = Reloading(found, ignored(applied), clock=lambda: AT, look_s=0.01)
    reloading.start()
    await until(lambda: len(applied) == 2)  # the first reading changed it again
    await reloading.stop()


async def test_a_mounted_link_that_points_elsewhere_is_a_change(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("same size")
    link = tmp_path / "link"
    link.symlink_to("a")
    before = mark(link)
    link.unlink()
    link.symlink_to("b")

    assert before != mark(link)


async def test_sighup_reloads() -> None:
    applied: list[Settings] = []
    reloading = made(settings, applied)
    reloading.start()
    os.kill(os.getpid(), signal.SIGHUP)
    await until(lambda: len(applied) == 1)
    await reloading.stop()
