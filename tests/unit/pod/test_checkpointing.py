"""Checkpoints of a running pod: when one is taken, what loading does with it, and when it is left aside. All are built
from the log here; test_checkpoint_of_state.py has those that need not be."""

from __future__ import annotations

import errno
import itertools
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from tests.unit.log.offsets_history import state_of
from tests.unit.pod.test_replica_manager import DATA, PodUnderTest

from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.groups.snapshot import SNAPSHOT_VERSION
from muster_coordinator.log.checkpoint import NAME, CheckpointFile, CheckpointHead
from muster_coordinator.log.segments.cleaned import CleanedTo
from muster_coordinator.pod.chores import checkpointing
from muster_coordinator.pod.chores.checkpointing import Checkpointer, CheckpointerSettings
from muster_coordinator.pod.data_directory import StorageSettings
from muster_coordinator.pod.replica_manager import ManagerSettings
from muster_coordinator.replica.host import ReplicaHost

DIRECTORY = DATA / "__consumer_offsets-0"
INTERVAL_BYTES = 2000


class CheckpointedPod(PodUnderTest):
    """Its checkpoints are taken when the test says so."""

    @property
    def settings(self) -> ManagerSettings:
        return ManagerSettings(
            StorageSettings(segment_bytes=300, journal_bytes=1 << 20, flush_interval_ms=5, boot_id="boot"),
            commit_timeout_ms=5000,
            checkpointer=CheckpointerSettings(INTERVAL_BYTES, check_interval_ms=10**9),
        )

    @property
    def checkpointer(self) -> Checkpointer:
        (checkpointer,) = self.manager._chores
        assert isinstance(checkpointer, Checkpointer)
        return checkpointer

    @property
    def head(self) -> CheckpointHead | None:
        file = CheckpointFile.open(self.disk, DIRECTORY)
        if file is None:
            return None
        file.close()
        return file.head

    async def fill(self, commits: int = 50) -> None:
        for offset in range(commits):
            assert await self.commit(offset) == 0

    async def load_again(self, epoch: int) -> int:
        """A new run leads; how many records it replayed. Its state must be that of the whole log."""
        await self.restart()
        await self.lead(epoch)
        shard = self.manager.shards[0]
        assert shard.machine.durable_state() == state_of(self.manager.replicas[0].log.read_batches(0))
        return self.manager.metrics.records_loaded


@pytest_asyncio.fixture
async def pod(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CheckpointedPod]:
    monkeypatch.setattr(checkpointing, "PARTS_AT_ONCE", 0)
    pod = CheckpointedPod()
    await pod.manager.start()
    await pod.lead(1, bootstrap=True)
    await pod.fill()
    yield pod
    await pod.manager.stop()


async def test_load_reads_the_checkpoint_and_what_lies_behind_it(pod: CheckpointedPod) -> None:
    assert await pod.load_again(2) == 51
    await pod.checkpointer.work()
    assert pod.head == CheckpointHead(SNAPSHOT_VERSION, pod.manager.replicas[0].log_id, 52, 2)
    await pod.fill(3)
    assert await pod.load_again(3) == 3
    assert await pod.fetch() == 2


async def test_next_one_is_made_of_the_one_before_and_only_when_enough_was_written(
    pod: CheckpointedPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pod.checkpointer.work()
    first = pod.head
    assert first is not None
    await pod.fill(3)
    await pod.checkpointer.work()
    assert pod.head == first, "too early"
    await pod.fill()
    replayed: list[int] = []
    load_log = checkpointing.load_log

    def count(replica: Any, coordinator: Any, metrics: Any, **limits: Any) -> Any:
        end: int = yield from load_log(replica, coordinator, metrics, **limits)
        replayed.append(metrics.records_loaded)
        return end

    monkeypatch.setattr(checkpointing, "load_log", count)
    await pod.checkpointer.work()
    assert replayed == [53]
    assert pod.head is not None
    assert pod.head.offset == first.offset + 53
    assert await pod.load_again(2) == 0


async def test_offset_of_a_checkpoint_never_lies_above_the_commit_point(
    pod: CheckpointedPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReplicaHost, "commit_point", 30)
    await pod.checkpointer.work()
    assert pod.head is not None
    assert pod.head.offset == 30


async def test_checkpoint_that_was_discarded_is_not_the_newest_any_more(pod: CheckpointedPod) -> None:
    await pod.checkpointer.work()
    host = pod.manager.hosts[0]
    assert pod.checkpointer._newest(host)[0] == 51
    host.lost_data()
    await pod.until(lambda: host.replica.promised.rebuilding)
    assert pod.checkpointer._newest(host) == (0, 0)


async def test_leadership_that_ends_meanwhile_drops_it(pod: CheckpointedPod, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = GroupCoordinator.snapshot

    def resign(coordinator: GroupCoordinator, size: int) -> Any:
        pod.manager.hosts[0].give_up("test")
        return snapshot(coordinator, size)

    monkeypatch.setattr(GroupCoordinator, "snapshot", resign)
    await pod.checkpointer.work()
    assert (pod.checkpointer.counts.done, pod.checkpointer.counts.given_up) == (0, 1)
    assert NAME not in pod.disk.listdir(DIRECTORY)
    assert f"{NAME}.tmp" not in pod.disk.listdir(DIRECTORY)


async def test_checkpoints_are_counted_and_what_a_load_would_read_behind_them(pod: CheckpointedPod) -> None:
    counts = pod.checkpointer.counts
    log = pod.manager.replicas[0].log
    pod.disk.fail_with(errno.ENOSPC, "pwritev", only=lambda path: path.name == f"{NAME}.tmp")
    await pod.checkpointer.work()
    assert (counts.done, counts.failed, counts.byte_count) == (0, 1, 0)
    assert counts.lag_bytes == log.bytes_from(log.start_offset)
    pod.disk.fault = None
    await pod.checkpointer.work()
    assert (counts.done, counts.failed, counts.lag_bytes) == (1, 1, 0)
    assert counts.byte_count == len(pod.disk.content(DIRECTORY / NAME))
    await pod.fill(3)
    await pod.checkpointer.work()
    assert counts.done == 1
    assert 0 < counts.lag_bytes < log.bytes_from(log.start_offset)


async def test_pod_that_is_behind_with_checkpoints_rests_less(
    pod: CheckpointedPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = itertools.count()
    clock = SimpleNamespace(monotonic_s=lambda: next(seconds), monotonic_ms=lambda: 0)
    rests: list[float] = []

    async def pause(rest_s: float) -> bool:
        rests.append(rest_s)
        return False

    for commits, expected in ((50, checkpointing.REST_OVERDUE), (20, checkpointing.REST)):
        await pod.fill(commits)
        due = pod.checkpointer._due(pod.manager.hosts[0])
        assert (due >= checkpointing.OVERDUE) == (expected == checkpointing.REST_OVERDUE)
        with monkeypatch.context() as patched:
            patched.setattr(pod.checkpointer, "_clock", clock)
            patched.setattr(pod.checkpointer, "pause", pause)
            await pod.checkpointer.work()
        assert set(rests) == {expected.after(1.0)}, "for a second of work each"
        rests.clear()
    assert pod.checkpointer.counts.done == 2


async def damage(pod: CheckpointedPod) -> None:
    pod.disk.flip(DIRECTORY / NAME, len(pod.disk.content(DIRECTORY / NAME)) - 12)


async def misplace(pod: CheckpointedPod) -> None:
    content = bytes(pod.disk.content(DIRECTORY / NAME))
    other = await pod.manager.create_replica(1)
    pod.disk.write(DATA / "__consumer_offsets-1" / NAME, content)
    await pod.manager.elect(1, 1, (other.log_id,), bootstrap=True)
    assert pod.manager.shards[1].machine.offset_count == 0


@pytest.mark.parametrize("harm", [damage, misplace])
async def test_checkpoint_that_cannot_be_used_costs_time_only(pod: CheckpointedPod, harm: Any) -> None:
    await pod.checkpointer.work()
    await harm(pod)
    assert await pod.load_again(2) == (51 if harm is damage else 0)
    assert await pod.fetch() == 49


async def test_checkpoint_below_the_tombstone_horizon_is_left_aside(pod: CheckpointedPod) -> None:
    await pod.checkpointer.work()
    await pod.fill(60)
    log = pod.manager.replicas[0].log
    CleanedTo(log.closed_segments(log.end_offset)[-1][1], 60).write(pod.disk, DIRECTORY)
    log.sync()
    assert await pod.load_again(2) == 111


async def test_checkpoint_of_another_version_is_left_aside(
    pod: CheckpointedPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod.checkpointer, "_version", lambda host: 99)
    await pod.checkpointer.work()
    assert await pod.load_again(2) == 51
