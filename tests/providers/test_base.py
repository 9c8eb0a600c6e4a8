"""What each failure means for the next try, and that an endpoint does not show its secrets."""

import pytest

from gateway.providers.base import AttemptFailed, Endpoint, Failure

SAME = {Failure.RATE_LIMIT, Failure.OVERLOADED, Failure.SERVER, Failure.TIMEOUT, Failure.CONNECT, Failure.BROKEN}


@pytest.mark.parametrize("failure", Failure)
def test_only_what_a_wait_may_mend_is_tried_again_at_the_same_place(failure: Failure) -> None:
    assert failure.retry_same == (failure in SAME)


@pytest.mark.parametrize("failure", Failure)
def test_every_other_target_may_do_better_but_for_the_requests_own_fault(failure: Failure) -> None:
    assert failure.try_other == (failure is not Failure.REQUEST)


@pytest.mark.parametrize("failure", [Failure.OVERFLOW, Failure.TOO_LARGE, Failure.REQUEST])
def test_what_the_prompt_caused_is_no_fault_of_the_targets_health(failure: Failure) -> None:
    assert not failure.unhealthy


@pytest.mark.parametrize("failure", [*SAME, Failure.AUTH, Failure.MODEL, Failure.OUT_OF_MONEY])
def test_what_the_target_caused_counts_against_it(failure: Failure) -> None:
    assert failure.unhealthy


def test_an_endpoint_does_not_show_its_secrets() -> None:
    endpoint = Endpoint(name="up1", base_url="http://up1/v1", key="SECRET", headers=(("k", "SECRET"),), query=(("k", "SECRET"),))

    assert "SECRET" not in repr(endpoint)


def test_an_endpoint_shows_no_address_that_may_hold_a_key() -> None:
    assert "SECRET" not in repr(Endpoint(name="up1", base_url="http://user:SECRET@up1/v1?key=SECRET"))


def test_a_failed_attempt_says_why() -> None:
    error = AttemptFailed(Failure.TIMEOUT, "up1 did not answer in time")

    assert (error.failure, error.message, str(error)) == (
        Failure.TIMEOUT,
        "up1 did not answer in time",
        "up1 did not answer in time",
    )
