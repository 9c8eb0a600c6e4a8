"""Types and bounds of single keys, and which keys there are at a place."""

import pytest

from gateway.settings.form import accepted_keys, fit
from gateway.yamlfile import read

GOOD = "providers: {u: {base_url: 'http://h', api_key: none%s}}\nroutes: [{name: m, targets: [{provider: u, model: x%s}]%s}]\n%s"


def told(provider: str = "", target: str = "", route: str = "", top: str = "") -> list[str]:
    given = (f", {each}" if each else "" for each in (provider, target, route))
    document = read(GOOD % (*given, top), source="c.yaml", env={})
    fit(document)
    return [f"{each.path}: {each.message}" for each in document.problems]


@pytest.mark.parametrize(
    ("top", "expected"),
    [
        ("server: {port: -1}", "server.port: must be at least 0 (here: -1)"),
        ("server: {port: '80'}", "server.port: must be a whole number (here: 80)"),
        ("server: {port: 80.0}", "server.port: must be a whole number (here: 80.0)"),
        ("server: {port: true}", "server.port: must be a whole number (here: true)"),
        ("server: {max_body_bytes: 0}", "server.max_body_bytes: must be at least 1 (here: 0)"),
        ("server: {shutdown_grace_s: -.inf}", "server.shutdown_grace_s: must be a finite number (here: -.inf)"),
        ("server: {cors_origins: x}", "server.cors_origins: must be a list (here: x)"),
        (
            "server: {cors_origins: ['http://h/p']}",
            "server.cors_origins[0]: an origin is *, or scheme://host[:port] without a path",
        ),
        ("server: 3", "server: must be a mapping of keys and values (here: 3)"),
        ("ledger: {timeout_s: 0}", "ledger.timeout_s: must be greater than 0 (here: 0)"),
        ("ledger: {timeout_s: .nan}", "ledger.timeout_s: must be a finite number (here: .nan)"),
        ("ledger: {url: sqlite, pool: 1.5}", "ledger.pool: must be a whole number (here: 1.5)"),
        ("log: {level: inof}", "log.level: is not one of debug, info, warning, error; did you mean info (here: inof)"),
        ("telemetry: {prometheus: yes}", "telemetry.prometheus: must be true or false (here: yes)"),
        ("auth: {keys: [{name: a, sha256: abc}]}", "auth.keys[0].sha256: 64 hex digits"),
        ('auth: {keys: [{sha256: abc, name: "a\\nb"}]}', "auth.keys[0].name: a name is printable"),
        ("auth: {keys: {name: a}}", "auth.keys: must be a list"),
        ("auth: {admin_key: 'a b'}", "auth.admin_key: a key is printable ASCII"),
        ("auth: {admin_key: 12345}", "auth.admin_key: bare, this may be read as a number; text is meant: put it in quotes"),
        (
            'server: {host: "a\\nb"}',
            r"server.host: a name is printable ASCII, not empty, no space around it: it goes into headers (here: a\nb)",
        ),
        ("passthrough: {}", "passthrough.provider: is missing, and is required"),
    ],
)
def test_values_that_do_not_fit_at_the_top(top: str, expected: str) -> None:
    assert any(each.startswith(expected) for each in told(top=top)), told(top=top)


@pytest.mark.parametrize(
    ("route", "expected"),
    [
        ("models: []", "routes[0].models: must hold at least one entry"),
        ("budget: {input_tokens: 0}", "routes[0].budget.input_tokens: must be at least 1 (here: 0)"),
        ("budget: {output_reserve_tokens: -5}", "routes[0].budget.output_reserve_tokens: must be at least 0 (here: -5)"),
        ("budget: {margin: 1}", "routes[0].budget.margin: must be less than 1 (here: 1)"),
        ("budget: {tokens: {limit: .inf, per: day}}", "routes[0].budget.tokens.limit: must be a whole number (here: .inf)"),
        ("budget: {tokens: {limit: -5, per: day}}", "routes[0].budget.tokens.limit: must be at least 0 (here: -5)"),
        ("budget: {tokenz: {limit: 5}}", "routes[0].budget.tokenz: unknown key; accepted here: spend, tokens"),
        ("budget: {spend: {usd: 1, per: week}}", "routes[0].budget.spend.per: is not one of hour, day, month (here: week)"),
        ("compaction: {low_water: 0}", "routes[0].compaction.low_water: must be greater than 0 (here: 0)"),
        ("compaction: {low_water: 1.0}", "routes[0].compaction.low_water: must be less than 1 (here: 1.0)"),
        ("layout: {volatile_patterns: ['a', '(']}", "routes[0].layout.volatile_patterns[1]: is no regular expression: missing )"),
        ("retry: {attempts: 0}", "routes[0].retry.attempts: must be at least 1 (here: 0)"),
        ("cooldown: {seconds: -1}", "routes[0].cooldown.seconds: must be at least 0 (here: -1)"),
        (
            "compose: {roles: {planner: {reasonin: {}}}}",
            "routes[0].compose.roles.planner.reasonin: unknown key; accepted here: persona",
        ),
    ],
)
def test_values_that_do_not_fit_in_a_route(route: str, expected: str) -> None:
    assert any(each.startswith(expected) for each in told(route=route)), told(route=route)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("window_tokens: 0", "routes[0].targets[0].window_tokens: must be at least 1 (here: 0)"),
        ("safety: 0", "routes[0].targets[0].safety: must be greater than 0 (here: 0)"),
        ("prices: {output: 1}", "routes[0].targets[0].prices.input: is missing, and is required"),
        ("prices: {input: .nan}", "routes[0].targets[0].prices.input: must be a finite number (here: .nan)"),
        ("windowtokens: 5", "routes[0].targets[0].windowtokens: unknown key; accepted here: provider, model, route, window_tokens"),
    ],
)
def test_values_that_do_not_fit_in_a_target(target: str, expected: str) -> None:
    assert any(each.startswith(expected) for each in told(target=target)), told(target=target)


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ("timeout: {idle_s: 0}", "providers.u.timeout.idle_s: must be greater than 0 (here: 0)"),
        ("headers: {x: 1.10}", "providers.u.headers.x: bare, this may be read as a number; text is meant: put it in quotes"),
        ("headers: {x: \"a\\nb\"}", "providers.u.headers.x: a header's value has no control characters"),
        ("headers: {'a b': c}", "providers.u.headers.a b: no header that can be set here"),
        ("headers: {Content-Length: '3'}", "providers.u.headers.Content-Length: no header that can be set here"),
        ("query: {api-version: 2024-10-21}", "providers.u.query.api-version: bare, this may be read as a date"),
        ("cache: none2", "providers.u.cache: is not one of auto, openai, azure, anthropic, bedrock, gemini, deepseek, xai,"),
        ("cache: {rule: no}", "providers.u.cache.rule: "),
        ("cache: {rul: none}", "providers.u.cache.rul: unknown key; accepted here: rule, minimum_tokens"),
        ("cache: {maximum_marks: 5}", "providers.u.cache.maximum_marks: must be at most 4 (here: 5)"),
        ("cache: 5", "providers.u.cache: must be a mapping"),
        ("drop_fields: [1]", "providers.u.drop_fields[0]: bare, this may be read as a number"),
        ("rename_fields: {a: no}", "providers.u.rename_fields.a: bare, this may be read as a truth value"),
        ("developer_role: 1", "providers.u.developer_role: must be true or false (here: 1)"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_in_a_provider(provider: str, expected: str) -> None:
    assert any(each.startswith(expected) for each in told(provider=provider)), told(provider=provider)


def test_a_good_file_fits() -> None:
    assert told("cache: none", "window_tokens: 5", "models: [a]", "server: {port: 0, shutdown_grace_s: 1}") == []


def test_accepted_keys_of_a_place() -> None:
    assert accepted_keys(("providers", "any", "timeout")) == ("connect_s", "first_byte_s", "idle_s", "total_s")
    assert "window_tokens" in accepted_keys(("routes", 3, "targets", 0))
    assert accepted_keys(("providers", "any", "headers")) == ()
    assert accepted_keys(("nothing", "there")) == ()
