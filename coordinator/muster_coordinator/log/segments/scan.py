"""The findings of a look at a segment. They are apart from the code that looks: that is compiled, and msgspec needs its
Structs as Python sees them (ADR 13).
"""

from __future__ import annotations

import msgspec


class BatchInfo(msgspec.Struct, frozen=True, gc=False):
    """The place of a batch, and its header. `position` and `size` in bytes."""

    base_offset: int
    end_offset: int
    leader_epoch: int
    crc: int
    position: int
    size: int


class Damage(msgspec.Struct, frozen=True, gc=False):
    """The first byte from which a segment cannot be read. `valid_after`: a whole batch lies after it."""

    position: int
    reason: str
    valid_after: bool


class SegmentScan(msgspec.Struct, frozen=True):
    batches: list[BatchInfo]
    size: int  # of the file
    damage: Damage | None
