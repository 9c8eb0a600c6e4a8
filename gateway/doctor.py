"""What `gateway doctor` looks at: the installation, the settings, the ledger, the keys. Changes nothing, calls no provider."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import Literal

from gateway.errors import ConfigurationError, GatewayError
from gateway.ledger.base import Ledger
from gateway.settings import Settings

POISONED = {"litellm": frozenset({"1.82.7", "1.82.8", "1.107.0"})}  # releases that held malware
AWAY = "calls are refused until it is back"
MIN_ADMIN_KEY = 16  # characters: shorter ones can be tried out


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at. `hint` says what to do where it is not well."""

    level: Literal["ok", "warning", "error"]
    about: str
    said: str
    hint: str = ""


def poisoned(version_of: Callable[[str], str] = metadata.version) -> list[str]:
    """Return the installed packages whose release is known to hold malware, as `name==version`."""
    found = []
    for name, versions in POISONED.items():
        try:
            version = version_of(name)
        except metadata.PackageNotFoundError:
            continue
        if version in versions:
            found.append(f"{name}=={version}")
    return found


def refuse_poisoned(version_of: Callable[[str], str] = metadata.version) -> None:
    """ConfigurationError when a known-poisoned package is installed: nothing may run beside it."""
    if found := poisoned(version_of):
        raise ConfigurationError(
            f"{', '.join(found)} is known to hold malware: uninstall it, treat every secret of this machine as stolen, "
            "and install the versions of requirements.lock"
        )


def installation(version_of: Callable[[str], str] = metadata.version) -> Finding:
    """Return whether the installed packages are free of known-poisoned releases."""
    if found := poisoned(version_of):
        return Finding(level="error", about="installation", said=f"{', '.join(found)} holds malware", hint="see requirements.lock")
    return Finding(level="ok", about="installation", said="no known-bad dependency")


def settings(found: Settings) -> Iterator[Finding]:
    """Yield what can be said of settings that are already checked."""
    count = len(found.routes)
    yield Finding(level="ok", about="settings", said=f"{found.source}: {count} {'route' if count == 1 else 'routes'}")
    key = found.auth.admin_key
    if key is not None and len(key.reveal()) < MIN_ADMIN_KEY:
        said = f"auth.admin_key has fewer than {MIN_ADMIN_KEY} characters"
        yield Finding(level="warning", about="admin key", said=said, hint="use 32 random characters")
    for route in found.routes:
        for target in route.targets:
            if target.window_tokens is None:
                said = f"route {route.name}: the window of {target.name} is left to the provider or the catalog"
                yield Finding(level="warning", about="windows", said=said, hint="set window_tokens to be sure of it")


async def ledger(open_it: Callable[[], Ledger], timeout_s: float) -> Finding:
    """Return whether the ledger takes records now, within `timeout_s`. Never raises for a store that is away."""
    store: Ledger | None = None
    try:
        async with asyncio.timeout(timeout_s):
            store = open_it()
            await store.ready()
    except TimeoutError:
        return Finding(
            level="error", about="ledger", said=f"no answer in {timeout_s:g} s", hint="calls are refused until it is back"
        )
    except GatewayError as error:
        return Finding(level="error", about="ledger", said=error.message, hint=AWAY)
    finally:
        if store is not None:
            await store.close()
    return Finding(level="ok", about="ledger", said="takes records")
