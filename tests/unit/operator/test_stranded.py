"""A volume on a node that is gone: it is given up when all that it has is on other pods, and never before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as with_fields
from typing import Any, Literal

import pytest
from msgspec.structs import replace
from tests.unit.operator.model import Model, Operator
from tests.unit.operator.test_adopt import made
from tests.unit.operator.test_scale import declare, stalled

from muster_operator.api.conditions import find_condition
from muster_operator.api.models import (
    OffsetsPartitionSpec,
    OffsetsPartitionStatus,
    PartitionState,
    Replica,
    ReshardPhase,
    Storage,
)
from muster_operator.plan.actions import (
    Action,
    RecordReshard,
    Refresh,
    ReplaceVolume,
    RestartPod,
    WriteClusterStatus,
)
from muster_operator.plan.observation import Connection, Observation, StrandedVolume
from muster_operator.plan.planner import plan
from muster_operator.plan.stranded import needed_for

Statuses = Mapping[int, OffsetsPartitionStatus]

GONE = "only node n-2 can use it, which does not exist any more"


def stranded(pod: str, for_s: float = 61.0) -> StrandedVolume:
    return StrandedVolume(pod, f"uid-{pod}", ((f"data-{pod}", f"uid-data-{pod}"),), GONE, for_s)


class Lost(Operator):
    """An operator that is told of these volumes; a loss and its failover are over."""

    def __init__(self, model: Model, *volumes: StrandedVolume, token: int = 7) -> None:
        super().__init__(model, token)
        self.volumes = volumes
        for each in volumes:
            model.stop(each.pod)
        for _ in range(10):
            self.replan()
            self.todo = [each for each in self.todo if not isinstance(each, ReplaceVolume | Refresh)]
            while self.todo:
                self.act()

    def observe(self) -> Observation:
        return with_fields(super().observe(), stranded=self.volumes)

    def planned(self, **changes: Any) -> Sequence[Action]:
        """What a plan does besides telling people."""
        actions = plan(with_fields(self.observe(), **changes), 1.0)
        return [each for each in actions if not isinstance(each, WriteClusterStatus)]


def three(give_up_after: str = "1m", pods: int = 3, factor: Literal[1, 3, 5] = 3) -> Model:
    model = made(factor, pods=pods, partitions=4)
    spec = replace(model.cluster.spec, storage=Storage(give_up_after=give_up_after))
    model.cluster = replace(model.cluster, spec=spec)
    return model


def told(model: Model) -> str:
    ready = find_condition(model.cluster.status.conditions, "Ready")
    assert ready is not None
    return f"{ready.reason}: {ready.message}"


def test_volume_is_given_up_after_the_declared_time_and_the_pod_gets_its_copies_again() -> None:
    model = three()
    lost = Lost(model, stranded("c-2", for_s=59.0))
    assert lost.planned() == []
    assert "VolumeStranded: pod c-2 waits for the volume of claim data-c-2: " + GONE in told(model)
    assert "It is given up after 1m (spec.storage.giveUpAfter)" in told(model)
    lost.volumes = (stranded("c-2", for_s=60.0),)
    assert lost.planned() == [ReplaceVolume(stranded("c-2", for_s=60.0))]
    lost.volumes = ()
    model.lose_volume("c-2")
    lost.settle(60)
    assert model.all_led
    assert {len(each.status.replicas) for each in model.objects.values()} == {3}
    assert "AllPartitionsLed" in told(model)


def test_by_default_a_person_decides_and_has_one_command() -> None:
    model = three("0s")
    lost = Lost(model, stranded("c-2", for_s=1e9))
    assert lost.planned() == []
    reason, message = stalled(model)
    assert reason == "VolumeStranded"
    assert "All that it has is on other pods" in message
    assert "give the volume up: kubectl -n ns delete pvc/data-c-2 pod/c-2 --wait=false" in message


def test_command_names_the_archive_too_if_that_is_on_the_same_node() -> None:
    model = three("0s")
    claims = (("data-c-2", "u-1"), ("archive-c-2", "u-2"))
    lost = Lost(model, with_fields(stranded("c-2"), claims=claims))
    lost.planned()
    assert "kubectl -n ns delete pvc/data-c-2 pvc/archive-c-2 pod/c-2 --wait=false" in told(model)


def test_only_copy_is_never_given_up_and_a_person_is_told_to_bring_the_node_back() -> None:
    model = three(factor=1)
    lost = Lost(model, stranded("c-2"))
    assert lost.planned() == []
    assert "has no other copy: bring the node back" in told(model)
    assert "kubectl" not in told(model)


def test_another_pod_that_is_away_keeps_the_volume() -> None:
    model = three(pods=5)
    lost = Lost(model, stranded("c-2"))
    assert lost.planned() != []
    model.stop("c-0")
    assert not any(isinstance(each, ReplaceVolume) for each in lost.planned())


def test_copy_that_does_not_follow_keeps_the_volume() -> None:
    """The planted fault: two of three volumes are given up, and the last log is a minority of its set."""
    model = three()
    lost = Lost(model, stranded("c-2"))
    leader = model.objects["t-0"].status.leader
    other = next(name for name in model.running if name not in (leader, "c-2"))
    model.lose_volume(other)
    assert not any(isinstance(each, ReplaceVolume) for each in lost.planned())


def test_copy_that_may_lack_what_is_committed_is_asked_about_first() -> None:
    """What the lost replica and the leader have, and the third one has not yet, would be on one disk alone."""
    model = three()
    lost = Lost(model, stranded("c-2"))
    leader = model.objects["t-0"].status.leader or ""
    other = next(name for name in model.running if name not in (leader, "c-2"))
    model.running[other].volume.replicas[0].end_offset -= 1
    assert lost.planned() == [Refresh(leader)]
    model.running[other].volume.replicas[0].end_offset += 1
    assert lost.planned() == [ReplaceVolume(stranded("c-2"))]


def test_learner_that_is_not_used_while_a_pod_is_away_keeps_no_volume() -> None:
    """The storm found it: the learner waited for the pod, and the pod for the learner."""
    model = three(pods=4)
    lost = Lost(model, stranded("c-2"))
    (name, held) = next(
        (name, each) for name, each in model.objects.items() if "c-2" in [one.pod for one in each.status.replicas]
    )
    free = next(name for name in model.running if name not in [one.pod for one in held.status.replicas])
    model.put(name, replace(held.status, learners=(Replica(free),)))
    assert ReplaceVolume(stranded("c-2")) in lost.planned()


def test_reshard_keeps_the_volume() -> None:
    model = three()
    lost = Lost(model, stranded("c-2"))
    model.ask(8)
    lost.replan()
    lost.todo = [each for each in lost.todo if not isinstance(each, ReplaceVolume)]
    while lost.todo:
        lost.act()
    assert model.topic.status.reshard is not None
    assert not any(isinstance(each, ReplaceVolume) for each in lost.planned())


def test_reshard_that_is_over_keeps_no_volume() -> None:
    model = three()
    model.ask(8)
    Operator(model, token=3).settle(60)
    for pod in model.running.values():
        for index in range(4, 12):
            pod.fill(index, 4)
    Operator(model, token=4).settle(60)
    lost = Lost(model, stranded("c-2"))
    assert model.topic.status.reshard is not None
    assert lost.planned() == [ReplaceVolume(stranded("c-2"))]


def test_lost_record_keeps_the_volume() -> None:
    model = three()
    lost = Lost(model, stranded("c-2"))
    model.recreate(partitions=False, cluster=False)
    assert not any(isinstance(each, ReplaceVolume) for each in lost.planned())


@pytest.mark.parametrize("frozen", ["suspend", "hibernate"])
def test_cluster_that_is_suspended_or_hibernates_keeps_its_volumes(frozen: str) -> None:
    model = three()
    lost = Lost(model, stranded("c-2"))
    model.cluster = replace(model.cluster, spec=replace(model.cluster.spec, **{frozen: True}))
    assert not any(isinstance(each, ReplaceVolume) for each in lost.planned())


def test_of_two_lost_volumes_the_second_is_given_up_when_the_first_pod_has_its_copies_again() -> None:
    model = three(pods=5, factor=5)
    lost = Lost(model, stranded("c-3"), stranded("c-4"))
    assert lost.planned() == [ReplaceVolume(stranded("c-3"))]
    lost.volumes = (stranded("c-4"),)
    assert lost.planned() == [], "pod c-3 does not run yet"
    model.lose_volume("c-3")
    assert not any(isinstance(each, ReplaceVolume) for each in lost.planned()), "it has no copies yet"
    for _ in range(60):
        lost.replan()
        if any(isinstance(each, ReplaceVolume) for each in lost.todo):
            break
        while lost.todo:
            lost.act()
    assert all("c-3" in [one.pod for one in each.status.replicas] for each in model.objects.values())
    assert all(each.status.following == 4 for each in model.objects.values())


def test_volume_of_a_pod_that_is_to_go_is_not_replaced() -> None:
    model = three(pods=5)
    declare(model, 4)
    lost = Lost(model, stranded("c-4"))
    assert not any(isinstance(each, ReplaceVolume) for each in lost.planned())
    assert "VolumeStranded" not in told(model)


def test_partition_that_names_its_pods_gets_the_copy_on_the_same_pod_again() -> None:
    model = three(pods=4)
    held = model.objects["t-0"]
    asked = tuple(one.pod for one in held.status.replicas)
    model.objects["t-0"] = replace(held, spec=OffsetsPartitionSpec(held.spec.topic_ref, 0, replicas=asked))
    lost = Lost(model, stranded(asked[-1]))
    assert lost.planned() == [ReplaceVolume(stranded(asked[-1]))]


def test_pod_without_its_volume_does_not_halt_a_rollout_with_wrong_words() -> None:
    """It is of the declared template and does not run, and that is not the template's fault."""
    model = three("0s")
    lost = Lost(model, stranded("c-2"))
    pods = tuple(
        with_fields(pod, trouble="0 of 3 nodes") if pod.name == "c-2" else with_fields(pod, outdated=True)
        for pod in lost.observe().pods
    )
    actions = plan(with_fields(lost.observe(), pods=pods), 1.0)
    assert not any(isinstance(each, RestartPod) for each in actions)
    (status,) = (each.status for each in actions if isinstance(each, WriteClusterStatus))
    found = find_condition(status.conditions, "Stalled")
    assert found is not None
    assert found.reason == "VolumeStranded"


def without(seen: Observation, *pods: str) -> Observation:
    return with_fields(seen, pods=tuple(pod for pod in seen.pods if pod.name not in pods))


def with_down(seen: Observation, name: str) -> Observation:
    down = (with_fields(pod, connection=Connection.DOWN) if pod.name == name else pod for pod in seen.pods)
    return with_fields(seen, pods=tuple(down))


def with_status(statuses: Statuses, **changes: Any) -> Statuses:
    return {**statuses, 0: replace(statuses[0], **changes)}


@pytest.mark.parametrize(
    ("seen_as", "statuses_as", "why"),
    [
        (lambda seen: seen, lambda each: each, ""),
        (lambda seen: without(seen, "c-0"), lambda each: each, "pods are missing, too"),
        (lambda seen: with_down(seen, "c-0"), lambda each: each, "pod c-0 is away, too"),
        (lambda seen: seen, lambda each: {1: each[1]}, "nothing is recorded of partition 0"),
        (lambda seen: seen, lambda each: with_status(each, state=PartitionState.ELECTING), "partition 0 is not led"),
        (
            lambda seen: seen,
            lambda each: with_status(each, following=1),
            "partition 0 has copies that do not follow its leader",
        ),
        (
            lambda seen: seen,
            lambda each: with_status(each, previous_replicas=each[0].replicas),
            "partition 0 gets other replicas",
        ),
        (
            lambda seen: seen,
            lambda each: with_status(each, replicas=(Replica("c-2", "log"),)),
            "partition 0 has no other copy",
        ),
        (
            lambda seen: seen,
            lambda each: with_status(each, replicas=(*each[0].replicas, Replica("", "x"), Replica("", "y"))),
            "partition 0 has no majority without it",
        ),
    ],
    ids=["needed by nothing", "missing", "away", "unknown", "led", "follow", "changing", "only copy", "majority"],
)
def test_each_reason_to_keep_a_volume_counts_alone(
    seen_as: Callable[[Observation], Observation], statuses_as: Callable[[Statuses], Statuses], why: str
) -> None:
    """All but one is as it has to be: in a cluster several of them come together."""
    model = three()
    lost = Lost(model, stranded("c-2"))
    statuses = {index: model.objects[f"t-{index}"].status for index in range(4)}
    seen = seen_as(lost.observe())
    assert needed_for(seen, stranded("c-2"), (model.topic,), statuses_as(statuses)) == why


def test_reshard_alone_keeps_the_volume() -> None:
    model = three()
    lost = Lost(model, stranded("c-2"))
    statuses = {index: model.objects[f"t-{index}"].status for index in range(4)}
    model.ask(8)
    lost.replan()
    while not isinstance(lost.todo[0], RecordReshard):
        lost.todo.pop(0)
    lost.act()
    fenced = replace(model.topic.status.reshard, phase=ReshardPhase.FENCING)
    topic = replace(model.topic, status=replace(model.topic.status, reshard=fenced))
    assert needed_for(lost.observe(), stranded("c-2"), (topic,), statuses) == "a re-shard is under way"
