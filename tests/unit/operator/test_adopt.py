"""Status is a cache: a cluster whose objects were deleted and applied again goes on from what its volumes say."""

from __future__ import annotations

import json
import re
from dataclasses import replace as with_fields
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.operator.model import Model, Operator
from tests.unit.operator.test_planner_properties import finish_loads
from tests.unit.operator.test_sets_properties import EVENTS, happen, logs_are_whole
from tests.unit.podapi.fake_volume import FakeReplica, FakeVolume

from muster_coordinator.podapi.control import RefusedCallError
from muster_operator.api.conditions import find_condition
from muster_operator.api.models import (
    CoordinatorClusterStatus,
    Layout,
    LeadershipRecord,
    OffsetsPartitionSpec,
    OffsetsPartitionStatus,
    OffsetsTopicSpec,
    OffsetsTopicStatus,
    PartitionState,
    Reshard,
)
from muster_operator.plan.actions import CreateReplicas, Elect, PublishMetadata, RecordLeadership
from muster_operator.plan.observation import Connection
from muster_operator.plan.partition_view import log_ids
from muster_operator.plan.planner import plan


def made(factor: Literal[1, 3, 5] = 3, pods: int = 3, partitions: int = 4) -> Model:
    model = Model(pods=pods, partitions=partitions, replication_factor=factor)
    model.cluster = replace(model.cluster, metadata=replace(model.cluster.metadata, uid="first"))
    Operator(model).settle()
    assert model.all_led
    return model


def sets(model: Model) -> dict[str, set[str]]:
    return {name: {*log_ids(each.status.replicas)} for name, each in model.objects.items()}


def message(model: Model, name: str = "t-0") -> str:
    ready = find_condition(model.objects[name].status.conditions, "Ready")
    assert ready is not None
    return ready.message


def obey(model: Model, name: str = "t-0") -> None:
    """Do what the message of a stalled partition says, to the letter."""
    command = re.search(r"kubectl -n ns patch offsetspartition (\S+) --type merge -p '(.*?)'", message(model, name))
    assert command is not None, message(model, name)
    assert command[1] == name
    asked = json.loads(command[2])["spec"]
    spec: OffsetsPartitionSpec = model.objects[name].spec
    if "allowDataLoss" in asked:
        assert asked["allowDataLoss"] <= model.objects[name].status.epoch, "the API server refuses that"
        spec = replace(spec, allow_data_loss=asked["allowDataLoss"])
        model.loss_allowed = True
    if "replicas" in asked:
        spec = replace(spec, replicas=tuple(asked["replicas"]))
    model.objects[name] = replace(model.objects[name], spec=spec)


@pytest.mark.parametrize("factor", [1, 3, 5])
def test_everything_deleted_and_applied_again_goes_on_with_the_same_logs_without_an_election(
    factor: Literal[1, 3, 5],
) -> None:
    model = made(factor, pods=5)
    before = {name: each.status for name, each in model.objects.items()}
    logs, elections = sets(model), {name: len(pod.elections) for name, pod in model.running.items()}
    model.recreate()
    Operator(model, token=2).settle()
    assert model.all_led
    assert sets(model) == logs
    logs_are_whole(model)
    after = {name: each.status for name, each in model.objects.items()}
    assert {name: (each.leader, each.epoch) for name, each in after.items()} == {
        name: (each.leader, each.epoch) for name, each in before.items()
    }
    assert {name: len(pod.elections) for name, pod in model.running.items()} == elections


def test_pods_that_start_anew_without_statuses_are_elected_above_every_epoch_that_a_log_has_promised() -> None:
    model = made()
    logs = sets(model)
    for name in ("c-1", "c-0"):  # some epochs
        model.stop(name)
        Operator(model, token=2).settle()
        model.restart(name)
    promised = {index: max(pod.volume.replicas[index].promised for pod in model.running.values()) for index in range(4)}
    for name in [*model.running]:
        model.restart(name)
    model.recreate()
    operator = Operator(model, token=3)
    operator.settle()
    assert model.all_led
    assert sets(model) == logs
    for each in model.objects.values():
        assert each.status.epoch > promised[each.spec.index]
    assert not any(each.bootstrap for pod in model.running.values() for each in pod.elections)


def test_majority_of_the_logs_is_enough_and_the_last_replica_is_found_when_it_is_back() -> None:
    model = made()
    logs = sets(model)
    model.recreate()
    model.stop("c-0")
    for name in ("c-1", "c-2"):
        model.restart(name)
    Operator(model, token=2).settle()
    assert model.all_led
    assert sets(model) == logs
    model.restart("c-0")
    Operator(model, token=3).settle()
    assert sets(model) == logs
    assert {one.pod for each in model.objects.values() for one in each.status.replicas} == {"c-0", "c-1", "c-2"}
    logs_are_whole(model)


def test_logs_count_wherever_they_are_although_a_person_has_asked_for_other_pods() -> None:
    """What spec.replicas asks for follows: a change of the set."""
    model = made(pods=5)
    first = {each.pod for each in model.objects["t-0"].status.replicas}
    for name in [*model.running]:
        model.restart(name)
    model.recreate(partitions=False)
    others = tuple(name for name in model.running if name not in first)
    spec = replace(model.objects["t-0"].spec, replicas=(min(first), *others))
    model.objects["t-0"] = replace(model.objects["t-0"], spec=spec, status=OffsetsPartitionStatus())
    Operator(model, token=2).settle()
    assert model.all_led
    assert {each.pod for each in model.objects["t-0"].status.replicas} == {min(first), *others}
    assert not any(each.bootstrap for pod in model.running.values() for each in pod.elections if each.partition == 0)
    logs_are_whole(model)


def test_replica_whose_record_and_volume_are_lost_is_replaced_once_every_pod_answers() -> None:
    model = made()
    logs = sets(model)
    for name in ("c-1", "c-2"):
        model.restart(name)
    model.lose_volume("c-0")
    model.stop("c-0")
    model.recreate()
    Operator(model, token=2).settle()
    assert model.all_led
    assert sets(model) == logs, "its volume may come back"
    model.restart("c-0")
    Operator(model, token=3).settle()
    for each in model.objects.values():
        assert {one.pod for one in each.status.replicas} == {"c-0", "c-1", "c-2"}
        assert all(one.log_id for one in each.status.replicas)
    logs_are_whole(model)


def test_replica_that_was_never_used_counts_for_the_majority_of_the_set_that_a_log_names() -> None:
    """As after a first election that one of three did not see, when another one then loses its volume."""
    model = made(partitions=1)
    unused = model.running["c-1"].volume.replicas[0]
    model.running["c-1"].volume.replicas[0] = FakeReplica(unused.log_id)
    for name in [*model.running]:
        model.restart(name)
    model.lose_volume("c-2")
    model.recreate()
    Operator(model, token=2).settle()
    assert model.all_led
    assert unused.log_id in sets(model)["t-0"]


def test_minority_of_the_logs_waits_for_the_other_pods_and_names_them() -> None:
    model = made()
    logs = sets(model)
    model.recreate()
    for name in ("c-0", "c-1"):
        model.stop(name)
    model.restart("c-2")
    operator = Operator(model, token=2)
    operator.settle()
    assert {each.status.state for each in model.objects.values()} == {PartitionState.LEADERLESS}
    assert {each.status.reason for each in model.objects.values()} == {"Adopting"}
    assert message(model).endswith("waits for pod c-0, c-1")
    assert model.running["c-2"].elections == []
    model.restart("c-1")
    Operator(model, token=3).settle()
    assert model.all_led
    assert sets(model) == logs


def test_empty_status_is_not_a_new_topic_while_a_volume_has_its_log() -> None:
    """The planted fault: with replication factor 1 the log is on one pod, and that pod is away."""
    model = made(1)
    model.recreate()
    model.stop("c-0")
    operator = Operator(model, token=2)
    actions = [action for _ in range(5) for action in carried_out(operator)]
    created = {index for each in actions if isinstance(each, CreateReplicas) for index in each.indexes}
    assert not any(isinstance(each, Elect) and each.bootstrap for each in actions)
    assert not created
    model.restart("c-0")
    Operator(model, token=3).settle()
    assert model.all_led
    logs_are_whole(model)


def carried_out(operator: Operator) -> tuple[object, ...]:
    actions = operator.replan()
    while operator.todo:
        operator.act()
    return actions


def test_one_partition_pruned_goes_on_with_its_log_and_the_others_notice_nothing() -> None:
    model = made()
    logs = sets(model)
    epochs = {name: each.status.epoch for name, each in model.objects.items()}
    del model.objects["t-2"]
    operator = Operator(model, token=2)
    operator.settle()
    assert model.all_led
    assert sets(model) == logs
    assert {name: each.status.epoch for name, each in model.objects.items()} == epochs
    logs_are_whole(model)


def test_change_of_the_set_that_was_under_way_goes_on_without_its_record() -> None:
    model = made(5, pods=5, partitions=1)
    for pod in model.running.values():
        pod.slow_sets.add(0)
    leader = model.objects["t-0"].status.leader
    lost = next(name for name in model.running if name != leader)
    model.lose_volume(lost)
    model.running[lost].slow_sets.add(0)
    Operator(model, token=2).settle()
    assert model.objects["t-0"].status.previous_replicas
    model.recreate()
    for name in [*model.running]:
        model.restart(name)
    Operator(model, token=3).settle(40)
    assert model.all_led
    logs_are_whole(model)


def test_image_of_a_lost_record_cuts_no_leader_from_its_followers_and_clients() -> None:
    model = made()
    before = model.running["c-0"].images[-1]
    model.recreate()
    model.create((0, 1))  # the other two objects come later
    seen = Operator(model, token=2).observe()
    half_seen = tuple(
        with_fields(pod, connection=Connection.UNSURE, replicas={}) if pod.name == "c-2" else pod for pod in seen.pods
    )
    assert not [each for each in plan(with_fields(seen, pods=half_seen), 1.0) if isinstance(each, PublishMetadata)]
    (published,) = [each for each in plan(seen, 1.0) if isinstance(each, PublishMetadata)]
    assert published.image.leaders == before.leaders
    assert published.image.places == before.places


def test_kafka_cluster_id_is_what_the_volumes_remember() -> None:
    model = made()
    assert model.cluster.status.cluster_id == "first"
    model.recreate()
    Operator(model, token=2).settle()
    assert model.cluster.status.cluster_id == "first"
    assert {pod.images[-1].cluster_id for pod in model.running.values()} == {"first"}


def test_no_pod_is_told_a_cluster_id_before_most_volumes_have_said_theirs() -> None:
    model = made()
    model.recreate()
    for name in ("c-1", "c-2"):
        model.stop(name)
    model.lose_volume("c-0")
    Operator(model, token=2).settle()
    assert model.running["c-0"].images == []
    for name in ("c-1", "c-2"):
        model.restart(name)
    Operator(model, token=3).settle(60)
    assert model.running["c-0"].images[-1].cluster_id == "first"
    assert model.all_led


def foreign_volume(cluster_id: str) -> FakeVolume:
    other = Model(partitions=4, replication_factor=3)
    other.cluster = replace(other.cluster, metadata=replace(other.cluster.metadata, uid=cluster_id))
    Operator(other).settle()
    return other.running["c-0"].volume


def test_pod_with_the_volume_of_another_kafka_cluster_is_left_alone_and_named() -> None:
    model = made()
    volume = foreign_volume("another")
    logs = {index: (each.log_id, each.end_offset) for index, each in volume.replicas.items()}
    model.running["c-0"].volume = volume
    model.restart("c-0")
    Operator(model, token=2).settle()
    ready = find_condition(model.cluster.status.conditions, "Stalled")
    assert ready is not None
    assert ready.reason == "ForeignCluster"
    assert "kubectl -n ns delete pvc data-c-0" in ready.message
    assert {index: (each.log_id, each.end_offset) for index, each in volume.replicas.items()} == logs
    assert {each.status.state for each in model.objects.values()} == {PartitionState.LED}
    assert "c-0" not in {each.status.leader for each in model.objects.values()}
    model.lose_volume("c-0")  # what the message says
    Operator(model, token=3).settle(40)
    assert find_condition(model.cluster.status.conditions, "Stalled") is None
    logs_are_whole(model)


def test_volumes_of_several_kafka_clusters_without_a_majority_are_told_and_nothing_is_published() -> None:
    model = made(pods=3)
    model.recreate()
    for name, cluster_id in (("c-0", "one"), ("c-1", "two"), ("c-2", "three")):
        model.running[name].volume = foreign_volume(cluster_id)
        model.restart(name)
    operator = Operator(model, token=2)
    assert not any(isinstance(each, PublishMetadata) for _ in range(3) for each in carried_out(operator))
    ready = find_condition(model.cluster.status.conditions, "Stalled")
    assert ready is not None
    assert ready.reason == "ForeignCluster"
    assert "c-0 of one, c-1 of two, c-2 of three" in ready.message


def test_pod_refuses_an_image_of_another_kafka_cluster() -> None:
    model = made()
    image = replace(model.running["c-0"].images[-1], cluster_id="another", version=10**6)
    with pytest.raises(RefusedCallError, match="another cluster"):
        model.running["c-0"].update_metadata(image)


def test_less_than_a_majority_for_good_is_stalled_and_the_command_of_the_message_leads_what_is_left() -> None:
    model = made(partitions=1)
    (kept,) = sets(model)["t-0"] & {model.running["c-2"].volume.replicas[0].log_id}
    for name in ("c-0", "c-1"):
        model.lose_volume(name)
    model.restart("c-2")
    model.recreate()
    Operator(model, token=2).settle()
    status = model.objects["t-0"].status
    assert (status.state, status.reason) == (PartitionState.STALLED, "NoMajority")
    assert model.running["c-2"].elections == []
    obey(model)
    Operator(model, token=3).settle(60)
    assert model.all_led
    assert kept in sets(model)["t-0"]
    logs_are_whole(model)


@pytest.mark.parametrize("off", [-1, 1, 1000])
def test_persons_word_about_another_epoch_does_not_adopt_what_a_minority_says(off: int) -> None:
    """Of an earlier loss: it was applied again with the objects, or restored with etcd."""
    model = made(partitions=1)
    for name in ("c-1", "c-0"):  # some epochs
        model.stop(name)
        Operator(model, token=2).settle()
        model.restart(name)
    Operator(model, token=2).settle()
    led = model.running["c-2"].volume.replicas[0].last_epoch
    for name in ("c-0", "c-1"):
        model.lose_volume(name)
    model.restart("c-2")
    model.recreate()
    Operator(model, token=3).settle()
    word = replace(model.objects["t-0"].spec, allow_data_loss=led + off)
    model.objects["t-0"] = replace(model.objects["t-0"], spec=word)
    Operator(model, token=4).settle()
    status = model.objects["t-0"].status
    assert (status.state, status.reason, status.replicas) == (PartitionState.STALLED, "NoMajority", ())
    assert f'"allowDataLoss":{led}}}' in message(model)


def test_volumes_that_turn_up_later_count_although_the_partition_was_stalled_without_them() -> None:
    model = made(partitions=1)
    logs = sets(model)
    kept = {name: model.running[name].volume for name in ("c-0", "c-1")}
    for name in kept:
        model.lose_volume(name)
    model.restart("c-2")
    model.recreate()
    Operator(model, token=2).settle()
    assert model.objects["t-0"].status.state is PartitionState.STALLED
    for name, volume in kept.items():
        model.running[name].volume = volume
        model.restart(name)
    Operator(model, token=3).settle()
    assert model.all_led
    assert sets(model) == logs


def two_histories() -> Model:
    """Two sets of three logs each on six pods, none of which names the other."""
    model = made(pods=6, partitions=1)
    elsewhere = [name for name in model.running if 0 not in model.running[name].volume.replicas]
    ids = tuple(f"other-{number}" for number in range(3))
    for name, log_id in zip(elsewhere, ids, strict=True):
        log = FakeReplica(log_id, 9, None, used=True, end_offset=40, last_epoch=9, replicas=ids)
        model.running[name].volume.replicas[0] = log
    for name in [*model.running]:
        model.restart(name)
    model.recreate()
    return model


def test_two_candidate_histories_are_stalled_and_the_command_of_the_message_chooses_one() -> None:
    model = two_histories()
    Operator(model, token=2).settle()
    status = model.objects["t-0"].status
    assert (status.state, status.reason) == (PartitionState.STALLED, "TwoHistories")
    assert len(re.findall("kubectl", message(model))) == 2
    assert not any(pod.elections for pod in model.running.values())
    obey(model)
    Operator(model, token=3).settle()
    assert model.all_led
    assert len(sets(model)["t-0"]) == 3


def test_history_that_an_accepted_loss_gave_up_is_not_gone_back_to() -> None:
    model = made(partitions=1)
    old = {name: model.running[name].volume for name in ("c-0", "c-1")}
    for name in old:
        model.lose_volume(name)
        model.stop(name)
    Operator(model, token=2).settle()
    spec = replace(model.objects["t-0"].spec, allow_data_loss=model.objects["t-0"].status.led_epoch)
    model.objects["t-0"] = replace(model.objects["t-0"], spec=spec)
    model.loss_allowed = True
    Operator(model, token=3).settle()
    assert len(model.objects["t-0"].status.replicas) == 1
    for name, volume in old.items():
        model.running[name].volume = volume
        model.restart(name)
    model.restart("c-2")
    model.recreate()
    Operator(model, token=4).settle()
    assert model.objects["t-0"].status.reason == "TwoHistories"
    assert "was given up when a loss was accepted" in message(model)
    obey(model)
    Operator(model, token=5).settle()
    assert model.all_led
    assert sets(model)["t-0"] == {model.running["c-2"].volume.replicas[0].log_id}


def test_used_logs_that_name_no_set_are_stalled_and_the_command_of_the_message_uses_them() -> None:
    """An election that died between its promises and its first record leaves such logs."""
    model = Model(partitions=1, replication_factor=3)
    for number, pod in enumerate(model.running.values()):
        pod.volume.replicas[0] = FakeReplica(f"log-{number}", promised=0, leader="log-0", used=True)
    Operator(model).settle()
    assert model.objects["t-0"].status.reason == "UnknownLog"
    obey(model)
    Operator(model, token=2).settle()
    assert model.all_led
    assert sets(model)["t-0"] == {"log-0", "log-1", "log-2"}


# The layout of the offsets topic


def test_layout_after_a_reshard_is_what_the_volumes_remember() -> None:
    model = made(partitions=2)
    model.ask(3)
    for _ in range(20):
        Operator(model, token=2).settle(40)
        for pod in model.running.values():
            for index in range(2, 5):
                pod.fill(index, 2)
    assert model.topic.layout == Layout(2, 3)
    model.topic = replace(model.topic, spec=replace(model.topic.spec, reshard=None))
    model.recreate()
    Operator(model, token=9).settle()
    assert model.topic.layout == Layout(2, 3)
    assert {each.spec.index for each in model.objects.values()} == {2, 3, 4}
    assert {each.status.state for each in model.objects.values()} == {PartitionState.LED}


def test_layout_of_a_record_from_before_the_reshard_is_not_gone_back_to() -> None:
    model = made(partitions=2)
    before = model.topic.status
    model.ask(3)
    for _ in range(20):
        Operator(model, token=2).settle(40)
        for pod in model.running.values():
            for index in range(2, 5):
                pod.fill(index, 2)
    closed = {index: model.running["c-0"].volume.replicas[index].fence for index in range(2)}
    assert all(fence is not None and fence.closed for fence in closed.values())
    model.topic = replace(model.topic, status=before, metadata=model._topic_meta())
    Operator(model, token=9).settle(40)
    assert model.topic.layout == Layout(2, 3)
    assert {index: model.running["c-0"].volume.replicas[index].fence for index in range(2)} == closed
    served = {each.spec.index: each.status.state for each in model.objects.values() if each.spec.index >= 2}
    assert served == dict.fromkeys(range(2, 5), PartitionState.LED)


def test_reshard_whose_record_is_lost_opens_what_it_had_closed_and_the_next_one_takes_new_numbers() -> None:
    model = made(partitions=2)
    model.ask(3)
    Operator(model, token=2).settle(40)
    assert any(
        each.fence is not None and each.fence.closed for pod in model.running.values() for each in pod.partitions()
    )
    model.topic = replace(model.topic, spec=replace(model.topic.spec, reshard=None))
    model.recreate()
    Operator(model, token=3).settle()
    served = [each for pod in model.running.values() for each in pod.partitions() if each.partition < 2 and each.leads]
    assert {each.state.value for each in served} == {"ACTIVE"}
    spec: OffsetsTopicSpec = replace(model.topic.spec, reshard=Reshard(4))
    model.topic = replace(model.topic, spec=spec, metadata=replace(model.topic.metadata, generation=7))
    Operator(model, token=4).settle(40)
    assert model.topic.status.reshard is not None
    assert model.topic.status.reshard.base == 5


def test_topic_created_again_with_another_number_of_partitions_is_stalled_and_nothing_is_elected() -> None:
    model = made(partitions=4)
    model.recreate()
    model.topic = replace(model.topic, spec=replace(model.topic.spec, partitions=2))
    operator = Operator(model, token=2)
    operator.settle()
    ready = find_condition(model.topic.status.conditions, "Stalled")
    assert ready is not None
    assert ready.reason == "LayoutConflict"
    assert "sed 's/^  partitions: 2$/  partitions: 4/'" in ready.message
    assert model.objects == {}
    model.topic = replace(model.topic, spec=replace(model.topic.spec, partitions=4))
    model.recreate()
    Operator(model, token=3).settle()
    assert model.all_led


def test_record_that_was_restored_without_log_ids_is_taken_from_the_logs() -> None:
    model = made(partitions=1)
    logs = sets(model)
    status = model.objects["t-0"].status
    placed = OffsetsPartitionStatus(replicas=tuple(replace(each, log_id="") for each in status.replicas))
    line = LeadershipRecord(replicas=placed.replicas, uid=model.objects["t-0"].metadata.uid).line
    model.topic = replace(model.topic, status=OffsetsTopicStatus(leaderships={"0": line}))
    model.objects["t-0"] = replace(model.objects["t-0"], status=placed)
    model.cluster = replace(model.cluster, status=CoordinatorClusterStatus())
    operator = Operator(model, token=2)
    assert any(isinstance(each, RecordLeadership) for each in operator.replan())
    operator.settle()
    assert model.all_led
    assert sets(model) == logs


# Whatever happens before and after


LOSSES = st.sampled_from(["all", "topic", "partitions", "cluster"])


@pytest.mark.long
@settings(max_examples=150)
@given(st.lists(EVENTS, max_size=60), st.lists(EVENTS, max_size=20), LOSSES, st.sets(st.integers(0, 3), max_size=4))
@example([("restart", 0), ("plan", 0), ("act", 0)], [("act", 0)], "all", set())  # lost between record and call
def test_objects_that_are_lost_at_any_moment_are_rebuilt_from_the_same_logs(
    events: list[tuple[str, int]], later: list[tuple[str, int]], lost: str, restarted: set[int]
) -> None:
    model = Model(pods=4, partitions=3, replication_factor=3)
    operators = [Operator(model, token=1), Operator(model, token=2)]
    operators[0].settle()
    logs = {log.log_id: index for pod in model.running.values() for index, log in pod.volume.replicas.items()}
    for kind, number in events:
        happen(model, operators, kind, number)
    model.recreate(
        cluster=lost in ("all", "cluster"), topic=lost in ("all", "topic"), partitions=lost in ("all", "partitions")
    )
    promised = [log.promised for pod in model.running.values() for log in pod.volume.replicas.values()]
    model.called = {key: pod for key, pod in model.called.items() if key[1] <= max(promised)}
    for number in restarted:
        model.restart(f"c-{number}")
    for kind, number in later:
        happen(model, operators, kind, number)
    for name in [*model.running]:
        model.restart(name)
        finish_loads(model.running[name])
        happen(model, operators, "fast", int(name[-1]))
    last = Operator(model, token=99)
    last.settle(80)
    assert model.all_led
    for each in model.objects.values():
        held = [model.running[one.pod].volume.replicas[each.spec.index] for one in each.status.replicas]
        assert {frozenset(one.replicas) for one in held} == {frozenset(log_ids(each.status.replicas))}
        assert any(log_id in logs for log_id in log_ids(each.status.replicas)), "none of the logs of before"
    assert not any(each.bootstrap and each.epoch > 0 for pod in model.running.values() for each in pod.elections), (
        "an empty log was opened although there was another"
    )
    assert model.cluster.status.cluster_id in ("", "ns.c")
