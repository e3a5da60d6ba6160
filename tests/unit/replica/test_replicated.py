"""Several pods in one process, with real logs and journals: commits, elections, and what failures do."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import msgspec
import pytest
from tests.support.replicas import Asked, ReplicaPods

from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.errors import ErrorCode
from muster_coordinator.pod.status import replica_status
from muster_coordinator.podapi.models import ReplicaStatus
from muster_coordinator.replication import effects as fx
from muster_coordinator.replication.messages import Append, Message, Question, Sealed
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.packed_offsets import PackedOffsets
from muster_coordinator.states import ReplicaRole, ShardState

NewPods = Callable[..., Awaitable[ReplicaPods]]


def assert_equal_logs(pods: ReplicaPods, partition: int = 0) -> None:
    contents = pods.contents(partition)
    assert len(contents) > 1
    assert all(content == contents[0] for content in contents)


async def test_commit_is_answered_by_a_majority_and_reaches_a_replica_that_was_away(pods: ReplicaPods) -> None:
    await pods[2].kill()
    assert await pods[0].commit(41) == 0
    assert await pods[0].fetch() == 41
    await pods[2].start()
    await pods.caught_up()
    assert_equal_logs(pods)


async def test_nothing_is_answered_without_a_majority(pods: ReplicaPods) -> None:
    assert await pods[0].commit(1) == 0
    pods.network.isolate("pod-0")
    write, read = pods[0].ask_commit(2), pods[0].ask_fetch()
    assert await asyncio.wait_for(write.done, 10) == ErrorCode.NOT_COORDINATOR
    assert await asyncio.wait_for(read.done, 10) == ErrorCode.NOT_COORDINATOR
    assert not pods[0].leads(), "it stepped down"


async def test_leader_killed_and_nothing_acknowledged_is_lost(pods: ReplicaPods) -> None:
    for offset in range(20):
        assert await pods[0].commit(offset) == 0
    await pods[0].kill()
    await pods.elect(1)
    assert await pods[1].fetch() == 19
    assert await pods[1].commit(20) == 0
    await pods[0].start()
    await pods.caught_up()
    assert_equal_logs(pods)


async def test_commit_that_is_in_one_piece_is_whole_after_its_leader_was_killed(pods: ReplicaPods) -> None:
    expected = {}
    for first in (0, 5):  # some partitions are new, some are written again
        entries = [(first + number, 100 * first + number, number) for number in range(100)]
        data = b"".join(struct.pack(">iqih", *entry, 0) for entry in entries)
        partitions, offsets, epochs = zip(*entries, strict=True)
        topics = (("t", PackedOffsets(data, partitions, offsets, epochs, "")),)
        answer = await pods[0].ask(m.OffsetCommitRequest("g", -1, "", None, -1, topics, 7)).done
        assert answer.topics == (("t", tuple((partition, 0) for partition in partitions)),)
        expected |= {partition: (offset, epoch) for partition, offset, epoch in entries}
    assert await pods[0].commit(1, group="other") == 0
    end = pods[0].end()
    await pods[0].kill()
    await pods.elect(1)
    assert pods[1].end() == end + 1, "the leader-change record follows"
    found = await pods[1].ask(m.OffsetFetchRequest("g", None, -1, None, False)).done
    assert {each[0]: each[1:3] for each in found.topics[0][1]} == expected
    await pods[0].start()
    await pods.caught_up()
    assert_equal_logs(pods)


@pytest.mark.long
async def test_replicas_killed_in_turn_under_load_lose_nothing(pods: ReplicaPods) -> None:
    acknowledged = -1
    leader = 0
    for offset in range(0, 60, 10):
        asked = [pods[leader].ask_commit(offset + n) for n in range(10)]
        await asked[4].done
        await pods[leader].kill()
        answers = [one.done.result() for one in asked if one.done.done()]
        acknowledged = max([acknowledged, *(offset + n for n, a in enumerate(answers) if not isinstance(a, ErrorCode))])
        fallen, leader = leader, (leader + 1) % 3
        await pods.elect(leader)
        found = await pods[leader].fetch()
        assert isinstance(found, int)
        assert found >= acknowledged
        await pods[fallen].start()
        await pods.caught_up()
        assert_equal_logs(pods)


async def test_all_killed_at_once_and_started_again_have_every_acknowledged_commit(pods: ReplicaPods) -> None:
    for offset in range(50):
        assert await pods[0].commit(offset) == 0
    for pod in pods.pods:
        await pod.kill()
    for pod in pods.pods:
        await pod.start()
    await pods.elect(2)
    assert await pods[2].fetch() == 49
    await pods.caught_up()
    assert_equal_logs(pods)


async def test_tail_that_no_majority_has_is_cut_where_another_leader_went_on(pods: ReplicaPods) -> None:
    assert await pods[0].commit(1) == 0
    await pods.caught_up()
    pods.network.isolate("pod-0")
    lost = pods[0].ask_commit(666)
    await pods.until(lambda: pods[0].end() > pods[1].end())
    longer = pods[0].end()
    await pods.elect(1)
    assert await pods[1].commit(2) == 0
    pods.network.heal()
    await pods.caught_up()
    assert isinstance(lost.done.result(), ErrorCode)
    assert pods[0].end() >= longer
    assert_equal_logs(pods)
    await pods[0].kill()
    await pods[0].start()
    await pods.elect(0, force=True)
    assert await pods[0].fetch() == 2


async def test_candidate_takes_the_best_log_even_where_its_own_is_longer(pods: ReplicaPods) -> None:
    assert await pods[0].commit(1) == 0
    await pods.caught_up()
    pods.network.isolate("pod-0")
    for _ in range(5):
        pods[0].ask_commit(666)
    await pods.until(lambda: pods[0].end() >= pods[1].end() + 1)
    await pods.elect(1)
    assert await pods[1].commit(2) == 0
    await pods[1].stop()
    pods.network.heal()
    await pods.elect(0, force=True)
    assert await pods[0].fetch() == 2


async def test_better_log_is_named_and_nothing_is_promised(pods: ReplicaPods) -> None:
    await pods.caught_up()
    pods.network.isolate("pod-2")
    assert await pods[0].commit(1) == 0
    await pods[0].kill()
    pods.network.heal()
    outcome = await pods.try_elect(2)
    assert outcome.status in (CallStatus.BETTER_LOG, CallStatus.LEADER_LIVES)
    await pods.until(lambda: not pods[1].up.hosts[0].core.live_leader)  # type: ignore[union-attr]
    outcome = await pods.try_elect(2)
    assert (outcome.status, outcome.better_log_id) == (CallStatus.BETTER_LOG, pods[1].log_id())
    assert outcome.epoch == 1


async def test_live_leader_is_not_replaced_without_force(pods: ReplicaPods) -> None:
    assert await pods[0].commit(1) == 0
    outcome = await pods.try_elect(1)
    assert (outcome.status, outcome.epoch) == (CallStatus.LEADER_LIVES, 1)
    assert pods[0].leads()
    outcome = await pods.try_elect(1, force=True)
    assert outcome.status is CallStatus.ACCEPTED
    await pods.until(lambda: not pods[0].leads())
    assert await pods[0].commit(2) == ErrorCode.NOT_COORDINATOR
    assert await pods[1].fetch() == 1


async def test_closed_connection_ends_the_wait_for_a_silent_leader(pods: ReplicaPods) -> None:
    await pods.caught_up()
    leader = pods[0].log_id()
    await pods[0].kill()
    for pod in pods.pods[1:]:
        pod.up.disconnected(leader)
    assert (await pods.try_elect(1)).status is CallStatus.ACCEPTED


async def test_resigned_leader_answers_not_coordinator_and_another_takes_the_epoch(pods: ReplicaPods) -> None:
    assert await pods[0].commit(7) == 0
    resigned = await pods[0].up.resign(0, 2)
    assert (resigned.status, resigned.ended_epoch) == (CallStatus.ACCEPTED, 1)
    assert await pods[0].commit(8) == ErrorCode.NOT_COORDINATOR
    pods.epochs[0] = 1
    assert (await pods.try_elect(1, force=True)).status is CallStatus.ACCEPTED
    assert pods[1].shard().epoch == 2
    assert await pods[1].fetch() == 7
    await pods.caught_up()
    assert pods[0].up.replicas[0].promised.leader == pods[1].log_id()


async def test_deposed_leader_serves_no_read(pods: ReplicaPods) -> None:
    """It is cut off, and another one commits: its own state is old, and nobody confirms it."""
    assert await pods[0].commit(1) == 0
    pods.network.isolate("pod-0")
    await pods.elect(1, force=True)
    assert await pods[1].commit(2) == 0
    read = pods[0].ask_fetch()
    answer = await asyncio.wait_for(read.done, 10)
    assert answer == ErrorCode.NOT_COORDINATOR


async def test_read_needs_no_batch_and_costs_one_round(pods: ReplicaPods) -> None:
    assert await pods[0].commit(5) == 0
    await pods.caught_up()
    end = pods[0].end()
    assert [await pods[0].fetch() for _ in range(5)] == [5] * 5
    assert pods[0].end() == end


async def test_leader_elected_again_keeps_what_is_loaded_and_what_waits(pods: ReplicaPods) -> None:
    assert await pods[0].commit(5) == 0
    shard = pods[0].shard()
    waiting = [pods[0].ask_commit(6), pods[0].ask_fetch()]
    assert (await pods.try_elect(0, force=True)).status is CallStatus.ACCEPTED
    assert pods[0].shard() is shard
    assert shard.epoch == 2
    for asked in waiting:
        assert not isinstance(await asyncio.wait_for(asked.done, 10), ErrorCode)
    assert await pods[0].fetch() == 6


async def test_follower_is_a_warm_standby(pods: ReplicaPods) -> None:
    for offset in range(300):
        pods[0].ask_commit(offset, group=f"g{offset}")
    assert await pods[0].commit(300) == 0
    await pods.caught_up()
    end = pods[1].end()
    standby = pods[1].up.hosts[0].role

    def replayed() -> bool:
        return standby._standby is not None and standby._standby.replayed == end

    await pods.until(replayed)
    loaded = pods[1].up.metrics.records_loaded
    assert loaded >= 301
    await pods.elect(1, force=True)
    assert pods[1].up.metrics.records_loaded == loaded, "nothing was left to load"
    assert await pods[1].fetch(group="g299") == 299


async def test_resigned_leader_whose_state_is_committed_is_a_warm_standby(pods: ReplicaPods) -> None:
    assert await pods[0].commit(5) == 0
    await pods.elect(1, force=True)
    await pods.caught_up()
    loads = pods[0].up.metrics.records_loaded
    await pods.elect(0, force=True)
    assert await pods[0].fetch() == 5
    assert pods[0].up.metrics.records_loaded <= loads + 2, "leader-change records only"


@pytest.mark.parametrize("away", [1, 2])
async def test_lost_and_late_messages_delay_commits_and_lose_nothing(pods: ReplicaPods, away: int) -> None:
    random = Random(7)  # not every nth: that could be the same one of each round for ever
    pods.network.drop = lambda message: random.random() < 0.2
    pods.network.delay_s = 0.003
    for offset in range(15):
        assert await pods[0].commit(offset) == 0
    pods.network.drop = lambda message: isinstance(message, Append) and message.to == pods[away].log_id()
    assert await pods[0].commit(15) == 0
    pods.network.drop = lambda message: False
    await pods.caught_up()
    assert_equal_logs(pods)


async def test_five_replicas_stand_two_failures(new_pods: NewPods) -> None:
    pods = await new_pods(5)
    assert await pods[0].commit(1) == 0
    await pods[0].kill()
    await pods[1].kill()
    await pods.elect(2)
    assert await pods[2].fetch() == 1
    assert await pods[2].commit(2) == 0


async def test_many_partitions_are_elected_at_once(new_pods: NewPods) -> None:
    pods = await new_pods(3, partitions=20)
    for partition in range(20):
        assert await pods[0].commit(partition, partition) == 0
    await pods[0].kill()
    await asyncio.gather(*(pods.elect(1 + p % 2, p, force=True) for p in range(20)))
    for partition in range(20):
        assert await pods[1 + partition % 2].fetch(partition) == partition


async def test_self_nominated_replica_leads_without_an_operator(new_pods: NewPods) -> None:
    pods = await new_pods(3, self_nomination_ms=300)
    assert await pods[0].commit(3) == 0
    await pods.caught_up()
    await pods[0].kill()
    await pods.until(lambda: any(pod.leads() for pod in pods.pods))
    leader = next(pod for pod in pods.pods if pod.leads())
    assert await leader.fetch() == 3
    assert leader.shard().epoch > 1


async def test_replica_on_a_full_disk_does_not_nominate_itself(
    new_pods: NewPods, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = await new_pods(3, self_nomination_ms=100)
    await pods.caught_up()
    monkeypatch.setattr(pods[1].disk, "free_bytes", lambda path: 0)
    sent: list[str] = []
    pods.network.drop = lambda message: bool(isinstance(message, Question) and sent.append(message.sender))
    log_id = pods[1].log_id()
    await pods[0].kill()
    await pods.until(pods[2].leads)
    assert log_id not in sent
    assert pods[1].up.replicas[0].promised.leader == pods[2].log_id()


async def test_operator_that_is_heard_keeps_replicas_from_nominating_themselves(new_pods: NewPods) -> None:
    pods = await new_pods(3, self_nomination_ms=300)
    await pods.caught_up()
    await pods[0].kill()
    for _ in range(80):  # 2.4 s; the leader counts as silent after one, and an election follows within 0.6
        for pod in pods.pods[1:]:
            pod.up.operator_heard()
        await asyncio.sleep(0.03)
    assert not any(pod.leads() for pod in pods.pods)


async def test_replica_that_cannot_write_gives_up_and_comes_back(pods: ReplicaPods) -> None:
    assert await pods[0].commit(1) == 0
    pods[0].disk.dead = True
    pods.network.drop = lambda message: isinstance(message, Append)  # two followers are a majority without the leader
    assert await pods[0].commit(2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    pods.network.drop = lambda message: False
    assert pods[0].shard().state is ShardState.FAILED
    refused = await pods.try_elect(0)
    assert refused.status is CallStatus.CANNOT_WRITE
    await pods.elect(1)
    assert await pods[1].commit(3) == 0
    pods[0].disk.dead = False
    await pods.caught_up()
    assert_equal_logs(pods)


@pytest.mark.interpreted
async def test_exception_out_of_the_core_costs_one_core_and_no_commit(
    pods: ReplicaPods, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await pods[0].commit(1) == 0
    await pods.caught_up()
    host = pods[2].up.hosts[0]
    broken = host.core
    assert broken is not None

    def violate(*arguments: object) -> None:
        raise AssertionError("a defect")

    monkeypatch.setattr(broken, "_receive", violate)
    assert await pods[0].commit(2) == 0
    await pods.until(lambda: host.core is not None and host.core is not broken)
    await pods.caught_up()
    assert_equal_logs(pods)


@pytest.mark.interpreted
async def test_exception_behind_a_promise_that_is_stored_already_costs_one_core(pods: ReplicaPods) -> None:
    """The new core is not told that a promise is stored, of which it does not know."""
    await pods.caught_up()
    host = pods[2].up.hosts[0]
    broken = host.core
    assert broken is not None
    for _ in range(100):
        pods[2].up._directory.pace.note(0.0)  # so fast that the event loop stores promises itself
    unknown: Any = object()
    host._event(lambda core, now_ms: [fx.StorePromise(core.promise), unknown])
    await pods.until(lambda: host.core is not None and host.core is not broken)
    second = host.core
    for _ in range(3):
        host.tick()
    assert host.core is second
    await pods.caught_up()


@pytest.mark.interpreted
async def test_record_that_the_leader_cannot_replay_ends_its_leadership_and_another_epoch_reloads(
    pods: ReplicaPods, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await pods[0].commit(1) == 0
    coordinator = pods[0].shard().machine

    def break_down(*arguments: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(coordinator, "replay", break_down)
    assert await pods[0].commit(2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert pods[0].shard().state is ShardState.FAILED
    await pods.until(lambda: pods[0].up.hosts[0].core is not None)
    await pods.elect(0, force=True)
    assert await pods[0].fetch() in (1, 2)


@pytest.mark.interpreted
async def test_damaged_message_is_dropped_and_sent_again(pods: ReplicaPods, monkeypatch: pytest.MonkeyPatch) -> None:
    receive = pods[1].up.receive
    harmed = 0

    def harm(partition: int, message: Message) -> None:
        nonlocal harmed
        if isinstance(message, Append) and message.batches and harmed < 3:
            harmed += 1
            data = bytearray(message.batches[0].data)
            data[-1] ^= 1
            batches = (msgspec.structs.replace(message.batches[0], data=bytes(data)), *message.batches[1:])
            message = msgspec.structs.replace(message, batches=batches)
        receive(partition, message)

    monkeypatch.setattr(pods[1].up, "receive", harm)
    assert await pods[0].commit(1) == 0
    await pods.caught_up()
    assert harmed == 3
    assert_equal_logs(pods)


@pytest.mark.interpreted
async def test_cut_that_the_journal_cannot_take_is_made_when_the_storage_works_again(pods: ReplicaPods) -> None:
    assert await pods[0].commit(1) == 0
    await pods.caught_up()
    pods.network.isolate("pod-0")
    pods[0].ask_commit(666)
    await pods.until(lambda: pods[0].end() > pods[1].end())
    await pods.elect(1)
    assert await pods[1].commit(2) == 0
    await pods.until(lambda: not pods[0].leads())
    replica = pods[0].up.replicas[0]
    stage = replica.stage_truncation

    def fail(offset: int) -> None:
        stage(offset)
        pods[0].disk.dead = True

    replica.stage_truncation = fail  # type: ignore[method-assign]
    pods.network.heal()
    await pods.until(lambda: bool(pods[0].up.health.cannot_write))
    replica.stage_truncation = stage  # type: ignore[method-assign]
    pods[0].disk.dead = False
    await pods.caught_up()
    assert_equal_logs(pods)


async def test_request_that_comes_during_an_election_is_answered_by_it(pods: ReplicaPods) -> None:
    assert await pods[0].commit(5) == 0
    pods.network.drop = lambda message: isinstance(message, Sealed)
    election = asyncio.create_task(pods.try_elect(1, force=True))
    await pods.until(lambda: pods[1].up.hosts[0].is_electing)
    early, read = pods[1].ask_early(6), pods[1].ask_early(None)
    pods.network.drop = lambda message: False
    assert (await election).status is CallStatus.ACCEPTED
    assert isinstance(await asyncio.wait_for(early.done, 10), m.OffsetCommitResponse)
    assert (await asyncio.wait_for(read.done, 10)).topics[0][1][0][1] == 6
    assert pods[2].ask_early(7).done.result() == ErrorCode.NOT_COORDINATOR
    await pods.caught_up()
    assert_equal_logs(pods)


async def end_the_leader(pods: ReplicaPods) -> None:
    """As the other pods see a killed one: its connections close."""
    leader = pods[0].log_id()
    await pods[0].kill()
    for pod in (pods[1], pods[2]):
        pod.up.disconnected(leader)


async def test_request_that_comes_before_the_call_to_the_election_is_answered_by_it(pods: ReplicaPods) -> None:
    """The image names the new leader at the moment of the call: clients may be faster."""
    assert await pods[0].commit(5) == 0
    await pods.caught_up()
    await end_the_leader(pods)
    written, read = pods[1].ask_early(6), pods[1].ask_early(None)
    assert await written.done == ErrorCode.NOT_COORDINATOR  # its client may have given it up when a leader is there
    assert not read.done.done()
    await pods.elect(1)
    assert (await asyncio.wait_for(read.done, 10)).topics[0][1][0][1] == 5


async def test_request_to_a_replica_that_hears_no_leader_is_refused_when_another_one_leads(pods: ReplicaPods) -> None:
    assert await pods[0].commit(5) == 0
    await end_the_leader(pods)
    early = pods[1].ask_early(None)
    assert not early.done.done()
    await pods.elect(2)
    assert await asyncio.wait_for(early.done, 10) == ErrorCode.NOT_COORDINATOR
    assert await pods[2].fetch() == 5


async def test_request_to_a_replica_whose_log_is_not_open_yet_waits_no_longer_than_for_a_leader(
    pods: ReplicaPods,
) -> None:
    host = pods[1].up.hosts[0]
    host.give_up("as before its log is open")
    early = pods[1].ask_early(None)
    assert not early.done.done()
    assert await asyncio.wait_for(early.done, 10) == ErrorCode.NOT_COORDINATOR


async def test_request_that_comes_during_an_election_that_fails_is_refused(pods: ReplicaPods) -> None:
    assert await pods[0].commit(5) == 0
    pods.network.drop = lambda message: isinstance(message, Sealed)
    election = asyncio.create_task(pods.try_elect(1, force=True))
    await pods.until(lambda: pods[1].up.hosts[0].is_electing)
    early = pods[1].ask_early(6)
    pods.network.drop = lambda message: isinstance(message, Sealed) and message.to == pods[1].log_id()
    pods.epochs[0] += 1
    await pods.elect(2, force=True)
    assert await asyncio.wait_for(early.done, 10) == ErrorCode.NOT_COORDINATOR
    assert (await election).status is CallStatus.STALE_EPOCH
    assert await pods[2].fetch() == 5


async def opened_and_not_committed(pods: ReplicaPods) -> tuple[asyncio.Task[CallResult], Asked]:
    """pod-1 has opened epoch 2, and a commit of group "cut" has run in it; nobody else gets either record."""
    assert await pods[0].commit(5) == 0
    await pods.caught_up()
    pods.network.drop = lambda message: isinstance(message, Append) and message.epoch == 2
    election = asyncio.create_task(pods.try_elect(1, force=True))
    await pods.until(lambda: 0 in pods[1].up.shards and pods[1].shard().is_opened)
    ran = pods[1].ask_commit(6, group="cut")
    await pods.until(lambda: pods[1].end() == pods[2].end() + 2)
    return election, ran


async def test_state_of_an_epoch_that_was_opened_and_never_committed_is_that_of_the_log(pods: ReplicaPods) -> None:
    """A request had run in it, and its record is cut under the next leader."""
    election, ran = await opened_and_not_committed(pods)
    pods.network.isolate("pod-1")
    await pods.elect(0, force=True)
    assert await pods[0].commit(7) == 0
    pods.network.drop = lambda message: False
    pods.network.heal()
    assert await asyncio.wait_for(ran.done, 10) == ErrorCode.NOT_COORDINATOR
    assert (await election).status is not CallStatus.ACCEPTED
    await pods.caught_up()
    await pods.elect(1, force=True)
    assert (await pods[1].fetch(), await pods[1].fetch(group="cut")) == (7, -1)
    assert_equal_logs(pods)


async def test_state_of_an_epoch_that_ends_before_it_is_committed_counts_for_all_that_ran_in_it(
    pods: ReplicaPods,
) -> None:
    """A checkpoint of it that named an earlier offset would hold what may still be cut."""
    election, ran = await opened_and_not_committed(pods)
    role = pods[1].up.hosts[0].role
    role.end("another one is elected", log_is_complete=True)
    assert role.state_at_rest is not None
    assert role.state_at_rest[1] == pods[1].end()
    assert await ran.done == ErrorCode.NOT_COORDINATOR
    election.cancel()


async def test_status_of_an_election_that_failed_is_published(pods: ReplicaPods) -> None:
    """Until it is, an operator takes the candidate, which has promised an epoch to itself, for a leader that loads."""
    told: list[ReplicaStatus | None] = []

    class Watcher:
        def partition_changed(self, partition: int) -> None:
            told.append(replica_status(pods[0].up, partition))

        def pod_changed(self) -> None:
            pass

    pods.network.isolate("pod-0")
    await pods.until(lambda: not pods[0].leads())
    pods[0].up._events.watch(Watcher())
    outcome = await pods.try_elect(0)
    assert outcome.status is CallStatus.NO_MAJORITY
    assert [status.role for status in told if status is not None] == [ReplicaRole.LEADER, ReplicaRole.NONE]
