"""What the GitOps storm has found in the operator: each by itself, and small."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace as with_fields

import pytest
from msgspec.structs import replace
from tests.unit.operator.fakes import cluster
from tests.unit.operator.model import Model, Operator

from muster_operator.api.conditions import Condition, find_condition
from muster_operator.api.models import CoordinatorClusterStatus, OffsetsTopicStatus, PartitionState, Rollout
from muster_operator.plan.actions import Action, CreateReplicas, Elect, RestartPod, WriteClusterStatus
from muster_operator.plan.observation import Connection, Observation
from muster_operator.plan.planner import plan
from muster_operator.plan.scale import pods_to_run


def served(pods: int = 3, partitions: int = 3) -> Model:
    model = Model(pods=pods, partitions=partitions, replication_factor=3)
    Operator(model).settle()
    assert model.all_led
    return model


def declare_replicas(model: Model, *pods: str) -> None:
    model.create((0,))
    model.objects["t-0"] = replace(model.objects["t-0"], spec=replace(model.objects["t-0"].spec, replicas=pods))


def rolling(model: Model, outdated: Collection[str]) -> Operator:
    """An operator that sees these pods as outdated."""

    class Rolling(Operator):
        def observe(self) -> Observation:
            seen = super().observe()
            return with_fields(
                seen, pods=tuple(with_fields(pod, outdated=pod.name in outdated, uid=pod.name) for pod in seen.pods)
            )

    return Rolling(model, token=9)


def restarts(actions: Collection[Action]) -> list[str]:
    return [each.pod for each in actions if isinstance(each, RestartPod)]


def first_restart(operator: Operator) -> str:
    """The pod that is restarted once everything before it is done."""
    for _ in range(60):
        if found := restarts(operator.replan()):
            return found[0]
        while operator.todo:
            operator.act()
    raise AssertionError(f"no pod is restarted: {operator.replan()}")


def ready(actions: Collection[Action]) -> Condition:
    (status,) = [each.status for each in actions if isinstance(each, WriteClusterStatus)]
    found = find_condition(status.conditions, "Ready")
    assert found is not None
    return found


@pytest.mark.parametrize(("up", "cluster_id"), [(0, ""), (1, ""), (2, "again-2")])
def test_cluster_that_is_created_again_while_its_pods_start_gets_no_new_kafka_cluster_id(
    up: int, cluster_id: str
) -> None:
    """It was taken from the object's uid, and then every volume was a stranger's. A majority has to say that it knows
    of none.
    """
    model = served()
    model.recreate(topic=False, partitions=False)
    model.version = 1
    model.recreate(topic=False, partitions=False)
    for number, pod in enumerate(model.running.values()):
        pod.volume.last_image = None
        if number >= up:
            model.stop(pod.name)
    written = [
        each.status for each in plan(Operator(model, token=2).observe(), 1.0) if isinstance(each, WriteClusterStatus)
    ]
    assert [each.cluster_id for each in written] == [cluster_id]


def test_rollout_and_a_higher_replication_factor_at_once_end() -> None:
    """The pod that was to be replaced next got no copy, and the rollout waited for it."""
    model = served(pods=5)
    model.topic = replace(model.topic, spec=replace(model.topic.spec, replication_factor=5))
    assert first_restart(rolling(model, [*model.running])) == "c-4"
    assert {len(each.status.replicas) for each in model.objects.values()} == {5}


def test_rollout_and_a_lower_replication_factor_at_once_end() -> None:
    """The copy that was to stay was on the pod that goes next, and could not lead there; and it did not go because
    another copy was lost.
    """
    model = served()
    assert model.objects["t-2"].status.replicas[0].pod == "c-2"
    model.stop("c-2")
    Operator(model, token=2).settle()
    model.restart("c-2")
    leader = model.objects["t-2"].status.leader
    model.lose_volume(next(name for name in ("c-0", "c-1") if name != leader))
    model.topic = replace(model.topic, spec=replace(model.topic.spec, replication_factor=1))
    assert first_restart(rolling(model, [*model.running])) == "c-2"
    assert {len(model.recorded(name).replicas) for name in model.objects} == {1}


def test_rollout_waits_for_partitions_whose_objects_are_still_to_be_created() -> None:
    """After a topic was renamed no partition was known, and so none was in the way."""
    model = served()
    model.recreate(cluster=False)
    assert restarts(rolling(model, ["c-2"]).replan()) == []


def test_lost_copy_is_replaced_where_a_person_named_fewer_pods_than_the_topic_has_copies() -> None:
    model = served(pods=5, partitions=1)
    each = model.objects["t-0"]
    named = tuple(one.pod for one in each.status.replicas)
    model.objects["t-0"] = replace(each, spec=replace(each.spec, replicas=named))
    model.topic = replace(model.topic, spec=replace(model.topic.spec, replication_factor=5))
    lost = next(name for name in named if name != each.status.leader)
    model.lose_volume(lost)
    Operator(model, token=2).settle()
    status = model.objects["t-0"].status
    assert (len(status.replicas), status.following, status.learners) == (3, 3, ())


def test_two_learners_for_one_copy_that_no_pod_has_are_one_too_many_and_one_is_taken() -> None:
    """A lost record and a lost volume leave a replica without a pod, which does not come back."""
    model = served(pods=4, partitions=1)
    gone = next(one for one in model.objects["t-0"].status.replicas if one.pod != model.objects["t-0"].status.leader)
    model.running[gone.pod].volume.replicas.clear()
    model.recreate(cluster=False)
    operator = Operator(model, token=2)
    while not any(isinstance(each, CreateReplicas) for each in operator.replan()):
        operator.act()
        while operator.todo:
            operator.act()
    status = model.recorded("t-0")
    assert [one.pod for one in status.replicas if not one.pod] == [""]
    spare = tuple(replace(status.learners[0], pod=name) for name in sorted(model.running))
    held = {one.pod for one in status.replicas}
    model.put("t-0", replace(status, learners=tuple(one for one in spare if one.pod not in held)))
    Operator(model, token=3).settle()
    after = model.objects["t-0"].status
    assert (len(after.replicas), after.following, after.learners) == (3, 3, ())


def test_partition_that_names_a_pod_which_is_not_declared_is_told_with_both_ways_out() -> None:
    model = served(pods=4, partitions=1)
    each = model.objects["t-0"]
    model.objects["t-0"] = replace(each, spec=replace(each.spec, replicas=("c-0", "c-1", "c-7")))
    Operator(model, token=2).settle()
    found = find_condition(model.cluster.status.conditions, "Stalled")
    assert found is not None
    assert "spec.replicas of OffsetsPartition t-0 names pod c-7, and CoordinatorCluster c has 4 pods" in found.message
    assert 'patch coordinatorcluster c --type merge -p \'{"spec":{"pods":8}}\'' in found.message
    assert 'patch offsetspartition t-0 --type merge -p \'{"spec":{"replicas":["c-0","c-1"]}}\'' in found.message


@pytest.mark.parametrize("paused", [False, True])
def test_pods_that_do_not_run_are_named_with_their_last_words_when_partitions_have_no_leader(paused: bool) -> None:
    """Only "connection refused" was told, and nothing of a paused rollout that keeps the pods as they are."""
    model = served()
    model.cluster = replace(model.cluster, spec=replace(model.cluster.spec, rollout=Rollout(paused)))
    seen = Operator(model, token=2).observe()
    broken = {"connection": Connection.DOWN, "trouble": "exit code 2: no such command", "outdated": paused}
    seen = with_fields(seen, pods=tuple(with_fields(pod, **broken) for pod in seen.pods))  # type: ignore[arg-type]
    told = ready(plan(seen, 1.0))
    assert told.reason == "PartitionsLeaderless"
    assert "pod c-0: exit code 2: no such command" in told.message
    assert ("spec.rollout.paused keeps pod c-0, c-1, c-2" in told.message) is paused


def test_volumes_of_pods_that_are_not_declared_any_more_are_asked_while_a_record_is_lost() -> None:
    """A cluster that was created again with fewer pods began empty where its logs were on the others."""
    model = served(pods=5, partitions=5)
    model.recreate()
    model.cluster = replace(cluster(3), status=CoordinatorClusterStatus())
    away = {name: model.running.pop(name) for name in ("c-3", "c-4")}
    for name in away:
        model.stop(name)

    def seen(volumes: int) -> Observation:
        return with_fields(Operator(model, token=2).observe(), volumes=volumes)

    model.create(tuple(range(5)))
    assert pods_to_run(seen(volumes=5)) == 5
    for volumes in (-1, 5):
        actions = plan(seen(volumes), 1.0)
        assert not any(isinstance(each, CreateReplicas) for each in actions)
        assert not any(isinstance(each, Elect) and each.bootstrap for each in actions)
    for name, pod in away.items():
        model.running[name] = pod
        model.restart(name)
    Operator(model, token=3).settle(80)
    assert model.all_led
    assert pods_to_run(seen(volumes=5)) == 3, "they hold nothing any more"
    assert {each.status.state for each in model.objects.values()} == {PartitionState.LED}
    assert model.topic.status != OffsetsTopicStatus()


def test_learner_on_a_pod_that_is_to_go_is_given_up_for_one_on_a_pod_that_stays() -> None:
    """It could not lead there, and the leader's pod was to go as well: both waited for one another."""
    model = Model(pods=3, partitions=1)
    declare_replicas(model, "c-2")
    Operator(model).settle()
    declare_replicas(model, "c-1")
    operator = Operator(model, token=2)
    while not any(one.log_id for one in model.recorded("t-0").learners):
        operator.replan()
        operator.act()
    declare_replicas(model)
    model.cluster = replace(model.cluster, spec=replace(model.cluster.spec, pods=1))
    Operator(model, token=3).settle()
    assert [one.pod for one in model.objects["t-0"].status.replicas] == ["c-0"]
    assert pods_to_run(Operator(model, token=4).observe()) == 1
