from __future__ import annotations

import os

import msgspec
import pytest

from muster_cli.local.data_dir import RunningPod
from muster_cli.local.procfs import ProcessRef
from muster_cli.local.report import build_report
from muster_coordinator.podapi.models import PodStatus, ReplicaStatus
from muster_coordinator.states import ReplicaRole, ShardState
from muster_operator.api.models import (
    ObjectMeta,
    OffsetsPartition,
    OffsetsPartitionSpec,
    OffsetsPartitionStatus,
    PartitionState,
    Replica,
    TopicRef,
)


def pod(name: str, process: ProcessRef | None) -> RunningPod:
    return RunningPod(name=name, node_id=0, kafka_address="127.0.0.1:9092", api_address="127.0.0.1:1", process=process)


def recorded(index: int, state: PartitionState, epoch: int = 3, leader: str | None = "muster-0") -> OffsetsPartition:
    return OffsetsPartition(
        metadata=ObjectMeta(name=f"offsets-{index}"),
        spec=OffsetsPartitionSpec(topic_ref=TopicRef(name="offsets"), index=index),
        status=OffsetsPartitionStatus(
            leader=leader, epoch=epoch, replicas=(Replica(pod="muster-0", log_id="x"),), state=state
        ),
    )


def answer(name: str, *partitions: ReplicaStatus) -> PodStatus:
    return PodStatus(
        pod=name, node_id=0, pod_uid="", boot_id="", version="", kafka_address="", ready=True, partitions=partitions
    )


def leads(index: int, epoch: int) -> ReplicaStatus:
    return ReplicaStatus(
        partition=index, state=ShardState.ACTIVE, role=ReplicaRole.LEADER, epoch=epoch, leader_epoch=epoch
    )


def test_pod_that_says_it_leads_is_the_leader() -> None:
    report = build_report([], [recorded(0, PartitionState.ELECTING)], {"muster-0": answer("muster-0", leads(0, 3))})
    line = report.partitions[0]
    assert (line.leader, line.epoch, line.state, line.replicas) == ("muster-0", 3, "Led", ("muster-0",))
    assert report.led == 1


def test_recorded_leader_that_does_not_answer_leads_nothing() -> None:
    line = build_report([], [recorded(0, PartitionState.LED)], {}).partitions[0]
    assert (line.leader, line.epoch, line.state) == (None, 3, "Leaderless")


@pytest.mark.parametrize("state", [PartitionState.STALLED, PartitionState.ELECTING, PartitionState.PENDING])
def test_other_states_are_shown_as_recorded(state: PartitionState) -> None:
    assert build_report([], [recorded(0, state)], {}).partitions[0].state == state.value


def test_pod_that_loads_does_not_lead_yet() -> None:
    loading = ReplicaStatus(partition=0, state=ShardState.LOADING, role=ReplicaRole.LEADER, epoch=3, leader_epoch=3)
    line = build_report([], [recorded(0, PartitionState.ELECTING)], {"muster-0": answer("muster-0", loading)})
    assert line.partitions[0].leader is None


def test_of_two_pods_that_claim_a_partition_the_higher_epoch_counts() -> None:
    answers = {"muster-0": answer("muster-0", leads(0, 3)), "muster-1": answer("muster-1", leads(0, 4))}
    line = build_report([], [recorded(0, PartitionState.LED)], answers).partitions[0]
    assert (line.leader, line.epoch) == ("muster-1", 4)


def test_leader_of_an_epoch_below_the_recorded_one_is_on_its_way_out() -> None:
    answers = {"muster-0": answer("muster-0", leads(0, 2))}
    line = build_report([], [recorded(0, PartitionState.ELECTING)], answers).partitions[0]
    assert (line.leader, line.epoch, line.state) == (None, 3, "Electing")


def test_pods_that_follow_the_leader_in_its_epoch_are_named() -> None:
    follows = ReplicaStatus(partition=0, state=ShardState.INITIAL, role=ReplicaRole.FOLLOWER, epoch=3)
    partition = recorded(0, PartitionState.LED)
    replicas = tuple(Replica(name, f"log-{name}") for name in ("muster-0", "muster-1", "muster-2"))
    partition = msgspec.structs.replace(partition, status=msgspec.structs.replace(partition.status, replicas=replicas))
    answers = {
        "muster-0": answer("muster-0", leads(0, 3)),
        "muster-1": answer("muster-1", follows),
        "muster-2": answer("muster-2", msgspec.structs.replace(follows, epoch=2)),
    }
    assert build_report([], [partition], answers).partitions[0].followers == ("muster-1",)


def test_json_has_the_promised_names_in_order_of_partitions() -> None:
    me = ProcessRef.of(os.getpid())
    report = build_report(
        [pod("muster-0", me), pod("muster-1", None)],
        [recorded(1, PartitionState.PENDING, epoch=-1), recorded(0, PartitionState.LED)],
        {"muster-0": answer("muster-0", leads(0, 3))},
    )
    assert msgspec.json.decode(msgspec.json.encode(report)) == {
        "bootstrap": "127.0.0.1:9092,127.0.0.1:9092",
        "pods": [
            {"name": "muster-0", "pid": os.getpid(), "kafka_address": "127.0.0.1:9092", "alive": True},
            {"name": "muster-1", "pid": None, "kafka_address": "127.0.0.1:9092", "alive": False},
        ],
        "partitions": [
            {
                "partition": 0,
                "leader": "muster-0",
                "epoch": 3,
                "state": "Led",
                "replicas": ["muster-0"],
                "followers": [],
            },
            {
                "partition": 1,
                "leader": None,
                "epoch": -1,
                "state": "Pending",
                "replicas": ["muster-0"],
                "followers": [],
            },
        ],
    }
