"""What a replica says of itself: each check has a negative here."""

from __future__ import annotations

import pytest
from tests.simulation.cluster import Cluster, Partition
from tests.simulation.options import Options
from tests.simulation.pods.network import ClientAnswer
from tests.simulation.pods.replica import HostedReplica
from tests.simulation.pods.statements import Statements
from tests.simulation.request import Request
from tests.simulation.world import Violation, World
from tests.simulation.written import commit_record, log_of

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.group_metadata import GroupMember, GroupMetadataRecord, GroupMetadataValue
from muster_coordinator.replication.election import ElectionCall
from muster_coordinator.replication.messages import Ack, Sealed
from muster_coordinator.requests.groups import HeartbeatRequest, HeartbeatResponse


@pytest.fixture
def partition() -> Partition:
    """With a leader in epoch 0, which two replicas follow."""
    world = World(Options(0, loss=0.0, duplicates=0.0, long_delay=0.0, crash_in_effects=0.0))
    cluster = Cluster(world)
    world.run_until(200)
    partition = cluster.partitions[0]
    pod, sets = cluster.first_sets(partition)
    partition.replicas[pod].elect(ElectionCall(0, sets, bootstrap=True), lambda answer: None)
    world.run_until(1_000)
    return partition


def _pair(partition: Partition) -> tuple[HostedReplica, HostedReplica]:
    return partition.replicas["pod-0"], partition.replicas["pod-1"]


def _ack(partition: Partition, epoch: int = 0, end: int = 1, incarnation: int = 0, *, rebuilding: bool = False) -> Ack:
    leader, follower = _pair(partition)
    return Ack(follower.storage.log_id, leader.storage.log_id, epoch, end, 1, incarnation, rebuilding)


def test_replica_that_says_what_is_so(partition: Partition) -> None:
    leader, follower = _pair(partition)
    assert leader.running.is_active
    follower.sends(_ack(partition))


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"epoch": 1}, "acks 1 to .*, its promise is"),
        ({"end": 2}, "acks 2, durable is 1"),
        ({"incarnation": 1}, "does not say what it lost"),
        ({"rebuilding": True}, "does not say what it lost"),
    ],
)
def test_ack_that_is_not_true(partition: Partition, said: dict[str, int], reason: str) -> None:
    with pytest.raises(Violation, match=reason):
        _pair(partition)[1].sends(_ack(partition, **said))  # type: ignore[arg-type]


def test_ack_of_a_log_that_differs_from_the_leaders(partition: Partition) -> None:
    leader, follower = _pair(partition)
    leader.running.log.end = 0
    with pytest.raises(Violation, match="whose log ends at 0"):
        follower.sends(_ack(partition))


def test_seal_for_another_leader_than_was_promised(partition: Partition) -> None:
    follower = _pair(partition)[1]
    sealed = Sealed(follower.storage.log_id, "another", 0, 1, (), None, -1, 0, False, 0)
    with pytest.raises(Violation, match="seals 0 for another"):
        follower.sends(sealed)


def test_answer_of_a_leader_that_was_deposed_before_it_was_asked(partition: Partition) -> None:
    leader = _pair(partition)[0]
    leader.leads_since(0, "a request")
    with pytest.raises(Violation, match="in epoch 0, asked when 1 was ACTIVE"):
        leader.leads_since(1, "a request")


def test_answer_is_judged_by_the_generation_at_which_it_was_asked(partition: Partition) -> None:
    leader = _pair(partition)[0]
    machine = leader.pod.manager.shards[0].machine
    partition.members.committed("g", _group(generation=6), epoch=0)
    heartbeat = HeartbeatRequest("g", 6, "a", None)

    def asked() -> ClientAnswer:
        answer = ClientAnswer(leader, Request(heartbeat, lambda response: None))
        machine.operations[HeartbeatRequest](heartbeat, answer, 0)
        return answer

    def answers(answer: ClientAnswer) -> None:
        answer.answer(HeartbeatResponse(ErrorCode.ILLEGAL_GENERATION))
        leader.pod.checks.pop()()

    machine.coordinator.on_unloaded()
    machine.replay(GroupMetadataRecord("g", _group(generation=6)), 1, 0)
    asked_in_6 = asked()
    machine.group("g").generation = 7  # all have joined, and no record says so yet
    asked_in_7 = asked()
    machine.on_unloaded()  # a fence
    assert machine.group("g").generation == 6
    answers(asked_in_7)
    with pytest.raises(Violation, match="told a in epoch 0 that its generation 6 is over"):
        answers(asked_in_6)


def _group(generation: int) -> GroupMetadataValue:
    members = (GroupMember("a", None, "", "", 0, 0, b"", b""),)
    return GroupMetadataValue("consumer", generation, "range", "a", 0, members)


def test_replica_that_counts_again_with_less_than_it_held(partition: Partition) -> None:
    follower = _pair(partition)[1]
    held = log_of((0, 0, commit_record(1)), (1, 0, commit_record(2)))
    partition.checker._forget_log()
    partition.checker._compare(held, "a log", 0, 2)
    follower._held = [held]
    with pytest.raises(Violation, match="counts again with 1 of the committed 2"):
        follower._rebuilt()


def test_acks_of_before_a_loss_count_until_the_leader_hears_of_it() -> None:
    statements = Statements()
    statements.acks(Ack("b", "a", 3, 5, 1, 0, False))
    assert statements.has_acked("b", 3, 5)
    assert not statements.has_acked("b", 3, 6)
    assert not statements.has_acked("b", 4, 5)
    statements.heard("b", 3, 1)
    assert not statements.has_acked("b", 3, 5)
    statements.acks(Ack("b", "a", 3, 5, 1, 1, False))
    assert statements.has_acked("b", 3, 5)
