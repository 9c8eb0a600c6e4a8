"""What this version does not do yet, and the rules between keys: each as one wrong line in a good file."""

import pytest

from gateway.settings import BadFile, load
from gateway.settings.checks import LATER, is_loopback

KEY = "sha256: " + "ab" * 32
UP1 = "base_url: 'http://h', api_key: none"
GOOD = f"""
server: {{host: 127.0.0.1}}
auth: {{keys: [{{name: a, {KEY}}}]}}
ledger: {{url: 'sqlite:g.db'}}
providers:
  up1: {{{UP1}}}
routes:
  - name: m
    targets: [{{provider: up1, model: x}}]
"""


def told(text: str) -> list[str]:
    try:
        load(text, source="c.yaml", env={"E": "", "K": "k"})
    except BadFile as error:
        return [f"{each.path}: {each.message}" for each in error.problems]
    return []


def route(more: str) -> str:
    return f"{GOOD}    {more}\n"


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


LATER_ROWS = [
    ("ledger.url", changed("sqlite:g.db", "redis+sentinel://h/0")),
    ("ledger.url", changed("sqlite:g.db", "redis+cluster://h")),
    ("ledger.durability", changed("g.db'", "g.db', durability: replicated")),
    ("ledger.on_failure", changed("g.db'", "g.db', on_failure: spill")),
    ("ledger.on_failure", changed("g.db'", "g.db', on_failure: open")),
    ("ledger.retention.max_age_s", changed("g.db'", "g.db', retention: {max_age_s: 1}")),
    ("ledger.retention.max_bytes", changed("g.db'", "g.db', retention: {max_bytes: 1}")),
    ("ledger.retention.max_entries", changed("g.db'", "g.db', retention: {max_entries: 1}")),
    ("ledger.encryption_key", changed("g.db'", "g.db', encryption_key: '${K}'")),
    ("providers.up1.kind", changed(UP1, UP1 + ", kind: litellm")),
    ("providers.up1.kind", changed(UP1, UP1 + ", kind: litellm")),
    ("providers.up1.litellm_provider", changed(UP1, UP1 + ", litellm_provider: bedrock")),
    ("providers.up1.options", changed(UP1, UP1 + ", options: {a: 1}")),
    ("budgets.alerts", GOOD + "budgets: {alerts: {url: 'https://h/a'}}"),
    ("routes[0].budget.sections", route("budget: {sections: {tools: 1}}")),
    ("routes[0].compaction.strategy", route("compaction: {strategy: running_summary}")),
    ("routes[0].compaction.strategy", route("compaction: {strategy: semantic_truncation}")),
    ("routes[0].compaction.summarizer", route("compaction: {summarizer: {provider: up1, model: x}}")),
    ("routes[0].compaction.recall_tool", route("compaction: {recall_tool: true}")),
    ("routes[0].layout.volatile", route("layout: {volatile: freeze}")),
    ("routes[0].layout.cache_ttl", route("layout: {cache_ttl: 1h}")),
    ("routes[0].compose.persona", route("compose: {persona: p}")),
    ("routes[0].compose.variables", route("compose: {variables: {a: 1}}")),
    ("routes[0].compose.context", route("compose: {context: [{name: project, file: AGENTS.md}]}")),
    ("routes[0].compose.skills", route("compose: {skills: [a]}")),
    ("routes[0].compose.operator_prompt", route("compose: {operator_prompt: p}")),
    ("routes[0].compose.few_shot", route("compose: {few_shot: [a]}")),
    ("routes[0].compose.response_format", route("compose: {response_format: {type: text}}")),
    ("routes[0].compose.sampling", route("compose: {sampling: {temperature: 0}}")),
    ("routes[0].compose.reasoning", route("compose: {reasoning: {effort: high}}")),
    ("routes[0].compose.extensions", route("compose: {extensions: [a]}")),
    ("routes[0].compose.reminders", route("compose: {reminders: [a]}")),
    ("routes[0].compose.roles", route("compose: {roles: {planner: {persona: p}}}")),
    ("routes[0].snapshots.on_failure", route("snapshots: {on_failure: open}")),
    ("routes[0].snapshots.on_failure", route("snapshots: {on_failure: spill}")),
    ("telemetry.otlp_endpoint", GOOD + "telemetry: {otlp_endpoint: 'http://h'}"),
]


@pytest.mark.parametrize(("path", "text"), LATER_ROWS, ids=[f"{path}-{i}" for i, (path, _) in enumerate(LATER_ROWS)])
def test_what_comes_later_is_refused_at_load(path: str, text: str) -> None:
    assert [each.startswith(f"{path}: not in this version") for each in told(text)] == [True]


def test_every_row_of_what_comes_later_is_tested() -> None:
    tested = {path.replace("[0]", ".*").replace(".up1.", ".*.") for path, _ in LATER_ROWS}

    assert [row[0] for row in LATER if row[0].removesuffix(".*") not in tested and not any(
        each.startswith(row[0].removesuffix("*")) for each in tested
    )] == []  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        changed("g.db'", "g.db', retention: {max_age_s: 0, max_bytes: 0, max_entries: 0}, durability: fsynced, on_failure: closed"),
        changed("sqlite:g.db", "redis://:p%40@127.0.0.1:6379/0?x=y"),
        changed("sqlite:g.db", "rediss://h"),
        changed("sqlite:g.db", "sqlite:///tmp/g.db"),
        changed("127.0.0.1", "0.0.0.0"),
        route("layout: {cache_marks: auto, cache_ttl: 5m, affinity: true}"),
        route("layout: {cache_marks: off, affinity: false}"),
        route("compaction: {strategy: sliding_window, recall_tool: false, summary_max_tokens: 9, timeout_s: 1}"),
        route("compose: {persona: '', variables: {}, context: [], response_format: null, roles: {}}"),
        route("snapshots: {on_failure: closed}"),
        GOOD + "telemetry: {prometheus: false, otlp_endpoint: ''}\npassthrough: {provider: up1}",
    ],
)
def test_what_needs_no_later_feature_is_accepted(text: str) -> None:
    assert told(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (changed("127.0.0.1", "0.0.0.0").replace(f"{{name: a, {KEY}}}", ""), "server.host: without auth.keys only a loopback"),
        (changed(KEY, f"{KEY}}}, {{name: a, sha256: {'cd' * 32}"), "auth.keys[1].name: there is another key of this name, in line"),
        (changed(KEY, f"{KEY}}}, {{name: b, {KEY}"), "auth.keys[1].sha256: there is another key"),
        (changed("sqlite:g.db", "mysql://h"), "ledger.url: accepted are sqlite:FILE, redis://"),
        (changed("sqlite:g.db", "redis://"), "ledger.url: accepted are"),
        (changed("sqlite:g.db", "redis://h:x/0"), "ledger.url: accepted are"),
        (changed("sqlite:g.db", "sqlite:"), "ledger.url: sqlite: needs a file"),
        (changed("sqlite:g.db'", "redis://h', durability: fsynced"), "ledger.durability: fsynced is for sqlite: alone"),
        (changed(", api_key: none", ""), "providers.up1.api_key: provider up1 has no key"),
        (changed("api_key: none", "api_key: ''"), "providers.up1.api_key:"),
        (changed("api_key: none", "api_key: ~"), "providers.up1.api_key: has no value"),
        (changed("api_key: none", "api_key: '${E}'"), "providers.up1.api_key: the environment variable E is empty"),
        (changed("base_url: 'http://h', ", ""), "providers.up1.base_url: is missing"),
        (changed("http://h", "h/v1"), "providers.up1.base_url: must be an address"),
        (changed("http://h", "ftp://h"), "providers.up1.base_url: must be an address"),
        (changed("http://h", "http://"), "providers.up1.base_url: must be an address"),
        (changed("http://h", "http://h:99999"), "providers.up1.base_url: must be an address"),
        (changed("http://h", "http://h/a b"), "providers.up1.base_url: must be an address"),
        (changed("http://h", "http://u:p@h"), "providers.up1.base_url: holds a user name or password"),
        (changed("http://h", "http://h/#x"), "providers.up1.base_url: has a fragment"),
        (GOOD + "  - {name: m, targets: [{provider: up1, model: x}]}", "routes[1].name: there is another route of this name"),
        (changed("provider: up1", "provider: up"), "routes[0].targets[0].provider: there is no provider 'up'; there are: up1"),
        (changed("provider: up1, ", ""), "routes[0].targets[0].provider: is missing"),
        (changed(", model: x", ""), "routes[0].targets[0].model: is missing"),
        (changed("provider: up1", "route: m"), "routes[0].targets[0].model: a target is either"),
        (changed("provider: up1, model: x", "route: mm"), "routes[0].targets[0].route: there is no route 'mm'; there are: m"),
        (changed("provider: up1, model: x", "route: m"), "routes[0].targets[0].route: routes go in a circle: m -> m"),
        (GOOD + "passthrough: {provider: up2}", "passthrough.provider: there is no provider 'up2'"),
    ],
)  # fmt: skip
def test_rules_between_keys(text: str, expected: str) -> None:
    assert any(each.startswith(expected) for each in told(text)), told(text)


def test_a_circle_is_told_once_with_its_way() -> None:
    text = (
        changed("provider: up1, model: x", "route: b")
        + "  - {name: b, targets: [{route: c}]}\n  - {name: c, targets: [{route: b}]}"
    )

    assert told(text) == ["routes[2].targets[0].route: routes go in a circle: b -> c -> b"]


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("localhost", True), ("LOCALHOST", True)]
    + [(host, False) for host in ("0.0.0.0", "::", "10.0.0.1", "example.com", "localhost.example.com", "127.0.0.1.example.com")],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, expected: bool) -> None:
    assert expected == is_loopback(host)
