"""The archive of a running pod, and the cleaner that waits for it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Event

import pytest_asyncio
from tests.unit.pod.test_replica_manager import PodUnderTest

from muster_coordinator.log.cleaning.archive import DirectoryArchive
from muster_coordinator.log.segments.partition_log import LogSettings
from muster_coordinator.pod.chores.archiving import Archiver, ArchiverSettings
from muster_coordinator.pod.chores.cleaning import CleanerSettings, LogCleaner
from muster_coordinator.pod.data_directory import StorageSettings
from muster_coordinator.pod.replica_manager import ManagerSettings

ROOT = Path("/archive")
NEVER_MS = 10**9


class ArchivedPod(PodUnderTest):
    """Its archiver and its cleaner work when the test says so."""

    @property
    def settings(self) -> ManagerSettings:
        return ManagerSettings(
            StorageSettings(segment_bytes=1000, journal_bytes=1 << 20, flush_interval_ms=1, boot_id="boot"),
            commit_timeout_ms=5000,
            cleaner=CleanerSettings(1000, backoff_ms=NEVER_MS, io_max_bytes_per_second=10**9),
            archiver=ArchiverSettings(DirectoryArchive(self.disk, ROOT), 10**9, NEVER_MS),
        )

    @property
    def workers(self) -> tuple[Archiver, LogCleaner]:
        archiver, cleaner = self.manager._chores
        assert isinstance(archiver, Archiver)
        assert isinstance(cleaner, LogCleaner)
        return archiver, cleaner

    @property
    def archived(self) -> list[str]:
        return sorted(path.name for path in self.disk.names if ROOT in path.parents)


@pytest_asyncio.fixture
async def pod() -> AsyncIterator[ArchivedPod]:
    pod = ArchivedPod()
    await pod.manager.start()
    await pod.lead(1, bootstrap=True)
    await pod.fill(60)
    yield pod
    pod.disk.fault = None
    await pod.manager.stop()


async def test_nothing_is_cleaned_before_it_is_archived(pod: ArchivedPod) -> None:
    archiver, cleaner = pod.workers
    log = pod.manager.replicas[0].log
    closed = [segment.path.name for segment, _ in log.closed_segments(log.end_offset)]
    assert len(closed) > 2
    assert not await cleaner.clean_dirtiest()
    await archiver.work()
    assert pod.archived == closed
    assert await cleaner.clean_dirtiest()
    assert len(log.closed_segments(log.end_offset)) < len(closed)


async def test_next_run_goes_on_behind_what_is_archived(pod: ArchivedPod) -> None:
    archiver, cleaner = pod.workers
    await archiver.work()
    await cleaner.clean_dirtiest()
    before = pod.archived
    await pod.restart()
    await pod.lead(2)
    await pod.fill(60)
    archiver, cleaner = pod.workers
    await archiver.work()
    assert pod.archived[: len(before)] == before
    assert len(pod.archived) > len(before)
    assert await cleaner.clean_dirtiest()
    assert await pod.fetch() == 59


async def test_log_in_the_place_of_another_one_is_archived_beside_it(pod: ArchivedPod) -> None:
    """A full copy may lack what was compacted elsewhere, so its segments are others, under the same names."""
    archiver, cleaner = pod.workers
    await archiver.work()
    [host] = pod.manager.hosts.values()
    replica = host.replica
    before = archiver.archived_to(host)
    batches = list(replica.log.read_batches(0))
    copy = replica.begin_copy(1000)
    for batch in batches[:1] + batches[3:]:
        copy.append(batch.data, batch.base_offset, batch.end_offset, batch.leader_epoch)
    replica.swap_in(copy, 0, LogSettings(1000))
    assert archiver.archived_to(host) == 0 < before
    assert not await cleaner.clean_dirtiest()
    await archiver.work()
    closed = [segment.path.name for segment, _ in replica.log.closed_segments(host.commit_point)]
    directory = ROOT / replica.directory.name / replica.log_id
    assert sorted(pod.disk.listdir(directory / "1")) == closed
    assert archiver.counts.failed == 0
    await pod.restart()
    await pod.lead(2)
    archiver, _ = pod.workers
    await archiver.work()
    assert archiver.counts.failed == 0


async def test_archive_that_is_full_stops_the_cleaner_and_nothing_else(pod: ArchivedPod) -> None:
    archiver, cleaner = pod.workers
    pod.disk.fail_with(errno.ENOSPC, "pwritev", only=lambda path: ROOT in path.parents)
    await archiver.work()
    assert not await cleaner.clean_dirtiest()
    assert await pod.commit(77) == 0
    assert not pod.manager.health.cannot_write
    pod.disk.fault = None
    await archiver.work()
    assert await cleaner.clean_dirtiest()


async def test_copies_are_counted_and_what_is_not_archived(pod: ArchivedPod) -> None:
    archiver, _ = pod.workers
    log = pod.manager.replicas[0].log
    closed = [segment.size for segment, _ in log.closed_segments(log.end_offset)]
    pod.disk.fail_with(errno.ENOSPC, "pwritev", only=lambda path: ROOT in path.parents)
    await archiver.work()
    counts = archiver.counts
    assert (counts.done, counts.failed, counts.byte_count, counts.lag_bytes) == (0, 1, 0, sum(closed))
    pod.disk.fault = None
    await archiver.work()
    assert (counts.done, counts.failed, counts.byte_count, counts.lag_bytes) == (len(closed), 1, sum(closed), 0)


async def test_bytes_that_wait_are_shown_while_the_archive_does_not_answer(pod: ArchivedPod) -> None:
    archiver, _ = pod.workers
    log = pod.manager.replicas[0].log
    closed = [segment.size for segment, _ in log.closed_segments(log.end_offset)]
    answers = Event()

    def fault(operation: str, path: Path, size: int) -> None:
        if ROOT in path.parents:
            answers.wait(20)

    pod.disk.fault = fault
    work = asyncio.create_task(archiver.work())
    await pod.until(lambda: archiver.counts.lag_bytes == sum(closed))
    answers.set()
    await work
    assert archiver.counts.lag_bytes == 0


async def test_log_of_which_nothing_is_known_to_be_committed_is_not_archived(pod: ArchivedPod) -> None:
    await pod.restart()
    await pod.until(lambda: pod.manager.is_settled)
    archiver, _ = pod.workers
    await archiver.work()
    assert pod.archived == []
