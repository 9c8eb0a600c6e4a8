"""Settings as they come out of a file and of the environment, and how a wrong file is told."""

import json
import re
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from gateway.cache import rules
from gateway.cache.cost import Prices, Tier
from gateway.context.policy import CompactionPolicy, LayoutPolicy, Strategy, Volatile
from gateway.errors import ConfigurationError
from gateway.routing import Budget, Cooldown, Retry, Route, Target
from gateway.settings import (
    Address,
    Auth,
    BadFile,
    LedgerSettings,
    Log,
    Provider,
    Secret,
    Server,
    Settings,
    from_environment,
    load,
    read,
    schema,
    with_server,
)

CONFIG = Path(__file__).parent.parent / "config"
ENV = {"OPENAI_API_KEY": "sk-open", "GATEWAY_ADMIN_KEY": "adm-1n"}
HASH = "ab" * 32

LEAST = """
providers:
  up1: {base_url: http://127.0.0.1:9/v1, api_key: none}
routes:
  - name: m
    targets: [{provider: up1, model: mm}]
"""


def loaded(text: str, **env: str) -> Settings:
    return load(text, source="c.yaml", env=env)


def told(text: str, **env: str) -> str:
    with pytest.raises(BadFile) as caught:
        loaded(text, **env)
    return caught.value.message


def provider(text: str, **env: str) -> Provider:
    routes = "\nroutes: [{name: m, targets: [{provider: p, model: m}]}]"
    return loaded(f"providers:\n  p: {{{text}}}{routes}", **env).providers["p"]


def routes(*pairs: tuple[str, str]) -> str:
    lines = [f"  - {{name: {name}, targets: [{targets}]}}" for name, targets in pairs]
    return "\n".join(["providers: {u: {base_url: 'http://h', api_key: none}}", "routes:", *lines])


def test_the_least_file_has_every_default() -> None:
    made = loaded(LEAST)

    assert (Server(), Auth(), LedgerSettings(), Log()) == (made.server, made.auth, made.ledger, made.log)
    assert (made.passthrough, made.telemetry_prometheus, made.source) == (None, True, "c.yaml")
    assert {"up1": Provider(name="up1", base_url="http://127.0.0.1:9/v1", api_key=None, key_mode="none")} == made.providers
    assert (Route(name="m", models=("m",), targets=(Target(provider="up1", model="mm"),)),) == made.routes
    assert Budget(input_tokens=None, output_reserve_tokens=None, margin=0.02) == made.routes[0].budget


def test_defaults_are_those_of_the_contract() -> None:
    made = loaded(LEAST)

    server = made.server
    assert (
        server.host, server.port, server.max_body_bytes, server.shutdown_grace_s, server.cors_origins, server.keepalive_s,
    ) == ("127.0.0.1", 4100, 33554432, 30, (), 0)  # fmt: skip
    ledger = made.ledger
    assert (
        ledger.url.reveal(), ledger.durability, ledger.on_failure, ledger.timeout_s, ledger.pool,
    ) == ("sqlite:gateway.db", "appended", "closed", 2, 16)  # fmt: skip
    times = made.providers["up1"].timeout
    assert (times.connect_s, times.first_byte_s, times.idle_s, times.total_s) == (5, 120, 120, 900)
    route = made.routes[0]
    assert (Retry(attempts=2, max_wait_s=10, total_attempts=4), Cooldown(failures=3, seconds=30)) == (route.retry, route.cooldown)
    assert (CompactionPolicy(), LayoutPolicy()) == (route.compaction, route.layout)


def test_the_example_loads_and_says_what_it_says() -> None:
    made = read(CONFIG / "gateway.example.yaml", ENV)

    assert [each.name for each in made.routes] == ["coding", "cheap"]
    assert [each.name for each in made.routes[0].targets] == ["openai/gpt-5.6", "openai/gpt-5.4", "local/qwen3"]
    longer = Prices(input=5, cached=0.5, cache_write=5, output=22.5)
    assert made.routes[0].targets[1].prices == Prices(
        input=2.5, cached=0.25, cache_write=2.5, cache_write_long=5, output=15, tiers=(Tier(above_tokens=200_000, prices=longer),)
    )
    assert made.routes[1].targets[0].window_tokens == 65536
    assert made.routes[1].targets[0].output_limit_tokens == 8192


def test_the_quickstart_loads() -> None:
    assert read(CONFIG / "quickstart.yaml", ENV).routes[0].name == "coding"


def keys_of(form: Any) -> Iterator[str]:
    if isinstance(form, dict):
        yield from form.get("properties", {})
        for each in form.values():
            yield from keys_of(each)
    elif isinstance(form, list):
        for each in form:
            yield from keys_of(each)


@pytest.mark.parametrize("key", sorted(set(keys_of(schema()))))
def test_every_key_is_in_the_example(key: str) -> None:
    assert re.search(rf"(?m)(?:^|[\s{{,]){re.escape(key)}:", (CONFIG / "gateway.example.yaml").read_text())


def test_every_problem_is_told_at_once_with_its_place() -> None:
    text = LEAST.replace("up1, model: mm", "up2, model: 1e3").replace("- name: m", "- name: no\n    compactoin: {}")
    bare = "text is meant: put it in quotes"

    assert [
        "c.yaml:1:1: passthru: unknown key; accepted here: server, auth, ledger, providers, routes, passthrough, budgets, "
        "telemetry, log; did you mean passthrough",
        f"c.yaml:5:11: routes[0].name: bare, this may be read as a truth value; {bare} (here: no)",
        "c.yaml:6:5: routes[0].compactoin: unknown key; accepted here: name, models, targets, budget, compaction, layout, compose, "
        "retry, cooldown, snapshots; did you mean compaction",
        "c.yaml:7:26: routes[0].targets[0].provider: there is no provider 'up2'; there are: up1; did you mean up1",
        f"c.yaml:7:38: routes[0].targets[0].model: bare, this may be read as a number; {bare} (here: 1e3)",
    ] == told("passthru: {}" + text).splitlines()


def test_problems_are_values_too() -> None:
    with pytest.raises(BadFile) as caught:
        loaded(LEAST + "server: {port: 99999}")
    problem = caught.value.problems[0]

    assert (problem.file, problem.line, problem.column, problem.path, problem.value) == ("c.yaml", 7, 16, "server.port", "99999")
    assert problem.message == "must be at most 65535 (here: 99999)"


@pytest.mark.parametrize("text", ["", "# nothing\n", "[]", "x: ", "providers: {}", "routes:"])
def test_a_file_without_providers_and_routes_is_refused(text: str) -> None:
    assert "providers" in told(text)


def test_a_lost_indentation_is_refused_and_guessed() -> None:
    message = told(LEAST.replace("  up1:", "up1:"))

    assert "c.yaml:2:1: providers: has no value" in message
    assert "lost its indentation?" in message
    assert "c.yaml:3:1: up1: unknown key" in message


@pytest.mark.parametrize("name", ["no", "on", "1.10", "2024-01-01", "0o17", "1e3", "true", "0x1F", "12"])
def test_a_bare_name_that_is_something_else_must_be_quoted(name: str) -> None:
    assert "put it in quotes" in told(routes((name, "{provider: u, model: m}")))
    assert name == loaded(routes((f"'{name}'", "{provider: u, model: m}"))).routes[0].name


def test_off_is_a_strategy_without_quotes() -> None:
    assert loaded(LEAST + "    compaction: {strategy: off}").routes[0].compaction.strategy == Strategy.OFF


def test_routes_end_in_other_routes_depth_first_each_target_once() -> None:
    made = loaded(
        routes(
            ("m", "{route: other}, {provider: u, model: last}, {route: o}"),
            ("other", "{route: p}, {provider: u, model: second}"),
            ("o", "{route: p}, {provider: u, model: fourth}"),
            ("p", "{provider: u, model: first}"),
        )
    )

    assert [each.name for each in made.routes[0].targets] == ["u/first", "u/second", "u/last", "u/fourth"]


def test_one_model_with_two_figures_in_a_route_is_refused() -> None:
    one = "{provider: u, model: x, window_tokens: 1000}"

    assert "u/x is a target of this route twice" in told(
        routes(("m", one + ", {route: other}"), ("other", "{provider: u, model: x}"))
    )
    assert len(loaded(routes(("m", f"{one}, {one}"))).routes[0].targets) == 1


def test_what_a_route_says_comes_out() -> None:
    made = loaded(
        LEAST
        + """
    models: ["gpt-*", x]
    budget: {input_tokens: 5, output_reserve_tokens: 0, margin: 0.5, output_over_window: shrink}
    compaction: {strategy: sliding_window, low_water: 0.25, protect_first: 0, protect_last_tokens: 7, prune_tool_outputs: false}
    layout: {volatile: observe, volatile_patterns: ["^now"], tools: as_sent, cache_marks: auto, cache_ttl: 5m, affinity: false}
    retry: {attempts: 1, max_wait_s: 0.5, total_attempts: 9}
    cooldown: {failures: 1000, seconds: 0}
"""
    ).routes[0]

    assert made.models == ("gpt-*", "x")
    assert Budget(input_tokens=5, output_reserve_tokens=0, margin=0.5, shrink_output=True) == made.budget
    assert (
        made.compaction.low_water, made.compaction.protect_first, made.compaction.protect_last_tokens,
        made.compaction.prune_tool_outputs,
    ) == (0.25, 0, 7, False)  # fmt: skip
    assert LayoutPolicy(volatile=Volatile.OBSERVE, volatile_patterns=("^now",), tools_sorted=False) == made.layout
    assert (Retry(attempts=1, max_wait_s=0.5, total_attempts=9), Cooldown(failures=1000, seconds=0)) == (made.retry, made.cooldown)


def test_what_a_provider_says_comes_out() -> None:
    made = provider(
        "kind: openai, base_url: 'https://h/api/v1/?key=sk-q&v=', api_key: '${K}', headers: {X-A: '${K}'}, "
        "query: {api-version: '1.10'}, "
        "timeout: {total_s: 7}, drop_fields: [seed], rename_fields: {b: c, a: d}, developer_role: false, cache: deepseek",
        K="sk-key",
    )

    assert ("https://h/api/v1", Secret("sk-key"), "own") == (made.base_url, made.api_key, made.key_mode)
    assert (("X-A", Secret("sk-key")),) == made.headers
    assert (("key", Secret("sk-q")), ("v", Secret("")), ("api-version", Secret("1.10"))) == made.query
    assert (
        made.drop_fields, made.rename_fields, made.developer_role, made.cache,
    ) == (("seed",), (("b", "c"), ("a", "d")), False, "deepseek")  # fmt: skip
    assert (made.timeout.connect_s, made.timeout.total_s) == (5, 7)


def test_client_and_none_are_keyless() -> None:
    client, none = provider("base_url: 'http://h', api_key: client"), provider("base_url: 'http://h', api_key: none")

    assert (client.key_mode, client.api_key, none.key_mode, none.api_key) == ("client", None, "none", None)


def test_keys_come_out_with_their_hash_in_lower_case() -> None:
    keys = loaded(LEAST + f"auth: {{keys: [{{name: a, sha256: {HASH.upper()}, routes: [m], tenant: t, audience: [x]}}]}}").auth.keys

    assert [(k.name, k.sha256, k.routes, k.tenant, k.audience) for k in keys] == [("a", HASH, ("m",), "t", ("x",))]


def test_the_log_level_of_the_environment_wins() -> None:
    assert loaded(LEAST + "log: {level: error}", GATEWAY_LOG_LEVEL="DEBUG").log.level == "debug"
    assert "GATEWAY_LOG_LEVEL is not one of debug, info" in told(LEAST, GATEWAY_LOG_LEVEL="loud")


SECRETS = f"""
auth: {{admin_key: "${{A}}", keys: [{{name: a, sha256: {HASH}}}]}}
ledger: {{url: "redis://user:s3cret-l@h:1/0?password=s3cret-m"}}
providers:
  up1: {{base_url: "http://h/v1?key=s3cret-u", api_key: "${{K}}", headers: {{x: s3cret-h}}, query: {{q: s3cret-q}}}}
routes: [{{name: m, targets: [{{provider: up1, model: m}}]}}]
"""


def test_no_secret_shows_in_repr_or_in_display() -> None:
    made = loaded(SECRETS, A="s3cret-a", K="s3cret-k")

    assert "s3cret" not in repr(made) + str(made) + f"{made.auth.admin_key} {made.ledger.url} {made.providers['up1'].query}"
    assert made.ledger.url.display == "redis://h:1/0"


@pytest.mark.parametrize(
    "text",
    [
        SECRETS.replace("redis:", "mysql:"),
        SECRETS.replace("http:", "ftp:"),
        SECRETS.replace("http://h", "http://s3cret@h"),
        SECRETS.replace("${K}", "s3cret k"),
        SECRETS.replace("s3cret-h", '"s3cret\\n"'),
        SECRETS.replace("api_key", "apikey"),
        SECRETS.replace("${K}", "${S3CRET_IS_NO_NAME}"),
        SECRETS.replace(HASH, "s3cret-a-key-pasted-here"),
        SECRETS.replace("query: {q: s3cret-q}", "query: s3cret-q"),
        SECRETS.replace("providers:\n  up1: ", "providers:\n  up1: {s3cret: "),
        SECRETS.replace("${A}", "${A}\\n"),
    ],
)
def test_no_secret_shows_in_an_error(text: str) -> None:
    with pytest.raises(BadFile) as caught:
        loaded(text, A="s3cret-a", K="s3cret-k")

    shown = repr(caught.value) + str(caught.value) + repr(caught.value.problems)
    assert not re.search(r"s3cret-[a-z]\b|s3cret@|s3cret k|s3cret-a-key", shown)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_the_digest_is_that_of_what_is_meant() -> None:
    one, same = (
        loaded(SECRETS, A="a", K="k"),
        load(f"# other\n{SECRETS}\nserver: {{shutdown_grace_s: 30}}", source="d", env={"A": "a", "K": "k"}),
    )

    assert re.fullmatch(r"[0-9a-f]{64}", one.digest)
    assert one.digest == same.digest
    assert one.digest != loaded(SECRETS, A="a", K="other").digest
    assert one.digest != loaded(SECRETS.replace("model: m", "model: mm"), A="a", K="k").digest


def test_settings_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        loaded(LEAST).source = "x"  # type: ignore[misc]  # that is what is tested


def test_the_command_lines_address_is_under_the_same_rule() -> None:
    made = loaded(LEAST)

    assert (with_server(made, host="127.0.0.2", port=5).server.host, with_server(made, port=5).server.port) == ("127.0.0.2", 5)
    with pytest.raises(ConfigurationError, match=r"auth\.keys"):
        with_server(made, host="0.0.0.0")
    assert with_server(loaded(SECRETS, A="a", K="k"), host="0.0.0.0").server.host == "0.0.0.0"


def test_a_file_that_cannot_be_read_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        read(tmp_path / "none.yaml", {})
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9")
    with pytest.raises(ConfigurationError, match="is not UTF-8: a wrong byte at offset 3"):
        read(tmp_path / "latin.yaml", {})
    (tmp_path / "bom.yaml").write_text("\ufeff" + LEAST)

    assert str(tmp_path / "bom.yaml") == read(tmp_path / "bom.yaml", {}).source


def test_no_provider_key_in_the_environment_gives_no_settings() -> None:
    assert from_environment({}) is None
    assert from_environment({"OPENAI_API_KEY": " ", "ANTHROPIC_API_KEY": "x"}) is None


def test_provider_keys_in_the_environment_give_a_provider_and_routes() -> None:
    made = from_environment({"XAI_API_KEY": "sk-x", "DEEPSEEK_API_KEY": "sk-d"})

    assert made is not None
    assert {"deepseek", "xai"} == set(made.providers)
    assert Secret("sk-d") == made.providers["deepseek"].api_key
    assert (made.passthrough, made.routes[-1].targets[0].name) == ("deepseek", "deepseek/deepseek-chat")
    assert made.routes[-1].models == ("*",)
    assert "sk-" not in repr(made)


@pytest.mark.parametrize("variable", ["OPENAI", "DEEPSEEK", "GROQ", "MISTRAL", "XAI", "OPENROUTER", "GEMINI", "MOONSHOT"])
def test_each_known_variable_is_found(variable: str) -> None:
    made = from_environment({f"{variable}_API_KEY": "k"})

    assert made is not None
    assert [variable.lower()] == list(made.providers)
    assert made.providers[variable.lower()].base_url.startswith("https://")


def test_the_schema_is_json_and_knows_every_level() -> None:
    made = json.loads(json.dumps(schema()))

    assert (False, {"^x-"}) == (made["additionalProperties"], set(made["patternProperties"]))
    assert {"providers", "routes"} == set(made["required"])


def test_addresses_show_no_password() -> None:
    assert str(Address("rediss://u:p@h/1?x=y")) == "rediss://h/1"
    assert Address("sqlite:a/b.db").display == "sqlite:a/b.db"


def test_a_caches_name_or_figures_are_kept() -> None:
    text = "providers: {u: {base_url: 'http://u/v1', api_key: none, cache: CACHE}}\n"
    text += "routes: [{name: r, targets: [{provider: u, model: m}]}]"

    named, corrected = (
        load(text.replace("CACHE", each), source="f", env={}).providers["u"]
        for each in ("mistral", "{rule: anthropic, minimum_tokens: 512, read: 0.05}")
    )

    assert (named.cache, named.cache_figures) == ("mistral", ())
    assert (corrected.cache, dict(corrected.cache_figures)) == ("anthropic", {"minimum_tokens": 512, "read": 0.05})


def test_the_form_knows_every_rule_of_the_table() -> None:
    named = schema()["$defs"]["CacheForm"]["properties"]["rule"]["enum"]

    assert set(named) | {"openai_older", "openai_5_5", "azure_older"} == set(rules.NAMES)
