import subprocess
import sys

from tests.commands.ground import run


def test_the_commands_load_nothing_heavy_before_they_run() -> None:
    heavy = "{'asyncio', 'rich', 'pydantic', 'starlette', 'uvicorn', 'aiohttp', 'tiktoken', 'redis', 'sqlite3', 'ssl'}"
    code = f"import sys, gateway.cli; print(sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_help_names_every_command() -> None:
    shown = run("--help").stdout

    assert [name for name in ("serve", "demo", "check", "schema", "explain", "log", "show", "verify") if name not in shown] == []
