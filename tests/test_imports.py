"""The arrows between modules, as one table: who may import whom, and which library belongs to which module."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "gateway"

# A module may import those on its own line's right-hand side; the longest prefix that matches a module decides.
ALLOWED = {
    "errors": set[str](),
    "context": {"errors", "context"},
    "dialects": {"errors", "context", "dialects", "cache"},
    "cache": {"errors", "context", "cache"},
    "routing": {"errors", "context", "cache", "limits.base"},
    "settings": {"errors", "context", "cache", "routing", "yamlfile", "limits.base"},
    "yamlfile": {"errors"},
    "litellm_import": {"errors", "yamlfile", "litellm_import"},
    "ledger.records": {"errors", "context", "cache"},
    "ledger.base": {"errors", "ledger.records"},
    "ledger.codec": {"errors", "context", "cache", "ledger.records"},
    "ledger.lua": set[str](),
    "redis_servers": set[str](),
    "ledger.redis_shard": {"errors", "redis_servers", "ledger.records", "ledger.codec", "ledger.lua"},
    "ledger.redis": {"errors", "redis_servers", "ledger.records", "ledger.base", "ledger.codec", "ledger.redis_shard"},
    "ledger.sqlite": {"errors", "ledger.records", "ledger.base", "ledger.codec"},
    "ledger.memory": {"errors", "ledger.records", "ledger.base", "ledger.codec"},
    "limits.base": {"errors"},
    "limits.lua": set[str](),
    "limits.reckoning": {"limits.base"},
    "limits.books": {"limits.base", "limits.reckoning"},
    "limits.refusals": {"errors", "limits.base"},
    "limits.reservations": {"errors", "limits.base", "limits.reckoning", "limits.refusals"},
    "charges": {"context", "cache", "routing", "ledger.records", "limits.base", "planning"},
    "limits.memory": {"errors", "limits.base", "limits.books"},
    "limits.sqlite": {"errors", "limits.base", "limits.books"},
    "limits.redis": {"errors", "limits.base", "limits.reckoning", "limits.lua"},
    "providers.base": {"errors"},
    "providers": {"errors", "context", "cache", "dialects", "routing", "providers"},
    "logs": set[str](),
    "doctor": {"errors", "settings", "ledger.base"},
    "planning": {"errors", "context", "dialects", "cache", "routing", "ledger.records", "ledger.codec", "providers.tokenizers"},
    "attempts": {
        "errors", "context", "dialects", "cache", "routing", "ledger.records", "planning", "providers.base", "charges",
        "limits.reservations",
    },
    "replay": {
        "errors", "context", "dialects", "cache", "ledger.records", "ledger.base", "ledger.codec", "planning",
        "providers.tokenizers",
    },
    "whatif": {
        "errors", "context", "dialects", "cache", "routing", "ledger.records", "ledger.base", "planning", "replay",
    },
    "dashboard.metrics": {"errors", "cache", "ledger.records"},
    "dashboard": {"errors", "api.admin", "cache", "ledger.base", "ledger.records", "replay", "dashboard"},
    "telemetry": {"errors", "cache", "ledger.records", "limits.base"},
    "recorder": {"errors", "ledger.base", "ledger.codec", "ledger.records"},
    "delivery": {
        "errors", "context", "dialects", "cache", "routing", "ledger.records", "attempts", "recorder",
        "providers.base", "providers.failures",
    },
    "pipeline": {
        "errors", "context", "dialects", "cache", "routing", "ledger.records", "ledger.base", "planning", "attempts", "recorder",
        "delivery", "providers.base", "providers.failures", "providers.tokenizers", "charges", "limits.reservations",
    },
    "counting": {"errors", "context", "ledger.records", "delivery", "pipeline", "providers.base"},
    "api": {
        "counting", "errors", "context", "dialects", "routing", "ledger.records", "ledger.base", "ledger.codec", "delivery",
        "pipeline",
        "providers.base", "api", "limits.base", "limits.refusals",
    },
}  # fmt: skip
# Composition roots and commands may know every module.
ROOTS = {"app", "wiring", "budgets", "serving", "protocol", "generation", "reloading", "cli", "commands", "demo", "__main__", ""}

# Which modules may import a library; every other one may not.
LIBRARIES = {
    "starlette": ("generation", "api", "dashboard.views", "app"),
    "redis": ("redis_servers", "ledger.redis_shard", "limits.redis"),
    "tiktoken": ("providers.tokenizers",),
    "litellm": (),
    "aiohttp": ("providers.openai", "demo"),
    "uvicorn": ("serving", "protocol", "demo", "providers.simulated"),
    "sqlite3": ("ledger.sqlite", "limits.sqlite"),
    "pydantic": ("settings",),
    "ruamel": ("settings", "yamlfile", "litellm_import"),
    "prometheus_client": ("telemetry",),
    "jinja2": ("dashboard.views",),
    "typer": ("cli", "commands"),
}
PURE = ("context", "dialects", "cache")
EFFECTS = {"asyncio", "time", "random", "os", "logging", "socket", "threading", "secrets", "uuid", "pathlib"}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


MODULES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_arrows_point_one_way(path: Path) -> None:
    name = name_of(path)
    owner = max((each for each in ALLOWED if within(name, each)), key=len, default=None)
    if owner is None:
        assert name.split(".")[0] in ROOTS or path.name == "__init__.py", f"{name} is in no row of the table"
        return
    modules = {name_of(each) for each in MODULES}
    used = {each.removeprefix("gateway.") for each in imports(path) if each.startswith("gateway.")} & modules
    wrong = {each for each in used if not any(within(each, allowed) for allowed in ALLOWED[owner] | {name}) and "." in each + "."}

    assert wrong - {package for package in wrong if any(within(other, package) for other in ALLOWED[owner])} == set()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_each_library_has_its_place(path: Path) -> None:
    name, used = name_of(path), {each.split(".")[0] for each in imports(path)}
    wrong = {
        library for library, owners in LIBRARIES.items() if library in used and not any(within(name, owner) for owner in owners)
    }

    assert wrong == set()


@pytest.mark.parametrize("path", [each for each in MODULES if name_of(each).split(".")[0] in PURE], ids=name_of)
def test_the_core_has_no_effects(path: Path) -> None:
    tree = ast.parse(path.read_text())

    assert {each.split(".")[0] for each in imports(path)} & EFFECTS == set()
    assert not any(isinstance(node, ast.AsyncFunctionDef) for node in ast.walk(tree))


def test_every_module_has_its_test_file() -> None:
    tests = ROOT.parent / "tests"
    wanted = {each for each in MODULES if each.name not in ("__init__.py", "__main__.py")}
    missing = [name_of(each) for each in wanted if not (tests / each.relative_to(ROOT)).with_name("test_" + each.name).exists()]

    assert missing == []
