"""The requests of the follower of an upstream partition to the shard that mirrors it."""

from __future__ import annotations

import msgspec

from muster_coordinator.records.batch import RecordBatch
from muster_coordinator.records.mirror_position import MirrorPosition


class TakeInRequest(msgspec.Struct, frozen=True, gc=False):
    """Append `batches`, which were read at `from_offset`. The position is `position` then."""

    from_offset: int
    batches: tuple[RecordBatch, ...]
    position: MirrorPosition


class TakeInResponse(msgspec.Struct, frozen=True, gc=False):
    """`problem`: why nothing was appended; "" if all was, and is committed. `records`: how many were appended."""

    problem: str = ""
    records: int = 0


class TakeBackRequest(msgspec.Struct, frozen=True, gc=False):
    """Remove one slice of what was read, and begin again when nothing is left."""


class TakeBackResponse(msgspec.Struct, frozen=True, gc=False):
    done: bool
