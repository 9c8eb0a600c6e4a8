"""A recorded policy is read back exactly."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context.policy import CompactionPolicy, LayoutPolicy, Policy, Window

NAMES = st.text(max_size=8)


@given(
    st.builds(
        Policy,
        model=NAMES,
        window=st.builds(Window, tokens=st.none() | st.integers(1)),
        margin=st.floats(0, 1),
        safety=st.floats(1, 2),
        compaction=st.from_type(CompactionPolicy),
        layout=st.from_type(LayoutPolicy),
        drop_fields=st.lists(NAMES).map(tuple),
        rename_fields=st.lists(st.tuples(NAMES, NAMES)).map(tuple),
    ).filter(lambda made: made.compaction.low_water == made.compaction.low_water)  # NaN equals nothing
)
@settings(max_examples=100, deadline=None)
def test_json_and_back_is_the_same_policy_and_the_same_bytes(policy: Policy) -> None:
    data = policy.to_json()

    assert policy == Policy.from_json(data)
    assert data == Policy.from_json(data).to_json()
