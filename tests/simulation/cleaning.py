"""Compaction of a simulated log by the real rules (``log.compaction``)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from muster_coordinator.log.cleaning.compaction import Compaction
from muster_coordinator.records.batch import read_batch
from muster_coordinator.replication.messages import Batch

__all__ = ["clean_batches"]


def clean_batches(batches: Sequence[Batch], wall_ms: int) -> tuple[dict[int, Batch | None], int]:
    """(base offset -> what is left of the batch, for those that change; the tombstone horizon)."""
    compaction = Compaction(wall_ms, delete_retention_ms=0)
    read = [read_batch(batch.data) for batch in batches]
    for one in read:
        compaction.note(one)
    changed: dict[int, Batch | None] = {}
    for batch, one in zip(batches, read, strict=True):
        left = compaction.keep(one)
        if not left:
            changed[batch.base_offset] = None
        elif len(left) != len(batch.data):
            changed[batch.base_offset] = msgspec.structs.replace(batch, data=left)
    return changed, compaction.horizon
