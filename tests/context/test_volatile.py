"""What moves and, longer, what must not."""

import time

import pytest

from gateway.context.volatile import scan

MOVES = [
    ("clock", "The current time is 2024-05-15 15:00:00 EST."),
    ("clock", "Current time: 2026-01-01T10:00:01"),
    ("clock", "- **Current date and time:** Tuesday, May 5, 2026 10:03 AM"),
    ("clock", "Current date/time: 2026-05-05 10:03:11 UTC"),
    ("clock", "Local time: 10:03"),
    ("clock", "Now: 2026-05-05T10:03:11Z"),
    ("clock", "It is now 10:03 on Tuesday, May 5, 2026."),
    ("clock", "Current time (UTC): 2026-05-05 10:03:11"),
    ("clock", "Current datetime: Tue May 5 10:03:11 UTC 2026"),
    ("clock", "Current time: 2026-05-05T10:03:11.123+02:00 (Europe/Berlin)"),
    ("clock", "Timestamp: 2026-05-05T10:03:11Z"),
    ("clock", "<current_time>2026-05-05T10:03:11Z</current_time>"),
    ("id", "Request ID: 3f2b8c1e-1111-4222-8333-abcdefabcdef"),
    ("id", "request_id=req_0123456789abcdef"),
    ("id", "x-request-id: 9f8e7d6c5b4a"),
    ("id", "- Trace-Id: `4bf92f3577b34da6a3ce929d0e0e4736`"),
    ("id", "UUID: 3f2b8c1e-1111-4222-8333-abcdefabcdef"),
    ("id", "Nonce: a8f5f167f44f4964"),
    ("epoch", "Unix timestamp: 1767225600"),
    ("epoch", "Current epoch time: 1767225600123"),
    ("clock", "Current local time: Wed, 15 May 2024 15:00:00 GMT"),
    ("clock", 'current_time = "2024-05-15 15:00:00"'),
    ("clock", "Server time: 10:03 UTC+02:00"),
    ("clock", "> System time: 2024-05-15T10:03-05:00"),
    ("id", "Correlation-ID: 3f2b8c1e-1111-4222-8333-abcdefabcdef"),
    ("id", "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ("epoch", "timestamp=1715785200"),
    ("billing", "x-anthropic-billing-header: cc_version=2.1.37; cch=abc1;"),
]

STAYS = [
    "Today's date: 2026-05-05",
    "Today is Tuesday, May 5, 2026.",
    "Current date: 2026-05-05",
    "Open 9:00-17:00 on weekdays.",
    "Opening hours: 09:00",
    "Office local time zone: CET",
    "Boarding time: 09:40",
    "Departure time: 2024-05-15 15:00:00",
    "Time: 10:30",
    "Check-in time is 15:00.",
    "Time limit: 00:30:00",
    "Timeout: 30:00",
    "Duration: 01:30",
    "The current time is 15:00 only if the tool says so; ask the tool.",
    "The current time is shown as 2024-05-15 15:00:00 EST in every log.",
    "If the current time is 15:00 EST, close the case.",
    "When asked for the current time, call get_time.",
    "Current version: 12:04:11-rc1",
    "Version: 2024.05.15",
    "Current time format: HH:MM:SS",
    "Request ID: required",
    "Request id format: REQ-12345678",
    "Include the request id req_0123456789 in every answer.",
    "Session ID: 3f2b8c1e-1111-4222-8333-abcdefabcdef",
    "user_id: mia_li_3668",
    "Flight ID: HAT00123456",
    "UUID: any",
    "Timestamp: 2024-05-15",
    '{"current_time": "2024-05-15 15:00:00"}',
    '  "timestamp": 1767225600,',
    "Ratio is 4:30, score 21:15.",
    "Psalm 23:14 at last.",
    "Phone: 1767225600",
    "Git status: run it before each commit.",
    "Created at 2024-05-15 15:00:00",
    "Knowledge cutoff: 2025-01",
    "meet at 10:00",
    "Local time: 9:00-17:00",
    "Local time: 09:00-12:00",
    "Our local time is 9:00 AM - 5:00 PM EST.",
    "My time: Monday 9:00-17:00",
    "Current balance as of 2024-05-15 15:00:00: $30",
    "Release 1.2.3 at 10:00",
    "Server time zone: UTC+2",
    "Current time: {{now}}",
    "Timestamp format: 2024-05-15T15:00:00Z",
    "Example timestamp: 2024-05-15T15:00:00Z",
    "e.g. Current time: 2024-05-15 15:00:00",
    '{"request_id": "3f2b8c1e-1111-4222-8333-abcdefabcdef"}',
    "Unix time: 300",
    "The x-anthropic-billing-header: is no part of your task 1.",
    "The Current time: 10:03 " + "x" * 240,
]


@pytest.mark.parametrize(("kind", "line"), MOVES)
def test_a_line_that_surely_changes_is_found_whole(kind: str, line: str) -> None:
    text = f"Before.\n{line}\nAfter."
    (span,) = scan(text)

    assert (kind, line + "\n") == (span.kind, text[span.start : span.end])


@pytest.mark.parametrize("line", STAYS)
def test_a_line_that_is_not_surely_volatile_stays(line: str) -> None:
    assert scan(f"Before.\n{line}\nAfter.") == ()


@pytest.mark.parametrize("fence", ["```", "~~~", "  ```python"])
def test_examples_in_fenced_code_stay(fence: str) -> None:
    line = "Current time: 2026-01-01T10:00:01\n"
    mark = fence.strip()[:3]

    assert len(scan(f"{fence}\n{line}{mark}\n{line}")) == 1


@pytest.mark.parametrize("opening", [
    "For example:\n", "Example:\n\n", "Answer like this:\n- Name: x\n", "**Use this format:**\n", "<example>\n\n",
    "<bad_example n=1>\n",
])  # fmt: skip
@pytest.mark.parametrize("line", ["Current time: 2026-01-01T10:00:01\n", "Request ID: 3f2b8c1e-1111-4222-8333-abcdefabcdef\n"])
def test_what_an_example_shows_stays(opening: str, line: str) -> None:
    assert scan(f"Help.\n\n{opening}{line}") == ()


def test_an_example_ends() -> None:
    line = "Current time: 2026-01-01T10:00:01\n"

    assert len(scan(f"For example:\n{line}\n{line}")) == 1
    assert len(scan(f"<example>\n{line}\n</example>\n{line}")) == 1
    assert [span.kind for span in scan(f"For example:\n{line}", ("^Current",))] == ["pattern"]


def test_a_labelled_git_status_goes_whole_and_no_more() -> None:
    text = "git status:\n M a.py\n?? b.py\nGo on.\n<git_status>\nOn branch main\n</git_status>\nEnd."

    assert [text[span.start : span.end] for span in scan(text)] == [
        "git status:\n M a.py\n?? b.py\n",
        "<git_status>\nOn branch main\n</git_status>\n",
    ]


def test_the_callers_patterns_find_their_lines_too() -> None:
    text = "a\nBuild 17 of today\nb"

    assert [span.kind for span in scan(text, (r"^Build \d+",))] == ["pattern"]


@pytest.mark.parametrize("line", ["The current time is " * 12, "- " * 110 + "1", "> " * 100 + "current time: 1", "*" * 230 + "1:2"])
def test_hostile_lines_take_no_time(line: str) -> None:
    """A pattern that backtracks would show here: 2,000 such lines in well under a second."""
    began = time.process_time()

    assert scan((line[:239] + "\n") * 2_000) == ()
    assert time.process_time() - began < 1.0
