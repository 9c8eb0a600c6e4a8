import asyncio
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from gateway.dashboard.reading import Reader
from gateway.dashboard.views import Dashboard, address
from gateway.dashboard.window import Query
from gateway.ledger.memory import MemoryLedger
from gateway.ledger.records import CallFinished, Entry, Outcome, PromptComposed, Record
from tests.dashboard.records import START, finished, usage
from tests.dashboard.traffic import HOSTILE, entries

NOW = START + timedelta(hours=2)
UPDATE = {"hx-request": "true"}


def filled(records: Iterable[Record] = (), more: Sequence[Entry] = ()) -> MemoryLedger:
    ledger = MemoryLedger()

    async def fill() -> None:
        for entry in (*(Entry(records=(record,)) for record in records), *more):
            await ledger.append(entry)

    asyncio.run(fill())
    return ledger


def client(ledger: MemoryLedger, now: datetime = NOW) -> TestClient:
    pages = Dashboard(ledger, reader=Reader(ledger, clock=Ticking()), clock=now.timestamp)
    return TestClient(Starlette(routes=pages.routes([])))


class Ticking:
    """A clock on which the ledger is read on with every page."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 10
        return self.now


class Tags(HTMLParser):
    """Every tag and attribute of a page; a page whose tags do not close in order fails."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "input", "br", "option"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag != "option":
            assert tag == self.open.pop()

    def all(self, tag: str, attribute: str) -> list[str]:
        return [str(attrs[attribute]) for name, attrs in self.seen if name == tag and attribute in attrs]


def get(browser: TestClient, path: str, status: int = 200, *, update: bool = False) -> str:
    answer = browser.get(path, headers=UPDATE if update else {})
    assert answer.status_code == status
    Tags(answer.text)
    return answer.text


def calls() -> list[Record]:
    return [
        finished(1, usage(1000, 900, output_tokens=10), cost_usd=0.00072),
        finished(2, usage(1000)),
        finished(3, outcome=Outcome.UPSTREAM_ERROR, reason="server: answered 500"),
        finished(4, usage(12345, 0), route="cold", key="team"),
    ]


@pytest.fixture(scope="module")
def day() -> MemoryLedger:
    return filled(more=list(entries(400, NOW)))


def test_the_overview_shows_ratios_charts_and_the_log() -> None:
    page = get(client(filled(calls())), "/dashboard")

    assert "6.7 %" in page  # 900 of 13,345
    assert "90.0 %" in page
    assert "$0.0007" in page
    assert Tags(page).all("a", "href").count("/dashboard/calls/" + f"{3:032x}") == 1
    (chart,) = Tags(page).all("div", "data-chart")
    assert '"name": "cold"' in chart


def test_what_was_not_reported_is_not_shown_as_zero() -> None:
    page = get(client(filled([finished(1, usage(5))])), "/dashboard")

    assert '<td data-label="Cached">–</td>' in page
    assert '<td data-label="Cached">0</td>' not in page
    assert "not reported" in page


def test_the_address_chooses_and_keeps_what_is_chosen() -> None:
    browser = client(filled(calls()))

    page = get(browser, "/dashboard?span=6h&route=cold&key=team")

    tags = Tags(page)
    assert [attrs["value"] for tag, attrs in tags.seen if tag == "input" and "checked" in attrs] == ["6h"]
    assert "/dashboard?span=6h&route=cold&key=team" in tags.all("div", "hx-get")
    assert "12,345" in page
    assert "90.0 %" not in page
    assert address("/calls", Query(span="6h", route="a&b"), key="") == "/dashboard/calls?span=6h&route=a%26b"


def test_an_update_is_the_changing_part_alone() -> None:
    browser = client(filled(calls()))

    figures, rows = get(browser, "/dashboard", update=True), get(browser, "/dashboard/calls", update=True)

    assert figures.lstrip().startswith('<div id="figures"')
    assert rows.lstrip().startswith('<tbody id="calls"')
    assert browser.get("/dashboard").headers["vary"] == "HX-Request"
    whole = browser.get("/dashboard", headers={**UPDATE, "hx-history-restore-request": "true"}).text
    assert whole.startswith("<!doctype html>")


def test_an_empty_ledger_says_what_to_do_next() -> None:
    page = get(client(filled()), "/dashboard")

    assert "No call has ended yet" in page
    assert "OPENAI_BASE_URL=http://testserver/v1" in page


def test_an_empty_span_and_an_empty_choice_say_where_to_look() -> None:
    late = client(filled(calls()), NOW + timedelta(days=3))

    assert "No call in this span" in get(late, "/dashboard")
    assert "span=all" in get(late, "/dashboard")
    assert "Show every route and key" in get(client(filled(calls())), "/dashboard?route=gone")


def test_new_calls_appear_with_the_next_update() -> None:
    ledger = filled(calls())
    browser = client(ledger)
    assert "newcomer" not in get(browser, "/dashboard")

    asyncio.run(ledger.append(Entry(records=(finished(9, route="newcomer"),))))

    assert "newcomer" in get(browser, "/dashboard/calls", update=True)


def test_a_ledger_that_fails_keeps_the_figures_and_says_so() -> None:
    ledger = filled(calls())
    browser = client(ledger)
    get(browser, "/dashboard")

    ledger.follow = Away(ledger).follow  # type: ignore[method-assign]
    page = get(browser, "/dashboard")

    assert "The ledger cannot be read." in page
    assert "it is away" in page
    assert "90.0 %" in page


class Away(MemoryLedger):
    """A ledger that was there and is no more."""

    def __init__(self, before: MemoryLedger) -> None:
        super().__init__(unavailable="it is away")
        self.records = before.records

    async def follow(self, cursor: str = "") -> Any:
        await self.ready()
        yield cursor, self.records[0]

    async def find(self, snapshot_id: str) -> tuple[Record, ...]:
        await self.ready()
        return ()


@pytest.mark.parametrize("path", ["/dashboard/calls/x", "/dashboard/compare?before=x&after=y"])
def test_a_call_of_a_ledger_that_fails_is_503(path: str) -> None:
    assert "it is away" in get(client(Away(filled(calls()))), path, 503)


GONE = ("/dashboard/calls/x", "/dashboard/compare?before=x&after=y", "/dashboard/compare", "/dashboard/static/no")


@pytest.mark.parametrize("path", GONE)
def test_what_is_not_there_is_404_and_leads_back(path: str) -> None:
    assert 'href="/dashboard"' in get(client(filled(calls())), path, 404)


def missed(ledger: MemoryLedger, cause: str) -> CallFinished:
    return next(each for each in ledger.records if isinstance(each, CallFinished) and each.miss_cause == cause)


def test_a_miss_leads_to_the_two_prompts_at_the_byte_where_they_part(day: MemoryLedger) -> None:
    browser = client(day)
    overview = Tags(get(browser, "/dashboard"))

    compared = [path for path in overview.all("a", "href") if "/compare?" in path]
    pages = [get(browser, path) for path in compared]

    assert "prefix changed" in pages[0] + pages[-1]
    changed = next(page for page in pages if "In part 2 (system)" in page)
    assert "<mark>9 to 5." in changed
    assert "<mark>8 to 6." in changed
    assert any("goes on where the earlier one ends" in page for page in pages)


def test_a_call_shows_its_segments_its_sums_and_its_parts(day: MemoryLedger) -> None:
    record = next(each for each in reversed(day.records) if isinstance(each, CallFinished) and each.reply and not each.miss_cause)

    page = get(client(day), f"/dashboard/calls/{record.snapshot_id}")

    tags = Tags(page)
    drawn = [attrs for tag, attrs in tags.seen if tag == "rect" and attrs.get("class") in ("stable", "semi", "dynamic", "moved")]
    scale = [float(str(attrs["width"])) for attrs in drawn if attrs.get("height") == "48"]
    assert sum(scale) == pytest.approx(1000, abs=0.1)
    assert "from the cache, as reported" in page
    assert "Output reserve" in page
    assert "It leaves on time." in page
    assert page.count('<details class="part">') >= 3


def test_attempts_of_one_request_are_listed_with_why(day: MemoryLedger) -> None:
    second = next(each for each in day.records if isinstance(each, PromptComposed) and each.attempt == 2)

    page = get(client(day), f"/dashboard/calls/{second.id}")

    assert "2, this one" in page
    assert re.search(r"answered (503|429)|no answer", page)


def test_a_prompt_verifies_by_post_alone_with_and_without_script(day: MemoryLedger) -> None:
    browser, record = client(day), missed(day, "expired")
    path = f"/dashboard/calls/{record.snapshot_id}/verify"

    assert browser.get(path).status_code == 405
    assert browser.post(path, headers=UPDATE).text.lstrip().startswith('<div id="verdict"')
    plain = browser.post(path).text
    Tags(plain)
    assert "Verified, bit for bit." in plain
    assert browser.post("/dashboard/calls/none/verify").status_code == 404


def test_a_damaged_prompt_does_not_verify_and_is_shown() -> None:
    made = list(entries(3, NOW))
    record = made[0].records[0]
    assert isinstance(record, PromptComposed)
    forged = replace(record, prompt_digest=b"\1" * 32)
    ledger = filled(more=[replace(made[0], records=(forged,))])

    page = client(ledger).post(f"/dashboard/calls/{forged.id}/verify").text

    assert "Not verified:" in page


def test_a_body_that_is_gone_is_said_and_the_rest_is_shown() -> None:
    made = list(entries(3, NOW))
    ledger = filled(more=made)
    record = made[0].records[0]
    assert isinstance(record, PromptComposed)
    del ledger.stored[record.prompt.items[-1]]

    page = get(client(ledger), f"/dashboard/calls/{record.id}")

    assert "not in the ledger any more" in page
    assert "Output reserve" in page


def test_a_refusal_has_a_page_without_a_prompt(day: MemoryLedger) -> None:
    refused = next(each for each in day.records if isinstance(each, CallFinished) and each.outcome is Outcome.REFUSED)

    page = get(client(day), f"/dashboard/calls/{refused.id}")

    assert "no target can hold the required content" in page
    assert "Verify" not in page


def hostile(page: str) -> list[str]:
    """What would be markup of a prompt's, were it not escaped."""
    tags = Tags(page)
    scripts = [attrs.get("src") for tag, attrs in tags.seen if tag == "script"]
    assert all(src and src.startswith("/dashboard/static/") for src in scripts)
    wrong = [tag for tag, _ in tags.seen if tag in ("img", "iframe", "style", "object")]
    return wrong + [name for _, attrs in tags.seen for name in attrs if name.startswith("on") or name == "style"]


def test_prompts_cannot_become_markup(day: MemoryLedger) -> None:
    browser = client(day)
    names = [each.id for each in day.records if isinstance(each, PromptComposed)][:30:6]
    pages = [get(browser, f"/dashboard/calls/{name}") for name in names]
    pages += [get(browser, f"/dashboard/compare?before={one}&after={other}") for one, other in itertools.pairwise(names)]

    assert any("&lt;script&gt;" in page for page in pages)
    assert any("⟨U+202E⟩" in page for page in pages)
    assert [hostile(page) for page in pages] == [[]] * len(pages)


def test_names_and_reasons_cannot_become_markup() -> None:
    mark = HOSTILE + "\"'>{{7*7}}"
    names: dict[str, Any] = {"route": mark, "target": mark, "session": mark, "key": mark, "request_id": mark, "reason": mark}
    record = finished(1, usage(5, 0), outcome=Outcome.UPSTREAM_ERROR, miss_cause=mark, **names)
    browser = client(filled([replace(record, snapshot_id=mark)]))

    pages = [get(browser, "/dashboard"), get(browser, "/dashboard/calls/" + mark.replace("/", "%2F").replace("?", "%3F"), 404)]

    assert [hostile(page) for page in pages] == [[], []]
    assert "&lt;script&gt;" in pages[0]
    assert "{{7*7}}" in pages[0]


def test_a_hostile_host_header_cannot_become_markup() -> None:
    answer = client(filled()).get("/dashboard", headers={"host": "x<script>alert(1)</script>"})

    assert hostile(answer.text) == []


def test_pages_ask_for_nothing_foreign_and_hold_no_script_of_their_own() -> None:
    page = get(client(filled(calls())), "/dashboard")

    assert not re.search(r"""(src|href|action)=["'](https?:)?//""", page)
    assert all(tag != "style" for tag, _ in Tags(page).seen)


def test_files_are_served_by_name_alone_and_may_be_kept() -> None:
    browser = client(filled())
    tags = Tags(get(browser, "/dashboard"))
    names = [each for each in (*tags.all("script", "src"), *tags.all("link", "href")) if "static" in each]

    for name in names:
        answer = browser.get(name)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    assert "prefers-color-scheme: dark" in browser.get("/dashboard/static/style.css").text
    assert browser.get("/dashboard/static/../views.py").status_code == 404
    assert "url(" not in browser.get("/dashboard/static/style.css").text


def test_each_vendored_library_brings_its_licence() -> None:
    browser = client(filled())

    for name in ("htmx-2.0.11", "uplot-1.6.32"):
        assert "ermission" in browser.get(f"/dashboard/static/vendor/{name}.LICENSE").text


def test_the_clock_of_pages_is_utc() -> None:
    page = get(client(filled(calls())), "/dashboard")

    assert START.astimezone(UTC).strftime("%Y-%m-%d") in page
