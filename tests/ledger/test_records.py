import dataclasses
from typing import get_args

import pytest

from gateway.ledger.records import Entry, Outcome, Record
from tests.ledger.values import composed


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        composed().record.attempt = 2  # type: ignore[misc]


def test_every_record_has_the_type_of_its_name_and_the_common_fields() -> None:
    common = {"id", "at", "snapshot_id", "route", "session", "lineage", "tenant", "request_id"}

    for kind in get_args(Record):
        assert kind.__name__ == kind.TYPE
        assert common <= {each.name for each in dataclasses.fields(kind)}


def test_outcomes_are_those_of_the_contract() -> None:
    assert {each.value for each in Outcome} == {
        "completed", "client_closed", "upstream_error", "upstream_timeout", "upstream_truncated", "overflow", "refused", "budget",
        "snapshot_unavailable",
    }  # fmt: skip


def test_an_entry_of_records_alone_needs_no_bodies() -> None:
    entry = Entry(records=(composed().record,))

    assert (entry.bodies, entry.roots, entry.nodes) == ({}, (), ())
