"""What the settings are, as frozen values, and the two kinds of text in them that must not show themselves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from gateway import routing
from gateway.limits.base import Limit


class Secret:
    """Text that never shows itself: `reveal()` is the only way to it. Equal when the texts are."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"{type(self).__name__}(***)"

    def __str__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


class Address(Secret):
    """A URL that may hold a password. `display` is what may be shown of it."""

    __slots__ = ()

    @property
    def display(self) -> str:
        parts = urlsplit(self._text)
        if not parts.netloc:
            return self._text.partition("?")[0]
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def __str__(self) -> str:
        return self.display

    def __repr__(self) -> str:
        return f"Address({self.display!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    host: str = "127.0.0.1"
    port: int = 4100
    max_body_bytes: int = 33_554_432
    shutdown_grace_s: float = 30
    cors_origins: tuple[str, ...] = ()
    keepalive_s: float = 0
    max_inflight: int = 1_000
    max_inflight_bytes: int = 268_435_456


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A client's key. `sha256` is lower-case hex of the key's UTF-8 bytes, `routes` are globs over route names."""

    name: str
    sha256: str
    routes: tuple[str, ...] = ("*",)
    tenant: str = ""
    audience: tuple[str, ...] = ()
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Auth:
    admin_key: Secret | None = None
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSettings:
    url: Address = Address("sqlite:gateway.db")
    durability: Literal["appended", "fsynced"] = "appended"
    on_failure: Literal["closed"] = "closed"
    timeout_s: float = 2
    pool: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    connect_s: float = 5
    first_byte_s: float = 120
    idle_s: float = 120
    total_s: float = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One upstream. `api_key` is there when `key_mode` is `own`. `base_url` has no query: its pairs lead `query`.

    `cache` names a rule of `cache.rules`, or is `auto`; `cache_figures` override that rule's.
    """

    name: str
    kind: Literal["openai", "anthropic", "litellm"] = "openai"
    base_url: str
    api_key: Secret | None
    key_mode: Literal["own", "none", "client"]
    headers: tuple[tuple[str, Secret], ...] = ()
    query: tuple[tuple[str, Secret], ...] = ()
    timeout: Timeouts = Timeouts()
    drop_fields: tuple[str, ...] = ()
    rename_fields: tuple[tuple[str, str], ...] = ()
    developer_role: bool = True
    cache: str = "auto"
    cache_figures: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Alerts:
    """Where it is told that a budget over a period has passed one of these shares (0.8: four fifths) of it.

    The whole address is a secret: chat services put their key into its path.
    """

    url: Secret
    at: tuple[float, ...] = (0.5, 0.8, 1.0)
    timeout_s: float = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """How budgets are kept. `lease_s`: how long what a lost process had reserved still counts."""

    lease_s: float = 60
    alerts: Alerts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "pretty", "json"] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that configuration says, every default resolved. `passthrough` names a provider.

    `digest` is the SHA-256 (hex) of all of it but `source`, with the digest of each secret in the secret's place.
    """

    server: Server
    auth: Auth
    ledger: LedgerSettings
    providers: Mapping[str, Provider]
    routes: tuple[routing.Route, ...]
    passthrough: str | None
    telemetry_prometheus: bool
    budgets: Budgets = Budgets()
    log: Log
    digest: str
    source: str
