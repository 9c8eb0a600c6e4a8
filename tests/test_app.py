import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from gateway.app import App, build, canonical, explain
from gateway.errors import ConfigurationError
from gateway.ledger.memory import MemoryLedger
from gateway.ledger.records import CallFinished, ConfigChanged
from gateway.reloading import Source
from gateway.settings import Settings, load, read, with_server
from tests.api.test_chat import Client
from tests.providers.test_openai import Server

pytestmark = pytest.mark.anyio

# Port 9 of this machine is closed: every call of a provider fails at once.
TEXT = """
providers: {up: {base_url: 'http://127.0.0.1:9/v1', api_key: none}}
routes:
  - name: small
    models: [s]
    retry: {attempts: 1}
    targets:
      - {provider: up, model: tiny, window_tokens: 60, tokenizer: bytes}
      - {provider: up, model: big, window_tokens: 100000, tokenizer: bytes}
  - name: rest
    models: ['*']
    retry: {attempts: 1}
    targets: [{provider: up, model: big, window_tokens: 100000, tokenizer: bytes}]
"""
MORE = """
passthrough: {provider: up}
server: {max_body_bytes: 5000, cors_origins: ['https://page.example']}
auth: {admin_key: boss}
"""


KEY_SHA256 = hashlib.sha256(b"k").hexdigest()


def settings(more: str = "") -> Settings:
    return load(TEXT + more, source="test", env={})


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def client(app: App) -> AsyncIterator[httpx.AsyncClient]:
    await app.started()
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as made:
            yield made
    finally:
        await app.stop()


def body(text: str = "hi", model: str = "s") -> bytes:
    return json.dumps({"model": model, "messages": [{"role": "user", "content": text}]}).encode()


@pytest.mark.parametrize(
    ("path", "served"),
    [
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("//v1//chat///completions/", "/v1/chat/completions"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/models", "/v1/models"),
        ("/embeddings/", "/v1/embeddings"),
        ("/v1/models/a/b", "/v1/models/a/b"),
        ("/dashboard", "/dashboard"),
        ("/", "/"),
        ("//", "/"),
    ],
)
def test_a_path_is_served_as_it_was_meant(path: str, served: str) -> None:
    assert canonical(path) == served


async def test_each_planned_path_reaches_the_pipeline() -> None:
    ledger = MemoryLedger()
    async with client(App(settings(), ledger)) as http:
        for path in ("/v1/chat/completions", "/v1/v1/chat/completions", "/chat/completions/"):
            answer = await http.post(path, content=body())
            assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_error")
            assert answer.headers["x-gateway-route"] == "small"
            assert answer.headers["x-gateway-target"] == "up/big"
            assert answer.headers["x-gateway-runway"].startswith("estimate=")

    assert [each.target for each in ledger.records if isinstance(each, CallFinished)] == ["up/tiny", "up/big"] * 3
    assert sum(isinstance(each, ConfigChanged) for each in ledger.records) == 1


async def test_every_record_of_a_call_names_its_key() -> None:
    ledger = MemoryLedger()
    keyed = settings("auth: {keys: [{name: team, sha256: '" + KEY_SHA256 + "'}]}")
    async with client(App(keyed, ledger)) as http:
        await http.post("/v1/chat/completions", content=body(), headers={"x-api-key": "k"})

    named = [each.key for each in ledger.records if not isinstance(each, ConfigChanged)]
    assert len(named) == 4
    assert set(named) == {"team"}


async def test_without_a_ledger_calls_are_refused_and_it_still_lives() -> None:
    ledger = MemoryLedger(unavailable="away")
    app = App(settings("server: {shutdown_grace_s: 0.1}"), ledger)
    async with client(app) as http:
        answer = await http.post("/v1/chat/completions", content=body())
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "snapshot_unavailable")
        assert (await http.get("/health/live")).status_code == 200
        assert (await http.get("/health/ready")).status_code == 503
        ledger.unavailable = None


async def test_explain_says_what_each_target_would_get_and_sends_nothing() -> None:
    ledger = MemoryLedger()
    async with client(App(settings(), ledger)) as http:
        found = (await http.post("/gateway/explain", content=body("word " * 100))).json()
        other = (await http.post("/gateway/explain?route=rest", content=body())).json()
        wrong = await http.post("/gateway/explain", content=b"{")

    assert (found["route"], [each["target"] for each in found["targets"]]) == ("small", ["up/tiny", "up/big"])
    assert [each["verdict"] for each in found["targets"]] == ["refused", "fits"]
    assert other["route"] == "rest"
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "invalid_json")
    assert [type(each) for each in ledger.records] == [ConfigChanged]
    assert await explain(settings(), body("word " * 100), None) == found


async def test_a_client_that_leaves_while_it_asks_for_an_explanation_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    app, left = App(settings(), MemoryLedger()), Client([])
    left.gone.set()
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/gateway/explain",
        "headers": [],
        "query_string": b"",
        "client": ("127.0.0.1", 1),
    }

    await app(scope, left.receive, left.send)

    assert not caplog.records


async def test_what_is_not_served_is_an_error_that_sdks_read() -> None:
    async with client(App(settings(), MemoryLedger())) as http:
        for method, path, status, code in (
            ("GET", "/nothing", 404, "not_found"),
            ("POST", "/health/live", 405, "not_found"),
            ("POST", "/v1/embeddings", 404, "model_not_found"),
            ("GET", "/v1/chat/completions", 404, "not_found"),
            ("POST", "/v1/responses", 404, "not_found"),
        ):
            answer = await http.request(method, path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), path


async def test_other_paths_go_through_where_a_provider_is_named() -> None:
    ledger = MemoryLedger()
    async with client(App(settings(MORE), ledger)) as http:
        assert (await http.post("/embeddings", content=b"{}")).status_code == 502
        assert (await http.post("/v1/embeddings", content=b"x" * 5_001)).status_code == 413
        assert (await http.post("/v1/%2e%2e/secret", content=b"")).status_code == 400

    assert [each.target for each in ledger.records if isinstance(each, CallFinished)] == ["up/embeddings"]


async def test_what_the_admin_sees_needs_the_admin_key() -> None:
    async with client(App(settings(MORE), MemoryLedger())) as http:
        for path in ("/gateway/config", "/gateway/routes", "/gateway/snapshots", "/gateway/budgets", "/metrics", "/dashboard"):
            assert (await http.get(path)).status_code == 401, path
            answer = await http.get(path, headers={"authorization": "Bearer boss"})
            assert answer.status_code == 200, path
            assert "boss" not in answer.text
        assert (await http.get("/health/live")).status_code == 200


async def test_without_keys_no_page_of_a_browser_spends_this_machines_money() -> None:
    ledger = MemoryLedger()
    async with client(App(settings(), ledger)) as http:
        for path in ("/v1/chat/completions", "/chat/completions", "/v1/embeddings", "/gateway/explain"):
            for origin in ("https://evil.example", "null", "http://rebound.example"):
                headers = {"origin": origin, "content-type": "text/plain"}
                answer = await http.post(path, content=body(), headers=headers)
                assert (answer.status_code, answer.json()["error"]["code"]) == (403, "route_not_allowed")
        assert (await http.post("/gateway/explain", content=body(), headers={"origin": "http://127.0.0.1"})).status_code == 200

    assert not any(isinstance(each, CallFinished) for each in ledger.records)


async def test_the_admin_logs_in_by_form_and_out_again() -> None:
    async with client(App(settings(MORE), MemoryLedger())) as http:
        asked = await http.get("/dashboard", headers={"accept": "text/html"})
        assert asked.headers["location"] == "/dashboard/login?next=%2Fdashboard"
        assert (await http.get(asked.headers["location"])).status_code == 200
        assert (await http.post("/dashboard/login", data={"key": "boss"})).status_code == 303
        page = await http.get("/dashboard")
        assert page.status_code == 200
        assert "script-src" in (await http.get("/gateway/config")).headers["content-security-policy"]
        foreign = await http.post("/gateway/explain", content=body(), headers={"origin": "https://page.example"})
        assert foreign.status_code == 403
        await http.post("/dashboard/logout")
        assert (await http.get("/dashboard")).status_code == 401


async def test_origins_that_are_named_are_let_in() -> None:
    async with client(App(settings(MORE), MemoryLedger())) as http:
        for origin, told in (("https://page.example", "https://page.example"), ("https://evil.example", None)):
            answer = await http.post("/v1/chat/completions", content=body(), headers={"origin": origin})
            assert answer.headers.get("access-control-allow-origin") == told


async def test_models_are_the_routes_with_their_smallest_window() -> None:
    async with client(App(settings(), MemoryLedger())) as http:
        listed = (await http.get("/v1/models")).json()
        assert "s" in [each["id"] for each in listed["data"]]
        assert (await http.get("/v1/models/s")).json()["id"] == "s"


async def test_a_window_that_the_provider_tells_is_planned_against_and_recorded() -> None:
    body_of_models = json.dumps({"data": [{"id": "big", "owned_by": "vllm", "max_model_len": 4_096}]}).encode()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(body_of_models) + body_of_models)

    server = Server(script)
    listening = await asyncio.start_server(server.accept, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    text = TEXT.replace("http://127.0.0.1:9/v1", address).replace("window_tokens: 100000, ", "")
    async with client(App(load(text, source="test", env={}), MemoryLedger())) as http:
        for _ in range(200):
            planned = (await http.post("/gateway/explain", content=body("x" * 20_000, "other"))).json()["targets"][0]
            if planned["runway"]["window"] is not None:
                break
            await asyncio.sleep(0.01)

    assert (planned["runway"]["window"], planned["verdict"]) == (4_096, "refused")
    assert server.line == "GET /v1/models HTTP/1.1"  # once, though two routes have the target
    assert len(server.heads) == 1
    listening.close()


async def test_an_app_is_built_from_its_settings(tmp_path: Path) -> None:
    app = build(with_server(settings(f"ledger: {{url: 'sqlite:{tmp_path / 'b.db'}'}}"), port=1))

    await app.stop()

    assert app.settings.server.port == 1


async def test_every_answer_has_a_request_id() -> None:
    async with client(App(settings(), MemoryLedger())) as http:
        for path in ("/nothing", "/v1/models", "/health", "/gateway/routes", "/v1/responses"):
            assert (await http.get(path)).headers["x-request-id"], path
        refused = await http.get("/v1/realtime", headers={"upgrade": "websocket"})
        assert refused.status_code == 426
        assert refused.headers["x-request-id"]


OTHER = TEXT.replace("models: [s]", "models: [t]").replace("up: {base", "up: {drop_fields: [user], base")


async def test_a_reload_swaps_all_at_once_and_is_recorded() -> None:
    ledger = MemoryLedger()
    app = App(settings(), ledger, Source(settings))
    async with client(app) as http:
        before = (await http.get("/gateway/config")).json()
        await app.apply(load(OTHER, source="test", env={}))
        after = (await http.get("/gateway/config")).json()
        old = await http.post("/v1/chat/completions", content=body(model="s"))
        new = await http.post("/v1/chat/completions", content=body(model="t"))

    assert before["digest"] != after["digest"]
    assert before["since"] < after["since"]
    assert [answer.headers["x-gateway-route"] for answer in (old, new)] == ["rest", "small"]
    assert [each.digest for each in ledger.records if isinstance(each, ConfigChanged)] == [before["digest"], after["digest"]]


async def test_the_page_says_how_the_last_reload_went(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(TEXT)
    app = App(read(path, {}), MemoryLedger(), Source(lambda: read(path, {}), path))
    assert app.reloading is not None
    async with client(app) as http:
        assert (await http.get("/gateway/config")).json()["last_reload"] is None
        path.write_text(TEXT.replace("retry", "rettry"))
        await app.reloading.reload("a test")
        bad = (await http.get("/gateway/config")).json()
        path.write_text(OTHER)
        await app.reloading.reload("a test")
        good = (await http.get("/gateway/config")).json()

    assert bad["last_reload"]["ok"] is False
    assert "did you mean retry" in bad["last_reload"]["error"]
    assert (good["last_reload"]["ok"], good["last_reload"]["error"]) == (True, None)
    assert good["digest"] == load(OTHER, source="other", env={}).digest != bad["digest"]


async def test_a_provider_keeps_its_connections_until_nobody_uses_it() -> None:
    app = App(settings(), MemoryLedger())
    first, second = app.now, load(TEXT.replace("models: [s]", "models: [t]"), source="test", env={})
    first.calls = 1  # a stream that began under the first configuration
    await app.apply(second)
    kept = app.now.upstreams["up"]
    assert kept is first.upstreams["up"]
    closed: list[bool] = []
    app.now.upstreams["up"].close = lambda: note(closed)  # type: ignore[method-assign]
    await app.apply(load(OTHER, source="test", env={}))
    assert (closed, app.now.upstreams["up"] is kept) == ([], False)
    first.calls = 0
    await app._retire(first)

    assert closed == [True]


async def test_what_needs_a_restart_is_refused_whole() -> None:
    app = App(settings(), MemoryLedger())
    with pytest.raises(ConfigurationError, match="ledger cannot change"):
        await app.apply(load(OTHER + "ledger: {timeout_s: 3}", source="test", env={}))

    assert app.settings == settings()


async def note(closed: list[bool]) -> None:
    closed.append(True)
