from gateway.limits import books
from gateway.limits.base import Amounts, Budget, Limit, Per, Unit
from gateway.limits.memory import DictShelf

BUDGET = Budget(route="m", limits=(Limit(unit=Unit.TOKENS, per=Per.MONTH, amount=100),))
NOW = 1_770_000_000.0


def test_a_lapsed_hold_is_remembered_for_a_day() -> None:
    for after, used in ((books.LAPSED_S, 7), (books.LAPSED_S + 1, 0)):
        shelf = DictShelf()
        books.reserve(shelf, [BUDGET], "a", 1, Amounts(tokens=9), now=NOW, lease_s=10)
        books.standings(shelf, [BUDGET], now=NOW + 10)
        books.settle(shelf, [BUDGET], "a", Amounts(tokens=7), now=NOW + 10 + after)

        assert [each.used for each in books.standings(shelf, [BUDGET], now=NOW + 10 + after)] == [used]


def test_looking_lets_lapse_once() -> None:
    shelf = DictShelf()
    books.reserve(shelf, [BUDGET], "a", 1, Amounts(tokens=9), now=NOW, lease_s=10)

    found = [books.standings(shelf, [BUDGET], now=NOW + at)[0].reserved for at in (9.9, 10, 11)]

    assert found == [9, 0, 0]
