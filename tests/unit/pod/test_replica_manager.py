"""A pod's partitions on a fake disk: who may be elected, what resigning promises, what a full disk does."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio
from tests.support.replicas import AnyTopic, Asked, NoPeers
from tests.unit.log.fake_disk import FakeDisk

from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.log.journal.journal import Journal, JournalSettings
from muster_coordinator.log.writer import JournalWriter
from muster_coordinator.pod import data_directory as storage_module
from muster_coordinator.pod import storage_upkeep
from muster_coordinator.pod.data_directory import StorageSettings
from muster_coordinator.pod.events import PodEvents
from muster_coordinator.pod.partitions import Partitions
from muster_coordinator.pod.replica_manager import ManagerSettings, ReplicaManager
from muster_coordinator.pod.status import replica_status
from muster_coordinator.process.clock import SystemClock
from muster_coordinator.replication.epochs import EPOCH_JUMP_MAX
from muster_coordinator.requests import groups as m
from muster_coordinator.states import ShardState

DATA = Path("/data")


class PodUnderTest:
    """One run of a pod after the other on one disk."""

    def __init__(self) -> None:
        self.disk = FakeDisk()
        self.asked_to_restart = asyncio.Event()
        self.manager = self._new_manager()

    @property
    def settings(self) -> ManagerSettings:
        """Those of the next run."""
        storage = StorageSettings(segment_bytes=1 << 20, journal_bytes=1 << 20, flush_interval_ms=5, boot_id="boot")
        return ManagerSettings(storage, commit_timeout_ms=5000)

    def _new_manager(self) -> ReplicaManager:
        return ReplicaManager(
            Partitions(),
            data_dir=DATA,
            disk=self.disk,
            settings=self.settings,
            clock=SystemClock(),
            peers=NoPeers(),
            new_machine=lambda number: GroupCoordinator(GroupConfig(), AnyTopic(), lambda: "suffix"),
            events=PodEvents(),
            must_restart=self.asked_to_restart.set,
        )

    async def restart(self) -> None:
        await self.manager.stop()
        self.manager = self._new_manager()
        await self.manager.start()

    async def lead(self, epoch: int, *, bootstrap: bool = False) -> CallResult:
        log_id = (await self.manager.create_replica(0)).log_id
        return await self.manager.elect(0, epoch, (log_id,), bootstrap=bootstrap)

    async def commit(self, offset: int, metadata: str = "") -> Any:
        asked = Asked()
        request = m.OffsetCommitRequest("g", -1, "", None, -1, (("t", ((0, offset, -1, metadata),)),), 7)
        self.manager.shards[0].submit(request, asked)
        response = await asyncio.wait_for(asked.done, 10)
        return response.topics[0][1][0][1] if isinstance(response, m.OffsetCommitResponse) else response

    async def fill(self, commits: int) -> None:
        """Until the segments have all of it."""
        for offset in range(commits):
            assert await self.commit(offset) == 0
        log = self.manager.replicas[0].log
        await self.until(lambda: not log.has_pending)

    async def fetch(self) -> Any:
        asked = Asked()
        request = m.OffsetFetchRequest("g", None, -1, (("t", (0,)),), False)
        self.manager.shards[0].submit(request, asked)
        response = await asyncio.wait_for(asked.done, 10)
        return response.topics[0][1][0][1] if isinstance(response, m.OffsetFetchResponse) else response

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.002)


@pytest_asyncio.fixture
async def pod(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PodUnderTest]:
    monkeypatch.setattr(storage_upkeep, "RETRY_S", 0.01)
    pod = PodUnderTest()
    await pod.manager.start()
    yield pod
    pod.disk.fault = None
    await pod.manager.stop()


async def test_bootstrapped_replica_leads_and_keeps_what_it_acknowledged_over_a_restart(pod: PodUnderTest) -> None:
    assert (await pod.lead(1, bootstrap=True)).status is CallStatus.ACCEPTED
    assert await pod.commit(41) == 0
    await pod.restart()
    assert (await pod.lead(2)).status is CallStatus.ACCEPTED
    assert await pod.fetch() == 41


@pytest.mark.parametrize("sync", ["succeeds", "fails", "has no time"])
async def test_orderly_end_leaves_nothing_in_the_journal_but_what_a_log_needs(
    pod: PodUnderTest, sync: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pod.lead(1, bootstrap=True)
    log_id = (await pod.manager.create_replica(0)).log_id
    assert await pod.commit(41) == 0
    pod.manager._directory.journal.prepare_spare()
    if sync == "fails":
        pod.disk.fail_with(errno.EIO, "fdatasync", only=lambda path: path.suffix == ".log")
    elif sync == "has no time":
        monkeypatch.setattr(storage_module, "WRITE_AT_END_S", 0.0)
    await pod.manager.stop()
    pod.disk.fault = None
    pod.disk.lose_power(Random(0))
    journal = Journal.open(pod.disk, DATA / "journal", JournalSettings(1 << 20), "boot")
    assert bool(journal.recovered(0, log_id).batches) == (sync != "succeeds")
    journal.close()
    pod.manager = pod._new_manager()
    await pod.manager.start()
    assert (await pod.lead(2)).status is CallStatus.ACCEPTED
    assert await pod.fetch() == 41


async def test_election_is_idempotent_within_a_run_and_stale_after_a_restart(pod: PodUnderTest) -> None:
    first = await pod.lead(3, bootstrap=True)
    assert first == await pod.lead(3, bootstrap=True)
    await pod.restart()
    again = await pod.lead(3)
    assert (again.status, again.epoch) == (CallStatus.STALE_EPOCH, 3)


@pytest.mark.parametrize("epoch", [0, 4])
async def test_epoch_that_is_not_higher_is_refused_with_the_current_one(pod: PodUnderTest, epoch: int) -> None:
    await pod.lead(5, bootstrap=True)
    refused = await pod.lead(epoch)
    assert (refused.status, refused.epoch) == (CallStatus.STALE_EPOCH, 5)
    assert pod.manager.shards[0].state is ShardState.ACTIVE


async def test_epoch_that_jumps_too_far_is_refused(pod: PodUnderTest) -> None:
    await pod.lead(1, bootstrap=True)
    assert (await pod.lead(EPOCH_JUMP_MAX + 2)).status is CallStatus.INVALID
    assert (await pod.lead(EPOCH_JUMP_MAX + 1)).status is CallStatus.ACCEPTED


async def test_foreign_log_id_is_refused(pod: PodUnderTest) -> None:
    await pod.manager.create_replica(0)
    outcome = await pod.manager.elect(0, 1, ("0" * 32,), bootstrap=True)
    assert outcome.status is CallStatus.WRONG_REPLICA
    assert (await pod.manager.elect(7, 1, ("0" * 32,))).status is CallStatus.WRONG_REPLICA


async def test_used_log_is_not_bootstrapped_again(pod: PodUnderTest) -> None:
    await pod.lead(1, bootstrap=True)
    assert (await pod.lead(2, bootstrap=True)).status is CallStatus.INVALID


async def test_status_shows_the_epoch_of_the_last_record_whatever_was_promised_since(pod: PodUnderTest) -> None:
    await pod.manager.create_replica(0)

    def shown() -> tuple[int, int]:
        status = replica_status(pod.manager, 0)
        assert status is not None
        return status.last_epoch, status.epoch

    assert shown() == (-1, -1)
    await pod.lead(3, bootstrap=True)
    await pod.manager.resign(0, 5)
    assert shown() == (3, 5)
    await pod.restart()
    await pod.manager.resign(0, 6)
    assert shown() == (3, 6)


async def test_empty_log_is_never_by_itself_a_reason_to_bootstrap(pod: PodUnderTest) -> None:
    refused = await pod.lead(1)
    assert refused.status is CallStatus.INVALID
    assert "bootstrap" in refused.message


async def test_higher_election_of_the_leader_keeps_what_is_loaded(pod: PodUnderTest) -> None:
    await pod.lead(1, bootstrap=True)
    await pod.commit(5)
    shard = pod.manager.shards[0]
    assert (await pod.lead(9)).status is CallStatus.ACCEPTED
    assert pod.manager.shards[0] is shard
    assert shard.epoch == 9
    assert await pod.fetch() == 5


async def test_resignation_ends_the_leadership_and_its_epoch_is_filled_by_one_election(pod: PodUnderTest) -> None:
    await pod.lead(1, bootstrap=True)
    resigned = await pod.manager.resign(0, 2)
    assert (resigned.status, resigned.ended_epoch, resigned.epoch) == (CallStatus.ACCEPTED, 1, 2)
    assert 0 not in pod.manager.shards
    assert (await pod.manager.resign(0, 2)).status is CallStatus.ACCEPTED, "idempotent"
    assert (await pod.lead(1)).status is CallStatus.STALE_EPOCH
    assert (await pod.lead(2)).status is CallStatus.ACCEPTED
    assert (await pod.manager.resign(0, 2)).status is CallStatus.STALE_EPOCH, "the name of the epoch is filled"


async def test_resignation_with_the_led_or_a_lower_epoch_is_refused(pod: PodUnderTest) -> None:
    await pod.lead(4, bootstrap=True)
    for epoch in (3, 4):
        assert (await pod.manager.resign(0, epoch)).status is CallStatus.STALE_EPOCH
    assert await pod.commit(1) == 0


async def test_full_disk_refuses_what_was_not_written_and_the_pod_comes_back_by_itself(pod: PodUnderTest) -> None:
    await pod.lead(1, bootstrap=True)
    assert await pod.commit(10) == 0
    pod.disk.fail_with(errno.ENOSPC, "pwritev_durably", "pwritev", "fill_with_zeros")
    assert await pod.commit(11) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert pod.manager.shards[0].state is ShardState.FAILED
    refused = await pod.lead(2)
    assert refused.status is CallStatus.CANNOT_WRITE
    assert "Errno 28" in refused.message
    pod.disk.fault = None
    await pod.until(lambda: not pod.manager.health.cannot_write)
    assert (await pod.lead(3)).status is CallStatus.ACCEPTED
    assert await pod.fetch() in (10, 11), "11 was not acknowledged: it may be there or not"
    assert await pod.commit(12) == 0
    await pod.restart()
    await pod.lead(4)
    assert await pod.fetch() == 12


async def test_pod_whose_disk_is_full_refuses_an_election_before_it_promises(pod: PodUnderTest) -> None:
    """Nothing was written there yet that could have failed."""
    await pod.manager.create_replica(0)
    pod.disk.room = storage_module.ROOM_BYTES - 1
    refused = await pod.lead(1, bootstrap=True)
    assert (refused.status, refused.epoch) == (CallStatus.CANNOT_WRITE, -1)
    assert "1048575 bytes are free in /data, less than 1048576" in refused.message
    pod.disk.room += 1
    assert (await pod.lead(1, bootstrap=True)).status is CallStatus.ACCEPTED
    pod.disk.room = 0
    assert (await pod.lead(1)).status is CallStatus.ACCEPTED, "it leads in that epoch already"
    assert (await pod.lead(2)).status is CallStatus.CANNOT_WRITE
    assert await pod.commit(1) == 0, "what it leads it leads on"


async def test_log_that_the_disk_did_not_let_recover_is_opened_when_it_does(pod: PodUnderTest) -> None:
    """By itself: nobody calls the pod."""
    await pod.lead(1, bootstrap=True)
    assert await pod.commit(10) == 0
    pod.disk.fail_with(errno.EIO, "open", only=lambda path: path.suffix == ".log")
    await pod.restart()
    await pod.until(lambda: 0 in pod.manager.health.unopened)
    status = replica_status(pod.manager, 0)
    assert status is not None
    assert (status.state, status.reason, status.log_end_offset) == (ShardState.FAILED, "CannotWrite", -1)
    assert "Errno 5" in status.message
    pod.disk.fault = None
    await pod.until(lambda: pod.manager.hosts[0].core is not None)
    assert not pod.manager.health.unopened
    assert not pod.manager.health.failed.is_set()
    assert (await pod.lead(2)).status is CallStatus.ACCEPTED
    assert await pod.fetch() == 10


async def test_replica_whose_log_another_pod_has_takes_no_part_until_that_ends(pod: PodUnderTest) -> None:
    await pod.lead(1, bootstrap=True)
    assert await pod.commit(10) == 0
    log_id = pod.manager.log_ids[0]
    pod.manager.doubled(0, "pod-0, pod-3")
    assert pod.manager.hosts[0].core is None
    status = replica_status(pod.manager, 0)
    assert status is not None
    assert (status.state, status.reason, status.is_damaged) == (ShardState.FAILED, "DuplicateLog", False)
    assert status.message == f"log {log_id} is on pods pod-0, pod-3: remove the volume that is a copy"
    refused = await pod.lead(2)
    assert (refused.status, refused.epoch, refused.message) == (CallStatus.DAMAGED, 1, status.message)
    assert (await pod.manager.resign(0, 3)).status is CallStatus.DAMAGED
    pod.manager.doubled(0, "")
    await pod.until(lambda: pod.manager.hosts[0].core is not None)
    assert (await pod.lead(2)).status is CallStatus.ACCEPTED
    assert await pod.fetch() == 10


@pytest.mark.interpreted
async def test_call_that_opens_a_replica_waits_until_what_was_appended_is_durable(
    pod: PodUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new core takes all that the log has for durable, and acks it."""
    await pod.lead(1, bootstrap=True)
    log, host = pod.manager.replicas[0].log, pod.manager.hosts[0]
    submit, held = JournalWriter.submit, []

    def hold(writer: JournalWriter) -> int:
        held.append(writer)
        return writer.ended + 1

    monkeypatch.setattr(JournalWriter, "submit", hold)
    committed = asyncio.ensure_future(pod.commit(10))
    await pod.until(lambda: log.end_offset > log.journaled_end)
    host.give_up("a test", CallStatus.INVALID)
    election = asyncio.ensure_future(pod.lead(2))
    await asyncio.wait((election,), timeout=0.1)
    assert host.core is None
    monkeypatch.setattr(JournalWriter, "submit", submit)
    submit(held[-1])
    assert (await election).status is CallStatus.ACCEPTED
    assert log.journaled_end == log.end_offset
    assert await committed == ErrorCode.NOT_COORDINATOR
    assert await pod.fetch() == 10


async def test_promise_that_cannot_be_written_is_not_answered_as_given(pod: PodUnderTest) -> None:
    await pod.lead(1, bootstrap=True)
    pod.disk.fail_with(errno.EIO, "pwritev_durably", only=lambda path: path.name == "muster.promise")
    assert (await pod.lead(2)).status is CallStatus.CANNOT_WRITE
    pod.disk.fault = None
    await pod.until(lambda: not pod.manager.health.cannot_write)
    assert (await pod.lead(2)).status in (CallStatus.ACCEPTED, CallStatus.STALE_EPOCH)
    assert (await pod.lead(3)).status is CallStatus.ACCEPTED


async def test_draining_pod_takes_no_election(pod: PodUnderTest) -> None:
    await pod.lead(1, bootstrap=True)
    pod.manager.draining = True
    assert (await pod.lead(9)).status is CallStatus.CANNOT_WRITE
    assert await pod.commit(1) == 0, "what it leads it leads on until it resigns"


async def test_records_without_a_promise_file_are_not_taken_over_under_a_new_log_id(pod: PodUnderTest) -> None:
    await pod.lead(1, bootstrap=True)
    await pod.commit(10)
    await pod.manager.stop()
    pod.disk.unlink(DATA / "__consumer_offsets-0" / "muster.promise")
    pod.manager = pod._new_manager()
    await pod.manager.start()
    outcome = await pod.manager.create_replica(0)
    assert outcome.status is CallStatus.DAMAGED
    assert "muster.promise" in outcome.message
    assert 0 in pod.manager.health.damage
