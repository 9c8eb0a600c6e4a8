"""Why a call found less in the provider's cache than it could have: one cause of a closed list."""

from enum import StrEnum


class Cause(StrEnum):
    """The closed list. Source: design, "The cache, known rather than hoped for"."""

    FIRST_CALL = "first_call"  # nothing like it was sent there before
    EXPIRED = "expired"  # it was, but longer ago than the provider keeps a prefix
    PREFIX_CHANGED = "prefix_changed"  # an earlier message differs from the one sent before, or was cut
    BELOW_MINIMUM = "below_minimum"  # the prefix is shorter than the provider caches
    ROUTED_ELSEWHERE = "routed_elsewhere"  # another target holds the lineage's prefix: a cold start
    TOOLS_CHANGED = "tools_changed"  # tools, or what else stands before the messages
    MODEL_CHANGED = "model_changed"  # the same provider, another model
    MARKS = "marks"  # the provider caches only at marks, and none reached the prefix
    EVICTED = "evicted"  # all was right, and the provider did not have it
