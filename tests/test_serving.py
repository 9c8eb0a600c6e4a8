from pathlib import Path

import pytest

from gateway.app import App
from gateway.serving import simulated_settings
from gateway.wiring import open_ledger
from tests.test_app import body, client

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_the_built_in_provider_answers_through_the_whole_path(tmp_path: Path) -> None:
    made = simulated_settings()
    app = App(made, open_ledger(f"sqlite:{tmp_path / 'l.db'}", 2))
    async with client(app) as http:
        answer = await http.post("/v1/chat/completions", content=body(model="simulated"))
        assert answer.status_code == 200
        assert answer.json()["choices"][0]["message"]["content"]
        await app.gateway.recorder.drain(5)
        records = await app.ledger.find(answer.headers["x-gateway-snapshot-id"])
    assert [type(each).__name__ for each in records] == ["PromptComposed", "CallFinished"]
