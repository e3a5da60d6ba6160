"""Leader epochs: the values that mean "none", and how far one call may raise an epoch.

Source: replication.md, "Promise" and "Resignation".
"""

from __future__ import annotations

EPOCH_JUMP_MAX = 1 << 20
"""An epoch is an int32: a single call far ahead would use up the partition's epochs."""
NO_EPOCH = -1
NOBODY = ""
"""The leader in a promise that a resignation stored. The first election or seal of that epoch fills in the name."""


class EpochJumpError(ValueError):
    """An epoch more than 2^20 above the stored one."""


def check_epoch(stored: int, requested: int) -> None:
    """Raise EpochJumpError if `requested` is too far above `stored`. Lower epochs pass."""
    if requested - max(stored, 0) > EPOCH_JUMP_MAX:
        raise EpochJumpError(f"epoch {requested} is more than {EPOCH_JUMP_MAX} above {stored}")
