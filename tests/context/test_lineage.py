"""Continuing, forking, and two tenants that say the same."""

from gateway.context import lineage
from tests.context.talks import assistant, request, user


def test_a_request_continues_the_deepest_that_is_known() -> None:
    start = lineage.seed("t")
    talk = [user("a"), assistant("b"), user("c")]
    known = {lineage.links(start, request(talk[:1]).items)[-1]}
    fork = [user("a"), assistant("other"), user("c")]

    assert lineage.continues(lineage.links(start, request(talk).items), known.__contains__) == 1
    assert lineage.continues(lineage.links(start, request(fork).items), known.__contains__) == 1
    assert lineage.continues(lineage.links(start, request([user("z")]).items), known.__contains__) == 0


def test_equal_talks_of_two_tenants_share_no_link() -> None:
    items = request([user(), assistant()]).items

    assert not set(lineage.links(lineage.seed("a"), items)) & set(lineage.links(lineage.seed("b"), items))
