"""What a compaction decided: which items stay, which of them are pruned, and the sums before and after."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`kept` and `pruned` are indexes into the arranged request's items, in order. `after` is the whole prompt's estimate.

    `boundary` is the index of the first item behind the last cut (0: nothing was cut), `before` the estimate uncut.
    """

    kept: tuple[int, ...]
    pruned: tuple[int, ...] = ()
    boundary: int = 0
    dropped: int = 0
    before: int = 0
    after: int = 0
    strategy: str = "none"

    @property
    def cut(self) -> bool:
        """Whether anything was dropped or pruned."""
        return bool(self.dropped or self.pruned)
