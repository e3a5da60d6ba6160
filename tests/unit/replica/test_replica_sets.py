"""Sets of replicas and their change, learners, copies beside the log, rebuilding, cleaning and checkpoints of several
pods in one process."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.support.replicas import ReplicaPod, ReplicaPods
from tests.unit.log.offsets_history import state_of

from muster_coordinator.calls import CallStatus
from muster_coordinator.log import flush_state
from muster_coordinator.log.checkpoint import NAME as CHECKPOINT_NAME
from muster_coordinator.log.disk import Disk
from muster_coordinator.log.segments.copy import swap_count
from muster_coordinator.pod.chores.checkpointing import Checkpointer
from muster_coordinator.pod.chores.cleaning import LogCleaner
from muster_coordinator.pod.status import replica_status
from muster_coordinator.records.batch import encode_batch
from muster_coordinator.replication.messages import Append, Batch, Seal
from muster_coordinator.states import ReplicaRole, ShardState

NewPods = Callable[..., Awaitable[ReplicaPods]]


def assert_equal_logs(pods: ReplicaPods) -> None:
    contents = pods.contents()
    assert len(contents) > 1
    assert all(content == contents[0] for content in contents)


async def fill(pod: ReplicaPod, commits: int, start: int = 0) -> None:
    """Commits of one group, so that all but the last record can be cleaned away."""
    for offset in range(start, start + commits):
        asked = pod.ask_commit(offset, metadata="x" * 100)
        if offset % 10 == 0:
            await asyncio.wait_for(asked.done, 10)
    assert await pod.commit(start + commits) == 0


async def clean(pod: ReplicaPod) -> bool:
    cleaner = next(b for b in pod.up._chores if isinstance(b, LogCleaner))
    await pod.flushed()
    return await cleaner.clean_dirtiest()


# -- sets -----------------------------------------------------------------------------------------------------------


async def test_one_replica_grows_to_three_and_serves_all_the_time(new_pods: NewPods) -> None:
    pods = await new_pods(1)
    assert await pods[0].commit(1) == 0
    assert pods[0].up.hosts[0].alone
    for n in (1, 2):
        pod = ReplicaPod(f"pod-{n}", pods[0].directory.parent / f"pod-{n}", pods.network)
        pods.pods.append(pod)
        await pod.start()
        await pods.create(pod)
    before = pods.sets[0]
    added = tuple(pod.log_id() for pod in pods.pods)
    pods[0].up.set_learners(0, added)
    assert not pods[0].up.hosts[0].alone
    assert await pods[0].commit(2) == 0
    await pods.until(lambda: pods[1].end() == pods[2].end() == pods[0].end())
    outcome = await pods.try_elect(0, replicas=added, previous=before, force=True)
    assert outcome.status is CallStatus.ACCEPTED, outcome
    core = pods[0].up.hosts[0].core
    assert core is not None
    await pods.until(lambda: core.log.sets is not None and not core.log.sets.previous_replicas)
    pods.sets[0] = added
    await pods.caught_up()
    await pods[0].kill()
    await pods.elect(1)
    assert await pods[1].fetch() == 2


async def test_replica_whose_volume_is_lost_is_replaced(pods: ReplicaPods) -> None:
    await fill(pods[0], 30)
    old = pods.sets[0]
    await pods[2].kill()
    new = ReplicaPod("pod-3", pods[0].directory.parent / "pod-3", pods.network)
    pods.pods[2] = new
    await new.start()
    changed = (old[0], old[1], await pods.create(new))
    pods[0].up.set_learners(0, changed)
    await pods.until(lambda: new.end() == pods[0].end())
    assert (await pods.try_elect(0, replicas=changed, previous=old, force=True)).status is CallStatus.ACCEPTED
    pods.sets[0] = changed
    await pods.caught_up()
    await pods[0].kill()
    await pods.elect(2, force=True)
    assert await new.fetch() == 30


async def test_call_that_is_no_legal_change_is_answered_with_the_sets_of_the_log(pods: ReplicaPods) -> None:
    sets = pods.sets[0]
    outcome = await pods.try_elect(0, replicas=sets[:2], force=True)
    assert (outcome.status, outcome.replicas) == (CallStatus.SET_CONFLICT, sets)


async def test_three_shrink_to_one_which_is_alone_again(pods: ReplicaPods) -> None:
    old = pods.sets[0]
    assert (await pods.try_elect(0, replicas=old[:1], previous=old, force=True)).status is CallStatus.ACCEPTED
    await pods.until(lambda: pods[0].up.hosts[0].alone)
    await pods[1].kill()
    await pods[2].kill()
    assert await pods[0].commit(9) == 0
    assert await pods[0].fetch() == 9
    pods.sets[0] = old[:1]
    assert (await pods.try_elect(0)).status is CallStatus.ACCEPTED
    assert await pods[0].fetch() == 9


# -- cleaning and copies ----------------------------------------------------------------------------------------------


async def test_replica_that_ends_below_the_tombstone_horizon_gets_a_full_copy(new_pods: NewPods) -> None:
    pods = await new_pods(3, segment_bytes=2000, cleaned=True)
    await fill(pods[0], 20)
    await pods.caught_up()
    await pods[2].kill()
    assert await pods[0].commit(1, group="gone") == 0
    await pods[0].delete("gone")
    await fill(pods[0], 60)
    await pods.until(lambda: pods[1].up.hosts[0].commit_point == pods[0].end())
    assert await clean(pods[0])
    log = pods[0].up.replicas[0].log
    assert log.cleaned_to.tombstone_horizon > 21
    await pods[2].start()
    await pods.caught_up()
    copy = pods[2].up.replicas[0].log
    assert copy.cleaned_to.tombstone_horizon == log.cleaned_to.tombstone_horizon
    assert [b.data for b in copy.read_batches(0)] == [b.data for b in log.read_batches(0)]
    await fill(pods[0], 5, start=100)
    await pods.caught_up()
    await pods[2].kill()
    await pods[2].start()
    await pods.caught_up()
    await pods.elect(2, force=True)
    assert await pods[2].fetch() == 105
    assert await pods[2].fetch(group="gone") == -1


async def test_nothing_is_replayed_of_a_log_that_waits_for_its_full_copy(new_pods: NewPods) -> None:
    """The copy has no tombstone any more for what a state of the log before it would go on with."""
    pods = await new_pods(3, segment_bytes=2000, cleaned=True)
    assert await pods[0].commit(1, group="gone") == 0
    await fill(pods[0], 20)
    await pods.caught_up()
    host = pods[2].up.hosts[0]
    await pods.until(lambda: host.commit_point == pods[0].end())
    pods.network.isolate("pod-2")
    await pods[0].delete("gone")
    await fill(pods[0], 60)
    await pods.until(lambda: pods[1].up.hosts[0].commit_point == pods[0].end())
    assert await clean(pods[0])
    async with host.log_lock:
        pods.network.heal()
        await pods.until(lambda: host.log_wanted)
        for _ in range(50):
            host.tick()
            await asyncio.sleep(0)
    await pods.caught_up()
    assert swap_count(pods[2].disk, pods[2].up.replicas[0].directory) == 1
    await pods.elect(2, force=True)
    assert await pods[2].fetch() == 60
    assert await pods[2].fetch(group="gone") == -1


async def test_log_with_gaps_is_followed_killed_and_cut_like_any_other(new_pods: NewPods) -> None:
    """Cleaned above the follower's end, below which no tombstone went: it gets what is left, with gaps."""
    pods = await new_pods(3, segment_bytes=2000, cleaned=True)
    await fill(pods[0], 20)
    await pods.caught_up()
    await pods[2].kill()
    await fill(pods[0], 80, start=30)
    await pods.until(lambda: pods[1].up.hosts[0].commit_point == pods[0].end())
    assert await clean(pods[0])
    await pods[2].start()
    await pods.caught_up()
    log = pods[2].up.replicas[0].log
    assert sum(1 for _ in log.read_batches(0)) < sum(1 for _ in pods[1].up.replicas[0].log.read_batches(0))
    for _ in range(2):
        await pods[2].kill()
        await pods[2].start()
    await pods.caught_up()
    assert pods[2].up.replicas[0].promised.incarnation == 0, "nothing had to be rebuilt"
    await pods[2].stop()
    await pods[2].start()
    await pods.elect(2, force=True)
    assert await pods[2].fetch() == 110


async def test_follower_cleans_and_takes_checkpoints_below_its_commit_point(new_pods: NewPods) -> None:
    pods = await new_pods(3, segment_bytes=2000, cleaned=True, checkpoints=True)
    await fill(pods[0], 60)
    await pods.caught_up()
    follower = pods[1]
    checkpointer = next(b for b in follower.up._chores if isinstance(b, Checkpointer))
    await checkpointer.work()
    assert CHECKPOINT_NAME in [path.name for path in follower.up.replicas[0].directory.iterdir()]
    before = follower.up.replicas[0].log.size
    assert await clean(follower)
    assert follower.up.replicas[0].log.size < before / 2
    await follower.kill()
    await follower.start()
    await pods.caught_up()
    await pods.elect(1, force=True)
    assert await pods[1].fetch() == 60
    shard = pods[1].shard()
    assert shard.machine.durable_state() == state_of(pods[0].up.replicas[0].log.read_batches(0))


# -- loss -------------------------------------------------------------------------------------------------------------


async def test_damaged_log_is_set_aside_and_rebuilt_from_the_leader(pods: ReplicaPods) -> None:
    await fill(pods[0], 40)
    await pods.caught_up()
    await pods[2].flushed()
    replica = pods[2].up.replicas[0]
    await pods[2].kill()
    path = replica.directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x55
    path.write_bytes(data)
    await pods[2].start()
    await pods.caught_up()
    found = pods[2].up.replicas[0]
    await pods.until(lambda: not found.promised.rebuilding)
    assert (found.log_id, found.promised.incarnation) == (replica.log_id, 1)
    assert (replica.directory / "damaged" / "0" / path.name).read_bytes() == data
    assert not pods[2].up.health.damage
    shown = replica_status(pods[2].up, 0)
    assert shown is not None
    assert (shown.state, shown.reason) != (ShardState.FAILED, "LogDamaged")
    assert shown.reason == "LogSetAside"
    assert path.name in shown.message
    assert_equal_logs(pods)
    await pods[2].kill()
    await pods[2].start()
    await pods.elect(2, force=True)
    assert await pods[2].fetch() == 40
    shown = replica_status(pods[2].up, 0)
    assert shown is not None
    assert shown.reason == ""


async def test_rebuilding_replica_is_counted_nowhere(pods: ReplicaPods) -> None:
    await fill(pods[0], 10)
    await pods.caught_up()
    pods[2].up.hosts[0].lost_data()
    await pods.until(lambda: pods[2].up.replicas[0].promised.rebuilding)
    pods.network.isolate("pod-2")
    refused = await pods.try_elect(2, force=True)
    assert refused.status is CallStatus.DAMAGED
    pods.network.heal()
    await pods.until(lambda: not pods[2].up.replicas[0].promised.rebuilding)
    assert await pods[0].commit(77) == 0


async def test_power_loss_under_flush_os_makes_a_replica_rebuild(new_pods: NewPods) -> None:
    pods = await new_pods(3, storage={"flush_os": True})
    await fill(pods[0], 10)
    await pods.caught_up()
    await pods[2].kill()
    pods[2].boot_id = "boot-2"
    await pods[2].start()
    await pods.caught_up()
    assert pods[2].up.replicas[0].promised.incarnation == 1
    await pods.until(lambda: not pods[2].up.replicas[0].promised.rebuilding)
    await pods.until(lambda: pods[2].up.is_settled)
    await pods[2].stop()
    pods[2].boot_id = "boot-3"
    await pods[2].start()
    await pods.caught_up()
    assert pods[2].up.replicas[0].promised.incarnation == 1, "it ended in order"
    await pods[2].kill()
    await pods[2].start()
    await pods.caught_up()
    assert pods[2].up.replicas[0].promised.incarnation == 1, "the page cache outlives a process"
    await pods.elect(2, force=True)
    assert await pods[2].fetch() == 10


async def test_power_loss_of_all_under_flush_os_waits_for_a_person(new_pods: NewPods) -> None:
    pods = await new_pods(3, storage={"flush_os": True})
    await fill(pods[0], 10)
    await pods.caught_up()
    for pod in pods.pods:
        await pod.kill()
        pod.boot_id = "boot-2"
    for pod in pods.pods:
        await pod.start()
    outcome = await pods.try_elect(0)
    assert outcome.status is CallStatus.DAMAGED
    await pods.elect(0, allow_data_loss=True)
    assert await pods[0].fetch() == 10
    await pods.caught_up()


async def test_power_loss_is_noted_by_whichever_core_is_the_first_to_begin(new_pods: NewPods) -> None:
    """None began when the log was opened, because another pod had the same log then."""
    pods = await new_pods(3, storage={"flush_os": True})
    await fill(pods[0], 10)
    await pods.caught_up()
    await pods[2].lose_power("boot-2")
    await pods[2].start()
    pods[2].up.doubled(0, "pod-2, pod-9")
    await pods.until(lambda: pods[2].up.is_settled)
    assert pods[2].up.replicas[0].promised.incarnation == 0
    pods[2].up.doubled(0, "")
    await pods.until(lambda: pods[2].up.replicas[0].promised.incarnation == 1)
    await pods.caught_up()
    assert pods[2].up.replicas[0].promised.incarnation == 1
    assert await pods[0].fetch() == 10


class _FullDisk:
    """Refuses the file that says whether the power was lost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = True
        self.refused = 0
        self._replace_file = flush_state.replace_file
        monkeypatch.setattr(flush_state, "replace_file", self._replace)

    def _replace(self, disk: Disk, path: Path, data: bytes) -> None:
        if self.is_full:
            self.refused += 1
            raise OSError(errno.ENOSPC, "disk full")
        self._replace_file(disk, path, data)


async def test_power_loss_is_noted_when_a_full_disk_has_room_again(
    new_pods: NewPods, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by simulation, seed 1164: each later start of the process gave up a log that had lost nothing."""
    pods = await new_pods(3, storage={"flush_os": True})
    await fill(pods[0], 10)
    await pods.caught_up()
    await pods[2].lose_power("boot-2")
    disk = _FullDisk(monkeypatch)
    await pods[2].start()
    await pods.until(lambda: disk.refused > 0)
    assert not pods[2].up.health.cannot_write
    disk.is_full = False
    note = pods[2].directory / flush_state.NAME
    await pods.until(lambda: note.read_text() == "running boot-2\n")
    await pods.until(lambda: not pods[2].up.health.failed.is_set())
    await pods.until(lambda: not pods[2].up.replicas[0].promised.rebuilding)
    await pods[2].kill()
    await pods[2].start()
    await pods.caught_up()
    assert pods[2].up.replicas[0].promised.incarnation == 1, "nothing was lost since"


async def test_log_that_is_first_used_after_a_power_loss_has_lost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the power loss could not be noted."""
    pods = ReplicaPods(tmp_path, 3, storage={"flush_os": True})
    try:
        await pods.start()
        assert (await pods[2].up.resign(0, 1)).status is CallStatus.ACCEPTED
        await pods[2].lose_power("boot-2")
        disk = _FullDisk(monkeypatch)
        await pods[2].start()
        await pods.until(lambda: disk.refused > 0)
        pods.epochs[0] = 1
        await pods.elect(0, bootstrap=True)
        await pods.caught_up()
        pods[2].up.health.storage_failed(OSError(errno.EIO, "for a moment"))
        await pods.until(lambda: pods[2].up.hosts[0].core is not None)
        assert await pods[0].commit(1) == 0
        await pods.caught_up()
        assert pods[2].up.replicas[0].promised.incarnation == 0
        disk.is_full = False
    finally:
        await pods.stop()


async def test_young_log_that_a_power_loss_emptied_under_flush_os_does_not_vote(new_pods: NewPods) -> None:
    """Nothing of it was written back: its promise alone says that it was used. Pods 0 and 1 acked what pod 2 lacks."""
    pods = await new_pods(3, storage={"flush_os": True})
    assert await pods[0].commit(1) == 0
    await pods.caught_up()
    await pods[2].kill()
    assert await pods[0].commit(2) == 0
    await pods[1].lose_power("boot-2")
    await pods[0].kill()
    await pods[1].start()
    await pods[2].start()
    await pods.until(lambda: pods[1].up.is_settled)
    status = replica_status(pods[1].up, 0)
    assert status is not None
    assert (status.used, status.log_end_offset, status.rebuilding) == (True, 0, True)
    outcome = await pods.try_elect(2, force=True)
    assert outcome.status is CallStatus.NO_MAJORITY, "what pod 0 alone has may not be given up"
    await pods[0].start()
    await pods.elect(0, force=True)
    await pods.caught_up()
    assert await pods[0].fetch() == 2


async def test_bootstrap_goes_on_after_a_power_loss_that_came_before_its_first_record(tmp_path: Path) -> None:
    pods = ReplicaPods(tmp_path, 3, storage={"flush_os": True})
    try:
        await pods.start()
        for pod in pods.pods:
            assert (await pod.up.resign(0, 1)).status is CallStatus.ACCEPTED
            await pod.lose_power("boot-2")
        for pod in pods.pods:
            await pod.start()
        pods.epochs[0] = 1
        await pods.elect(0, bootstrap=True)
        assert await pods[0].commit(1) == 0
        assert not any(pod.up.replicas[0].promised.incarnation for pod in pods.pods)
    finally:
        await pods.stop()


async def test_damage_that_shows_while_running_ends_the_replica_and_it_is_rebuilt(pods: ReplicaPods) -> None:
    await fill(pods[0], 40)
    await pods.caught_up()
    await pods[0].flushed()
    path = pods[0].up.replicas[0].directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[20] ^= 0x55
    path.write_bytes(data)
    pods[0].up.hosts[0].role.log_changes()  # what it has in memory is gone
    await pods.try_elect(0, force=True)
    await pods.until(lambda: 0 in pods[0].up.health.damage)
    assert (await pods.try_elect(0, force=True)).status is CallStatus.DAMAGED
    await pods.elect(1, force=True)
    await pods.caught_up()
    assert not pods[0].up.health.damage
    await pods.until(lambda: 0 not in pods[0].up.shards)
    assert_equal_logs(pods)
    assert await pods[1].fetch() == 40


async def test_leader_that_is_elected_again_is_not_active_before_its_epoch_is(pods: ReplicaPods) -> None:
    """An epoch that never began is no history, which a person's word about a loss would have to name."""
    await fill(pods[0], 3)
    await pods[1].kill()
    await pods[2].kill()
    election = asyncio.create_task(pods.try_elect(0, force=True))
    await pods.until(lambda: pods[0].up.hosts[0].core.is_electing)
    shown = replica_status(pods[0].up, 0)
    assert shown is not None
    assert (shown.role, shown.state, shown.last_epoch) == (ReplicaRole.LEADER, ShardState.LOADING, 1)
    await pods[1].start()
    await pods[2].start()
    await election
    await pods.elect(0, force=True)
    shown = replica_status(pods[0].up, 0)
    assert shown is not None
    assert shown.state is ShardState.ACTIVE


async def test_leader_whose_log_is_damaged_sends_no_damage_and_leaves_the_lead_to_others(pods: ReplicaPods) -> None:
    """The replica that lacks the batch would refuse it, and get it again, for ever."""
    await fill(pods[0], 40)
    await pods.caught_up()
    await pods[0].flushed()
    path = pods[0].up.replicas[0].directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x55
    path.write_bytes(data)
    learner = ReplicaPod("pod-3", pods[0].directory.parent / "pod-3", pods.network)
    pods.pods.append(learner)
    await learner.start()
    await pods.create(learner)
    pods[0].up.set_learners(0, (learner.log_id(),))
    await pods.until(lambda: 0 in pods[0].up.health.damage)
    pods[1].up.set_learners(0, (learner.log_id(),))
    await pods.elect(1, force=True)
    await pods.until(lambda: not pods[0].up.health.damage)
    await pods.caught_up()
    await pods.until(lambda: not pods[0].up.replicas[0].promised.rebuilding)
    assert_equal_logs(pods)
    assert await pods[1].fetch() == 40


def conflicting(pods: ReplicaPods, sender: int, to: int, epoch: int) -> Append:
    """A record of `epoch` at offset 0, where all have another one that is committed: a defect of the sender."""
    data = encode_batch([(b"k", b"v")], base_offset=0, leader_epoch=epoch, timestamp_ms=1)
    return Append(
        pods[sender].log_id(),
        pods[to].log_id(),
        epoch,
        start=0,
        end=1,
        previous_epoch=-1,
        runs=((epoch, 0),),
        batches=(Batch(0, 1, epoch, data),),
        commit_point=1,
        leader_end=1,
        horizon=0,
        round=1,
        incarnation=0,
    )


def stopped_status(pod: ReplicaPod) -> str:
    """The message of a replica that people have to look at, and that takes no part meanwhile."""
    assert pod.up.hosts[0].core is None
    shown = replica_status(pod.up, 0)
    assert shown is not None
    assert (shown.state, shown.reason, shown.is_damaged) == (ShardState.FAILED, "ProtocolViolation", True)
    return shown.message


async def test_replica_that_was_to_cut_what_is_committed_stops_until_people_have_looked_at_it(
    pods: ReplicaPods,
) -> None:
    """A new core would not know the commit point, and would cut."""
    await fill(pods[0], 10)
    await pods.caught_up()
    before, end = pods.contents(), pods[2].end()
    host = pods[2].up.hosts[0]
    host.receive(conflicting(pods, 1, 2, 9))
    await pods.until(lambda: host.core is None and pods[2].up.is_settled)
    message = stopped_status(pods[2])
    assert f"was to be cut at 0, below the commit point {end}" in message
    host.receive(conflicting(pods, 1, 2, 9))
    assert (await pods.try_elect(2, epoch=20, force=True)).status is CallStatus.DAMAGED
    pods[2].up.health.storage_failed(OSError(28, "No space left on device"))
    await pods.until(lambda: not pods[2].up.health.cannot_write and pods[2].up.is_settled)
    assert stopped_status(pods[2]) == message
    for _ in range(2):
        await pods[2].kill()
        await pods[2].start()
        await pods.until(lambda: pods[2].up.is_settled)
        assert stopped_status(pods[2]) == message
        pods[2].up.hosts[0].receive(conflicting(pods, 1, 2, 9))
        assert (await pods.try_elect(2, epoch=20, force=True)).status is CallStatus.DAMAGED
    assert pods.contents() == before
    assert await pods[0].commit(99) == 0


async def test_stop_that_the_disk_refused_is_stored_when_it_takes_writes_again(pods: ReplicaPods) -> None:
    await fill(pods[0], 10)
    await pods.caught_up()
    before = pods.contents()
    pods[2].up.hosts[0].receive(Seal(pods[1].log_id(), pods[2].log_id(), 9))
    await pods.until(lambda: pods[2].up.replicas[0].promised.epoch == 9)
    pods[2].disk.dead = True
    pods[2].up.hosts[0].receive(conflicting(pods, 1, 2, 9))
    await pods.until(lambda: bool(pods[2].up.health.cannot_write))
    pods[2].disk.dead = False
    await pods.until(lambda: bool(pods[2].up.replicas[0].stopped))
    await pods[2].kill()
    await pods[2].start()
    await pods.until(lambda: pods[2].up.is_settled)
    assert "below the commit point" in stopped_status(pods[2])
    assert pods.contents() == before


async def test_damaged_log_of_a_replica_that_was_stopped_is_not_set_aside(pods: ReplicaPods) -> None:
    await fill(pods[0], 40)
    await pods.caught_up()
    await pods[2].flushed()
    directory = pods[2].up.replicas[0].directory
    pods[2].up.hosts[0].receive(conflicting(pods, 1, 2, 9))
    await pods.until(lambda: pods[2].up.hosts[0].core is None)
    await pods[2].kill()
    path = directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x55
    path.write_bytes(data)
    await pods[2].start()
    await pods.until(lambda: 0 in pods[2].up.health.damage)
    pods[2].up.hosts[0].receive(conflicting(pods, 1, 2, 9))
    await pods.until(lambda: pods[2].up.is_settled)
    assert 0 in pods[2].up.health.damage
    assert path.read_bytes() == data


async def test_commits_that_an_accepted_loss_gave_up_are_cut_where_they_are_known(pods: ReplicaPods) -> None:
    """Pod 0, which knows that they are committed, is back under a leader of a later epoch than that of the loss."""
    pods.network.drop = lambda message: message.to == pods[2].log_id()
    await fill(pods[0], 10)
    pods.network.drop = lambda message: False
    pods.network.isolate("pod-0")
    alone = (pods[2].log_id(),)
    await pods.elect(2, replicas=alone, allow_data_loss=True)
    assert await pods[2].fetch() == -1
    await pods[2].kill()
    await pods[2].start()
    await pods.elect(2, replicas=alone)
    pods.network.heal()
    pods[2].up.set_learners(0, (pods[0].log_id(),))
    both = (*alone, pods[0].log_id())
    await pods.until(lambda: pods[0].end() == pods[2].end())
    assert (await pods.try_elect(2, replicas=both, previous=alone, force=True)).status is CallStatus.ACCEPTED
    assert await pods[2].commit(1) == 0
    await pods.until(lambda: pods[0].end() == pods[2].end())
    assert pods[0].up.hosts[0].core is not None
    contents = pods.contents()
    assert contents[0] == contents[2]
    core = pods[2].up.hosts[0].core
    assert core is not None
    assert core.log.loss_epoch == 2


async def test_candidate_below_the_tombstone_horizon_of_the_best_log_takes_a_full_copy(new_pods: NewPods) -> None:
    pods = await new_pods(3, segment_bytes=2000, cleaned=True)
    await fill(pods[0], 20)
    await pods.caught_up()
    await pods[2].kill()
    assert await pods[0].commit(1, group="gone") == 0
    await pods[0].delete("gone")
    await fill(pods[0], 60)
    await pods.until(lambda: pods[1].up.hosts[0].commit_point == pods[0].end())
    for pod in pods.pods[:2]:
        assert await clean(pod)
    behind = pods[2].log_ids
    pods.network.drop = lambda message: isinstance(message, Append) and message.to in behind
    await pods[2].start()
    await pods.elect(2, force=True)
    pods.network.drop = lambda message: False
    log = pods[2].up.replicas[0].log
    assert log.cleaned_to.tombstone_horizon > 21
    assert swap_count(pods[2].disk, pods[2].up.replicas[0].directory) == 1
    assert await pods[2].fetch() == 60
    assert await pods[2].fetch(group="gone") == -1
    assert await pods[2].commit(61) == 0
    await pods.caught_up()


async def test_checkpoint_goes_when_data_was_lost(new_pods: NewPods) -> None:
    pods = await new_pods(3, checkpoints=True)
    await fill(pods[0], 30)
    await pods.caught_up()
    checkpointer = next(b for b in pods[2].up._chores if isinstance(b, Checkpointer))
    await checkpointer.work()
    path = pods[2].up.replicas[0].directory / CHECKPOINT_NAME
    assert path.exists()
    pods[2].up.hosts[0].lost_data()
    assert not path.exists()
    await pods.caught_up()
