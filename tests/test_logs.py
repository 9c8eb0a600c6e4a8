import json
import logging
import sys

from gateway.logs import JSONLines


def line(message: str, *args: object, error: BaseException | None = None) -> dict[str, str]:
    info = (type(error), error, error.__traceback__) if error else None
    record = logging.LogRecord("gateway.x", logging.WARNING, __file__, 1, message, args, info)
    text = JSONLines().format(record)
    assert "\n" not in text
    made: dict[str, str] = json.loads(text)
    return made


def test_a_line_is_one_json_object_whatever_the_text() -> None:
    assert line("a\n%s b", '{"level": "fake"}')["message"] == 'a\n{"level": "fake"} b'


def test_an_exception_stays_in_its_line() -> None:
    try:
        raise ValueError("x")
    except ValueError:
        made = line("failed", error=sys.exc_info()[1])

    assert "ValueError: x" in made["exception"]
