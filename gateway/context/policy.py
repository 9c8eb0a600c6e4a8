"""What configuration tells the core about one target: frozen, serialisable, recorded by digest.

A recorded prompt is rebuilt from its request, its policy and its evidence, so everything that configuration says and
that changes bytes or verdicts stands here, with every default resolved.
"""

import dataclasses
import json
from dataclasses import dataclass
from enum import StrEnum


class Strategy(StrEnum):
    SLIDING_WINDOW = "sliding_window"
    RUNNING_SUMMARY = "running_summary"
    SEMANTIC_TRUNCATION = "semantic_truncation"
    OFF = "off"


class Volatile(StrEnum):
    RELOCATE = "relocate"
    FREEZE = "freeze"
    OBSERVE = "observe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A model's shared window and its output limit, in billed tokens. None: not known. `source` says who told."""

    tokens: int | None = None
    output_limit: int | None = None
    source: str = "unknown"  # yaml | provider | litellm | unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    strategy: Strategy = Strategy.SLIDING_WINDOW
    low_water: float = 0.5
    protect_first: int = 1
    protect_last_tokens: int = 16_000
    prune_tool_outputs: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutPolicy:
    volatile: Volatile = Volatile.RELOCATE
    volatile_patterns: tuple[str, ...] = ()
    tools_sorted: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything the core is told about one target of one route.

    `ceiling_tokens` is the route's `budget.input_tokens` (None: no ceiling), `reserve_tokens` its output reserve,
    `margin` the share of the window kept free, `safety` the factor on counted tokens. `model` is the name the target
    knows; `rename_fields` and `drop_fields` are that upstream's quirks, in the order of the settings file.
    """

    model: str
    window: Window
    ceiling_tokens: int | None = None
    reserve_tokens: int = 8_192
    margin: float = 0.02
    shrink_output: bool = False
    tokenizer: str = "bytes"
    safety: float = 1.0
    compaction: CompactionPolicy = CompactionPolicy()
    layout: LayoutPolicy = LayoutPolicy()
    drop_fields: tuple[str, ...] = ()
    rename_fields: tuple[tuple[str, str], ...] = ()
    developer_role: bool = True
    ask_usage: bool = True  # ask for usage in streams when the client did not
    speaks: tuple[str, ...] = ("chat",)  # the dialects of the target's server; what comes in another is put into the first

    def to_json(self) -> bytes:
        """Return the policy as canonical JSON: the same policy gives the same bytes. `from_json` is the inverse."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes) -> "Policy":
        """Return the policy that `to_json` wrote. Raises TypeError or ValueError for anything else."""
        values = json.loads(data)
        window = Window(**values.pop("window"))
        compaction = values.pop("compaction")
        layout = values.pop("layout")
        return cls(
            window=window,
            compaction=CompactionPolicy(**compaction | {"strategy": Strategy(compaction["strategy"])}),
            layout=LayoutPolicy(
                volatile=Volatile(layout["volatile"]),
                volatile_patterns=tuple(layout["volatile_patterns"]),
                tools_sorted=layout["tools_sorted"],
            ),
            drop_fields=tuple(values.pop("drop_fields")),
            rename_fields=tuple((old, new) for old, new in values.pop("rename_fields")),
            speaks=tuple(values.pop("speaks", ("chat",))),
            **values,
        )
