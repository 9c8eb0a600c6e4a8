from importlib import metadata

import pytest

from gateway.doctor import POISONED, installation, ledger, poisoned, refuse_poisoned, settings
from gateway.errors import ConfigurationError
from gateway.ledger.memory import MemoryLedger
from tests.test_app import settings as configured


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("version", sorted(POISONED["litellm"]))
def test_a_poisoned_release_is_refused(version: str) -> None:
    assert poisoned(lambda name: version) == [f"litellm=={version}"]
    assert installation(lambda name: version).level == "error"
    with pytest.raises(ConfigurationError, match="malware"):
        refuse_poisoned(lambda name: version)


def test_what_is_installed_here_and_what_is_not_installed_is_well() -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    refuse_poisoned()
    assert installation(absent).level == "ok"


def test_a_short_admin_key_is_warned_of_and_not_shown() -> None:
    found = list(settings(configured("auth: {admin_key: boss}")))

    assert [each.level for each in found] == ["ok", "warning"]
    assert not any("boss" in each.said for each in found)


@pytest.mark.anyio
@pytest.mark.parametrize(("away", "level"), [(None, "ok"), ("away", "error")])
async def test_the_ledger_is_asked(away: str | None, level: str) -> None:
    assert (await ledger(lambda: MemoryLedger(unavailable=away), 1)).level == level
