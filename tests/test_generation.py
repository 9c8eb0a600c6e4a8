import pytest

from gateway.errors import ConfigurationError
from gateway.generation import Generation, Shared, generation_of, refuse_fixed
from gateway.ledger.memory import MemoryLedger
from gateway.limits.memory import MemoryLimits
from gateway.limits.reservations import Reservations
from gateway.providers.windows import Limits
from gateway.settings import load
from gateway.telemetry import Metrics
from gateway.wiring import new_id
from tests.test_app import OTHER, TEXT, settings


def made(text: str, old: Generation | None = None) -> Generation:
    shared = Shared(
        ledger=MemoryLedger(),
        metrics=Metrics(),
        reservations=Reservations(MemoryLimits(60), (), lease_s=60, new_id=new_id),
        origins=tuple,
    )
    return generation_of(load(text, source="test", env={}), shared, old)


UNSIZED = TEXT.replace("window_tokens: 60, ", "")


def test_a_generation_takes_over_what_is_not_the_settings_own() -> None:
    first = made(UNSIZED)
    second = made(UNSIZED.replace("models: [s]", "models: [t]"), first)

    assert (first.gateway.routes[0].models, second.gateway.routes[0].models) == (("s",), ("t",))
    assert second.gateway.recorder is first.gateway.recorder
    assert second.gateway.cooldowns is first.gateway.cooldowns
    assert second.upstreams["up"] is first.upstreams["up"]


def test_what_a_provider_told_is_kept_while_the_provider_is_the_same() -> None:
    first = made(UNSIZED)
    first.tell({("up", "tiny"): Limits(window=77)})
    same, other = made(UNSIZED + "log: {level: error}", first), made(OTHER.replace("window_tokens: 60, ", ""), first)

    windows = [each.gateway.aims["small", "up/tiny"].policy.window.tokens for each in (first, same, other)]
    assert windows == [77, 77, None]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("ledger: {timeout_s: 3}", "ledger"),
        ("server: {port: 4101}", r"server\.port"),
        ("server: {shutdown_grace_s: 1, keepalive_s: 9}", r"server\.shutdown_grace_s and server\.keepalive_s"),
    ],
)
def test_what_needs_a_restart_is_named(more: str, named: str) -> None:
    refuse_fixed(settings(), load(OTHER, source="test", env={}))
    with pytest.raises(ConfigurationError, match=named):
        refuse_fixed(settings(), load(OTHER + more, source="test", env={}))
