"""Guesses and counts: what is in them, and what is not."""

from collections.abc import Sequence

from gateway.context import tokens
from gateway.context.items import Item
from gateway.context.prefixes import Prefixes
from gateway.dialects.chat import CHAT
from tests.context.talks import Message, arranged, costs, user

PICTURE: Message = {
    "role": "user",
    "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 90_000}}],
}


def test_a_guess_is_a_token_for_three_bytes_and_the_protocol() -> None:
    made = arranged([user("x" * 300)])
    guess = tokens.by_bytes(made, CHAT)

    assert (-(-len(made.request.items[0].raw) // 3),) == guess.items
    assert 1_024 < guess.envelope < 1_060
    assert not guess.counted


def test_a_picture_costs_its_flat_price_and_not_its_base64() -> None:
    made = arranged([PICTURE])
    price = made.request.items[0].media_tokens

    assert 0 < price < 10_000
    assert price <= tokens.by_bytes(made, CHAT).items[0] < price + 100
    assert price <= costs(made, safety=2.0).items[0] < price + 100


def test_tools_count() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "d" * 3_000}}

    assert costs(arranged([user()], tools=[tool])).envelope - costs(arranged([user()])).envelope >= 750


def test_counts_are_multiplied_by_the_safety_and_rounded_up() -> None:
    made = arranged([user()])
    item = tokens.priced(10, made.request.items[0], 1.15)
    priced = tokens.counted(made, (item,), [], 10, 1.15)

    assert (priced.items, priced.notes) == ((12 + 4,), 0)
    assert priced.total == sum(priced.items) + priced.envelope


def test_a_price_known_for_the_first_items_is_asked_for_the_rest_alone() -> None:
    memo, asked = Prefixes[tuple[int, ...]](), list[int]()

    def price(items: Sequence[Item]) -> list[int]:
        asked.append(len(items))
        return [len(item.raw) for item in items]

    items = arranged([user(f"{n}") for n in range(6)]).request.items
    made = [tokens.known(items[:end], "k", price, memo) for end in (3, 5, 5, 6)]

    assert asked == [3, 2, 1]
    assert made == [tokens.known(items[:end], "k", price, None) for end in (3, 5, 5, 6)]
