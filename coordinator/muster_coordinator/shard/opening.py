"""What the protocol core must know of a log when a replica is opened: end, epochs, horizon, and the sets that it names.

Only records that may still be cut matter, and the last one: so nothing is read below what is known to be committed (a
checkpoint, or the cleaner's mark) but the record that names the sets there. Each epoch begins with its leader-change
record; a set record follows the leader-change record of a change closely.
"""

from __future__ import annotations

from collections.abc import Iterator

from muster_coordinator.log.partition_log import PartitionLog
from muster_coordinator.records.batch import read_batch
from muster_coordinator.replication.log_state import LogState
from muster_coordinator.replication.sets import Sets
from muster_coordinator.shard.batches import sets_of
from muster_coordinator.shard.replica import Replica

__all__ = ["log_state"]


def log_state(replica: Replica) -> LogState:
    """Blocks. All that the log holds must be durable. Raises DamagedLogError, OSError."""
    log = replica.log
    file = replica.open_checkpoint()
    committed = log.cleaned_to.end_offset
    if file is not None:
        committed = max(committed, file.head.offset)
        file.close()
    found: list[tuple[int, Sets]] = []
    entries = log.epochs.entries
    for index in range(len(entries) - 1, -1, -1):
        start = entries[index][1]
        end = entries[index + 1][1] if index + 1 < len(entries) else log.end_offset
        found = _sets_of_epoch(log, max(start, log.start_offset), end) + found
        if found and start <= committed:
            break
    return LogState(log.end_offset, entries, found, log.cleaned_to.tombstone_horizon)


def _sets_of_epoch(log: PartitionLog, start: int, end: int) -> list[tuple[int, Sets]]:
    found: list[tuple[int, Sets]] = []
    for raw in _first_batches(log, start, end):
        batch = read_batch(raw)
        sets = sets_of(batch) if batch.is_control else None
        if sets is not None:
            found.append((batch.base_offset, sets))
        if not found or not found[-1][1].previous_replicas:
            break
    return found


def _first_batches(log: PartitionLog, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        start, batches = log.read_range(start, 1).run()
        for base, _, _, data in batches:
            if base < end:
                yield data
