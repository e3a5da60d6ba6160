"""The distance of the newest backup of a store to the cluster: what would be lost with the cluster now."""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager

import msgspec

from muster_cli.backup.continuity import check_goes_on
from muster_cli.backup.cut import Ends, OtherHistoryError, read_ends
from muster_cli.backup.manifest import Backup
from muster_cli.backup.site import PodsOfCluster
from muster_cli.errors import CliError
from muster_coordinator.podapi.client import new_session
from muster_coordinator.podapi.segments import PartitionEntry


class Lag(msgspec.Struct, frozen=True, rename="camel"):
    """`records`: None if the cluster did not answer, and `trouble` says why. `seconds`: since the cut; 0 if no record
    came after it."""

    backup: str
    taken_at_ms: int
    records: int | None
    seconds: float
    trouble: str = ""


async def measure_lag(cluster: AbstractAsyncContextManager[PodsOfCluster], backup: Backup) -> Lag:
    """Raises OtherHistoryError."""
    try:
        async with cluster as pods, new_session() as http:
            ends = await read_ends(pods, http)
        return lag_of(backup, ends)
    except OtherHistoryError:
        raise
    except CliError as error:
        now_ms = time.time_ns() // 1_000_000
        return Lag(backup.id, backup.taken_at_ms, None, _seconds(backup, now_ms), error.message)


def lag_of(backup: Backup, ends: Ends) -> Lag:
    """Raises OtherHistoryError."""
    check_goes_on(backup, ends)
    cuts = {each.number: each.commit_point for each in backup.partitions}
    records = sum(log.entry.commit_point - cuts.get(log.entry.partition, _start(log.entry)) for log in ends.logs)
    return Lag(backup.id, backup.taken_at_ms, records, _seconds(backup, ends.read_at_ms) if records else 0.0)


def _start(entry: PartitionEntry) -> int:
    return entry.segments[0].base_offset if entry.segments else entry.commit_point


def _seconds(backup: Backup, now_ms: int) -> float:
    """The seconds, at least 0: the cut's clock may be ahead of this machine's."""
    return max(0, now_ms - backup.taken_at_ms) / 1000
