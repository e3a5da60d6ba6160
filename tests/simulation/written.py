"""Records and logs that a test of the checkers writes by hand."""

from __future__ import annotations

from tests.simulation.disk_log import DiskLog
from tests.simulation.machine import make_batch

from muster_coordinator.records.offset_commit import encode_offset_commit_key, encode_offset_commit_value
from muster_coordinator.records.structs import OffsetCommitValue
from muster_coordinator.state_machine import Record


def commit_record(offset: int) -> Record:
    """Group "g" commits `offset` for partition 0 of topic "t"."""
    value = OffsetCommitValue(offset, -1, "", 0, -1)
    return encode_offset_commit_key("g", "t", 0), encode_offset_commit_value(value), None


def log_of(*batches: tuple[int, int, Record]) -> DiskLog:
    """A log of batches of one record each: (base offset, epoch, record)."""
    log = DiskLog()
    for base_offset, epoch, record in batches:
        batch = make_batch([record], base_offset, epoch, 0)
        log.append(batch.end_offset, (batch,), [(epoch, base_offset)], 0)
    return log
