import hashlib

from gateway.limits import lua, reckoning
from gateway.limits.books import LAPSED_S


def test_the_script_is_called_by_its_digest() -> None:
    assert hashlib.sha1(lua.BOOKS, usedforsecurity=False).hexdigest() == lua.BOOKS_SHA


def test_the_script_has_the_figures_of_the_arithmetic() -> None:
    figures = f"MINUTE, LAPSED, BACK, KEEP = {reckoning.MINUTE_S}, {LAPSED_S}, {reckoning.BACK_S}, "

    assert figures.encode() in lua.BOOKS
