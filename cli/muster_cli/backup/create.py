"""`muster backup create`: cut, copy what the store does not have, and write the manifest last.

An interrupted run leaves segments without a manifest, which count for nothing: the next run writes them again, and
`prune` removes what nobody names.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib.metadata import version
from itertools import count
from pathlib import Path

from muster_cli.backup.catalog import Catalog, read_catalog
from muster_cli.backup.continuity import check_goes_on
from muster_cli.backup.copying import ChangedError, LogCopier
from muster_cli.backup.cut import Cut, take_cut
from muster_cli.backup.manifest import Backup, PartitionCut, SegmentFile, encode_manifest
from muster_cli.backup.site import PodsOfCluster
from muster_cli.backup.store import Store
from muster_cli.errors import CliError
from muster_cli.progress import Amount
from muster_coordinator.podapi.client import new_session

CUTS_MIN, CHANGING_S = 10, 900.0
"""Logs that change while they are copied, because they are compacted or led by another pod, are cut again: at least so
often, and for that time in seconds. Each attempt copies only what the ones before have not, so it is shorter, and on a
machine under load a fixed number of them may all meet a compaction.
"""
LONGEST_S = 12 * 3600
"""`prune` keeps the segments of a dropped backup for a day, so a run that begins with them must end before."""


@dataclass(frozen=True)
class Created:
    """`sent`: bytes that the store did not have. `held_ms`: for how long markers of transactions have waited."""

    backup: Backup
    sent: int
    held_ms: float
    seconds: float


async def create_backup(
    cluster: AbstractAsyncContextManager[PodsOfCluster],
    store: Store,
    rate: int,
    progress: Amount,
    goes_on_from: Backup | None = None,
) -> Created:
    """`rate`: bytes per second that are read from pods at most. Raises CliError; OtherHistoryError: the cluster is not
    what became of that backup."""
    began = time.monotonic()
    catalog = await asyncio.to_thread(read_catalog, store)
    with tempfile.TemporaryDirectory(prefix="muster-backup-") as scratch:
        async with cluster as pods, new_session() as http:
            copier = LogCopier(store, _known(catalog), Path(scratch) / "segment", rate)
            for attempt in count(1):
                cut = await take_cut(pods, http)
                _refuse_stranger(catalog, cut)
                if goes_on_from is not None:
                    check_goes_on(goes_on_from, cut)
                try:
                    partitions = await _copied(cut, copier, progress)
                    break
                except OSError as error:
                    raise CliError(f"{error.filename or scratch}: {error.strerror or error}") from error
                except ChangedError as error:
                    spent = time.monotonic() - began
                    if attempt >= CUTS_MIN and spent > CHANGING_S:
                        told = f"the logs changed during each of {attempt} attempts in {spent:.0f} s"
                        raise CliError(f"{told}: {error}. Raise --mib-per-second") from error
    backup = Backup(
        _new_id(cut.taken_at_ms), cut.taken_at_ms, version("muster"), cut.cluster_id, cut.pods, cut.layout, partitions
    )
    if time.monotonic() - began > LONGEST_S:
        raise CliError(f"the backup has taken more than {LONGEST_S // 3600} hours and is not used: raise the rate")
    await asyncio.to_thread(store.write, backup.name, encode_manifest(backup))
    return Created(backup, copier.sent, cut.held_ms, time.monotonic() - began)


async def _copied(cut: Cut, copier: LogCopier, progress: Amount) -> tuple[PartitionCut, ...]:
    found = []
    for done, log in enumerate(cut.logs):
        progress("logs", done, len(cut.logs))
        found.append(await copier.copy(log))
    progress("logs", len(cut.logs), len(cut.logs))
    return tuple(found)


def _known(catalog: Catalog) -> dict[tuple[str, int, int], SegmentFile]:
    """The segments of complete backups that the store has still, as far as their sizes say."""
    return {
        (partition.log_id, segment.base_offset, segment.size): segment
        for backup in catalog.backups
        for partition in backup.partitions
        for segment in partition.segments
        if (stored := catalog.files.get(segment.name)) is not None and stored.size == segment.size
    }


def _refuse_stranger(catalog: Catalog, cut: Cut) -> None:
    others = {backup.cluster_id for backup in catalog.backups} - {cut.cluster_id}
    if others:
        raise CliError(
            f"the store has backups of Kafka cluster {', '.join(sorted(others))}, and this one is {cut.cluster_id}:"
            " give each cluster a directory or prefix of its own"
        )


def _new_id(taken_at_ms: int) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(taken_at_ms / 1000)) + "-" + secrets.token_hex(3)
