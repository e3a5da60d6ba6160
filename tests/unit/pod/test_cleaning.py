"""The cleaner of a running pod: which log it takes, when it stops, and that nobody notices."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.unit.pod.test_replica_manager import DATA, PodUnderTest

from muster_coordinator.log.cleaning.cleaner import Cleaning
from muster_coordinator.pod.chores.cleaning import CleanerSettings, LogCleaner, dirty_ratio
from muster_coordinator.pod.data_directory import StorageSettings
from muster_coordinator.pod.replica_manager import ManagerSettings

SEGMENT_BYTES = 2000
DIRECTORY = DATA / "__consumer_offsets-0"


class CleanedPod(PodUnderTest):
    """Its cleaner works when the test says so, unless it lowers `backoff_ms`."""

    backoff_ms = 10**9
    bytes_per_second = 10**9

    @property
    def settings(self) -> ManagerSettings:
        return ManagerSettings(
            StorageSettings(segment_bytes=SEGMENT_BYTES, journal_bytes=1 << 20, flush_interval_ms=1, boot_id="boot"),
            commit_timeout_ms=5000,
            cleaner=CleanerSettings(
                SEGMENT_BYTES, backoff_ms=self.backoff_ms, io_max_bytes_per_second=self.bytes_per_second
            ),
        )

    @property
    def cleaner(self) -> LogCleaner:
        (cleaner,) = self.manager._chores
        assert isinstance(cleaner, LogCleaner)
        return cleaner

    @property
    def closed_bytes(self) -> int:
        log = self.manager.replicas[0].log
        return sum(segment.size for segment, _ in log.closed_segments(log.end_offset))


@pytest_asyncio.fixture
async def pod() -> AsyncIterator[CleanedPod]:
    pod = CleanedPod()
    await pod.manager.start()
    await pod.lead(1, bootstrap=True)
    await pod.fill(100)
    yield pod
    pod.disk.fault = None
    await pod.manager.stop()


async def test_pass_leaves_the_last_records_and_the_pod_serves_on(pod: CleanedPod) -> None:
    before = pod.closed_bytes
    shard = pod.manager.shards[0]
    assert dirty_ratio(pod.manager.replicas[0].log, shard.high_watermark) == 1.0
    assert await pod.cleaner.clean_dirtiest()
    assert pod.closed_bytes < before / 5
    assert await pod.commit(1000) == 0
    assert await pod.fetch() == 1000
    await pod.restart()
    await pod.lead(2)
    assert await pod.fetch() == 1000


async def test_clean_log_is_left_alone_until_enough_was_written(pod: CleanedPod) -> None:
    assert await pod.cleaner.clean_dirtiest()
    assert not await pod.cleaner.clean_dirtiest()
    await pod.fill(100)
    assert await pod.cleaner.clean_dirtiest()


async def test_log_of_which_nothing_is_known_to_be_committed_is_left_alone(pod: CleanedPod) -> None:
    await pod.restart()
    await pod.until(lambda: pod.manager.is_settled)
    assert not await pod.cleaner.clean_dirtiest()
    await pod.lead(2)
    assert await pod.cleaner.clean_dirtiest()


async def test_commits_go_on_during_a_pass(pod: CleanedPod) -> None:
    cleaning = asyncio.create_task(pod.cleaner.clean_dirtiest())
    offset = 2000
    while not cleaning.done():
        offset += 1
        assert await pod.commit(offset) == 0
    assert await pod.fetch() == offset
    await pod.restart()
    await pod.lead(2)
    assert await pod.fetch() == offset


async def test_pass_is_given_up_when_the_replica_is(pod: CleanedPod, monkeypatch: pytest.MonkeyPatch) -> None:
    hand_over = Cleaning.hand_over

    def give_up(cleaning: Cleaning) -> None:
        hand_over(cleaning)
        pod.manager.hosts[0].give_up("test")

    monkeypatch.setattr(Cleaning, "hand_over", give_up)
    before = pod.closed_bytes
    await pod.cleaner.clean_dirtiest()
    assert (pod.cleaner.counts.done, pod.cleaner.counts.given_up) == (0, 1)
    assert pod.closed_bytes == before
    assert not [name for name in pod.disk.listdir(DIRECTORY) if "compact" in name]
    await pod.lead(3)
    assert await pod.fetch() == 99


async def test_full_disk_is_tried_again_and_the_pod_serves_on(pod: CleanedPod) -> None:
    before = pod.closed_bytes
    pod.disk.fail_with(errno.ENOSPC, "pwritev", only=lambda path: path.suffix == ".compacting")
    await pod.cleaner.clean_dirtiest()
    assert not pod.manager.health.cannot_write
    assert await pod.commit(5) == 0
    pod.disk.fault = None
    assert await pod.cleaner.clean_dirtiest()
    assert pod.closed_bytes < before


async def test_passes_are_counted_and_what_there_is_to_clean(pod: CleanedPod) -> None:
    counts = pod.cleaner.counts
    before = pod.closed_bytes
    pod.disk.fail_with(errno.ENOSPC, "pwritev", only=lambda path: path.suffix == ".compacting")
    await pod.cleaner.work()
    assert (counts.done, counts.failed, counts.lag_bytes) == (0, 1, before)
    pod.disk.fault = None
    await pod.cleaner.work()
    assert (counts.done, counts.failed, counts.lag_bytes) == (1, 1, 0)
    assert counts.byte_count >= before
    assert pod.manager.background_counts == {"cleaner": counts}


async def test_damaged_log_is_not_cleaned(pod: CleanedPod) -> None:
    pod.disk.flip(DIRECTORY / "00000000000000000000.log", 100)
    await pod.cleaner.clean_dirtiest()
    assert "DamagedLogError" in pod.manager.replicas[0].log.cannot_clean
    assert not await pod.cleaner.clean_dirtiest()


async def test_failed_sync_is_a_failure_of_the_storage(pod: CleanedPod) -> None:
    pod.disk.fail_with(errno.EIO, "fdatasync", only=lambda path: path.suffix == ".log")
    await pod.cleaner.clean_dirtiest()
    assert pod.manager.health.must_restart
    await asyncio.wait_for(pod.asked_to_restart.wait(), 30)
    await pod.manager.stop()
    pod.disk.fault = None
    pod.manager = pod._new_manager()
    await pod.manager.start()
    await pod.lead(2)
    assert await pod.fetch() == 99


async def test_pod_stops_in_the_middle_of_a_pass(pod: CleanedPod) -> None:
    pod.backoff_ms, pod.bytes_per_second = 1, 1
    await pod.restart()
    await pod.lead(2)
    cleaner = pod.cleaner
    await pod.until(lambda: cleaner.counts.byte_count)  # the log was read; the pass would go on in hours
    before = pod.closed_bytes
    await pod.restart()
    assert (cleaner.counts.done, cleaner.counts.given_up) == (0, 1)
    await pod.lead(3)
    assert await pod.fetch() == 99
    assert pod.closed_bytes >= before
