import re
from collections.abc import Iterable
from html.parser import HTMLParser

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from gateway.dashboard.views import Dashboard
from gateway.ledger.records import Outcome, Record, Usage
from tests.api.test_admin import ListLedger, finished


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def client(ledger: ListLedger, clock: Clock | None = None, cold_records: int = 5_000) -> TestClient:
    pages = Dashboard(ledger, clock=clock or Clock(), cold_records=cold_records)
    return TestClient(Starlette(routes=[Route("/dashboard", pages.page), Route("/dashboard/static/style.css", pages.style)]))


def text(records: Iterable[Record]) -> str:
    answer = client(ListLedger(records)).get("/dashboard")
    assert answer.status_code == 200
    return answer.text


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
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert tag == self.open.pop()


def calls() -> list[Record]:
    return [
        finished(1, usage=Usage(input_tokens=1000, cached_tokens=900, output_tokens=10), cost_usd=0.00072),
        finished(2, usage=Usage(input_tokens=1000)),
        finished(3, outcome=Outcome.UPSTREAM_ERROR, reason="server: answered 500"),
        finished(4, route="cold", usage=Usage(input_tokens=12345, cached_tokens=0)),
    ]


def test_the_page_shows_ratio_by_route_and_links_the_last_calls() -> None:
    page = text(calls())

    assert "90.0 %" in page
    assert "0.0 %" in page
    assert "12,345" in page
    assert "$0.0007" in page
    links = [attrs.get("href") for tag, attrs in Tags(page).seen if tag == "a"]
    assert [link for link in links if link and "/snap" in link][1:3] == ["/gateway/snapshots/snap4", "/gateway/snapshots/snap3"]
    bars = [attrs["width"] for tag, attrs in Tags(page).seen if tag == "rect" and attrs["class"] == "hit"]
    assert bars == ["0.00", "90.00"]


def test_a_refusal_before_any_target_is_linked_by_its_own_record() -> None:
    record = finished(1, outcome=Outcome.REFUSED, target="", reason="estimate 9 is over 8")
    refused = type(record)(id="own", at=record.at, outcome=record.outcome, route="r", reason=record.reason)

    page = text([refused])

    assert "/gateway/snapshots/own" in page
    assert "not reported" in page


def test_an_empty_ledger_says_what_to_do_next() -> None:
    page = text([])

    assert "No call has ended yet" in page
    assert "OPENAI_BASE_URL=http://testserver/v1" in page


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


def test_names_and_reasons_cannot_become_markup() -> None:
    record = finished(1, route=HOSTILE, target=HOSTILE, session=HOSTILE, reason=HOSTILE, outcome=Outcome.UPSTREAM_ERROR)
    hostile = type(record)(id='"><script>', at=record.at, route=HOSTILE, target=HOSTILE, reason=HOSTILE, outcome=record.outcome)

    page = text([record, hostile])

    tags = Tags(page)
    assert not [tag for tag, _ in tags.seen if tag in ("script", "img", "iframe", "style")]
    assert not [name for _, attrs in tags.seen for name in attrs if name.startswith("on") or name == "style"]
    assert "&lt;script&gt;" in page


def test_a_hostile_host_header_cannot_become_markup() -> None:
    page = client(ListLedger()).get("/dashboard", headers={"host": "x<script>alert(1)</script>"}).text

    assert "<script" not in page


def test_the_policy_allows_nothing_foreign_and_the_page_asks_for_nothing_foreign() -> None:
    answer = client(ListLedger(calls())).get("/dashboard")

    assert answer.headers["content-security-policy"].startswith("default-src 'self';")
    assert answer.headers["cache-control"] == "no-store"
    assert not re.search(r"""(src|href)=["'](https?:)?//""", answer.text)


def test_the_style_sheet_knows_dark_and_narrow() -> None:
    answer = client(ListLedger()).get("/dashboard/static/style.css")

    assert answer.headers["content-type"].startswith("text/css")
    assert "prefers-color-scheme: dark" in answer.text
    assert "max-width: 760px" in answer.text
    assert "url(" not in answer.text


def test_the_fold_goes_on_where_it_stopped_and_reads_at_most_every_two_seconds() -> None:
    ledger, clock = ListLedger(calls()), Clock()
    browser = client(ledger, clock)

    browser.get("/dashboard")
    browser.get("/dashboard")
    assert ledger.read_count == 4

    ledger.records.append(finished(9, route="late"))
    assert "late" not in browser.get("/dashboard").text
    clock.now += 2
    assert "late" in browser.get("/dashboard").text
    assert ledger.read_count == 6
    assert ledger.open_readings == 0


def test_a_long_ledger_is_cut_and_the_page_says_so() -> None:
    ledger, clock = ListLedger(finished(n) for n in range(30)), Clock()
    browser = client(ledger, clock, cold_records=10)

    page = browser.get("/dashboard").text

    assert "latest 10 records" in page
    assert ledger.read_count == 11
    ledger.records.append(finished(40))
    clock.now += 2
    assert "latest 11 records" in browser.get("/dashboard").text
    ledger.records += [finished(n) for n in range(50, 70)]
    clock.now += 2
    assert "latest 10 records" in browser.get("/dashboard").text


def test_a_ledger_that_fails_keeps_the_figures_and_says_so() -> None:
    ledger, clock = ListLedger(calls()), Clock()
    browser = client(ledger, clock)
    browser.get("/dashboard")

    ledger.down = True
    clock.now += 2
    answer = browser.get("/dashboard")

    assert answer.status_code == 503
    assert "The ledger cannot be read." in answer.text
    assert "90.0 %" in answer.text


def test_an_exactly_full_first_reading_is_not_called_cut() -> None:
    page = client(ListLedger(finished(n) for n in range(10)), cold_records=10).get("/dashboard").text

    assert "latest 10 records" not in page


def test_cached_tokens_that_nobody_reported_are_not_shown_as_zero() -> None:
    page = text([finished(1, usage=Usage(input_tokens=5))])

    assert '<td data-label="Cached">–</td>' in page
    assert '<td data-label="Cached">0</td>' not in page
