"""Single decisions: who is dead, what a person's word allows, when a pod is restarted."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any, Literal

import pytest
from msgspec.structs import replace
from tests.unit.operator.model import Model, Operator

from muster_coordinator.states import FailureReason, ReplicaRole, ShardState
from muster_operator.api.conditions import Reason, find_condition
from muster_operator.api.models import OffsetsPartition, OffsetsPartitionStatus, PartitionState, Replica
from muster_operator.plan import planner
from muster_operator.plan.actions import (
    Action,
    Elect,
    PublishMetadata,
    RecordLeadership,
    RemoveReplicas,
    RestartPod,
    WritePartitionStatus,
)
from muster_operator.plan.metadata import number_of, token_above
from muster_operator.plan.observation import Attempt, Connection, Observation, PodView
from muster_operator.plan.planner import MOVES_AT_ONCE, plan
from muster_operator.plan.set_change import removable


def seen(model: Model, **changes: dict[str, object]) -> Observation:
    """What an operator sees; `changes` of pods by name with _ for -."""
    observation = Operator(model, token=2).observe()
    pods = tuple(with_fields(pod, **changes.get(pod.name.replace("-", "_"), {})) for pod in observation.pods)
    return with_fields(observation, pods=pods)


def elections(actions: tuple[Action, ...]) -> list[Elect]:
    return [action for action in actions if isinstance(action, Elect)]


@pytest.fixture
def model() -> Model:
    """Three pods, three partitions: each pod leads one."""
    made = Model(partitions=3, replication_factor=3)
    Operator(made).settle()
    return made


SILENT = {"connection": Connection.SUSPECT, "detail": "it is silent"}


@pytest.mark.parametrize(("lost_by", "moves"), [(0, 0), (1, 0), (2, 1)])
def test_silent_pod_is_dead_when_most_of_the_others_have_lost_it_too(model: Model, lost_by: int, moves: int) -> None:
    lost = {"lost_peers": frozenset({"c-0"})}
    others = {f"c_{number}": lost for number in (1, 2)[:lost_by]}
    actions = plan(seen(model, c_0=SILENT, **others), 1.0)
    assert len(elections(actions)) == moves
    states = {each.status.state for each in actions if isinstance(each, WritePartitionStatus)}
    assert PartitionState.LEADERLESS not in states


@pytest.mark.parametrize(("lost_by", "moves"), [(0, 0), (1, 1)])
def test_lost_node_of_a_silent_pod_is_a_witness_like_another_pod(model: Model, lost_by: int, moves: int) -> None:
    others = {f"c_{number}": {"lost_peers": frozenset({"c-0"})} for number in (1, 2)[:lost_by]}
    actions = plan(seen(model, c_0={**SILENT, "node_lost": True}, **others), 1.0)
    assert len(elections(actions)) == moves


def test_replica_whose_pod_was_not_known_is_recorded_and_published_where_its_log_turns_up(model: Model) -> None:
    """As after a lost record was taken from the logs of the other pods: before anybody leads, or nobody reaches it."""
    observation = seen(model)
    lines = {
        index: line.replace("c-0/", "/").replace("leader=c-0 ", "") for index, line in record_of(observation).items()
    }
    topic = replace(observation.topics[0], status=replace(observation.topics[0].status, leaderships=lines))
    pods = tuple(
        with_fields(
            pod,
            replicas={
                index: replace(view, state=ShardState.INITIAL, role=ReplicaRole.NONE, leader_epoch=-1)
                for index, view in pod.replicas.items()
            },
        )
        for pod in observation.pods
    )
    actions = plan(with_fields(observation, pods=pods, topics=(topic,), image=None), 1.0)
    record = next(each for each in actions if isinstance(each, RecordLeadership))
    assert all("c-0/" in line and " /" not in line and "=/" not in line for line in record.leaderships.values())
    image = next(each.image for each in actions if isinstance(each, PublishMetadata))
    assert {place.pod for place in image.places} == {"c-0", "c-1", "c-2"}
    assert len(image.places) == 9


def test_only_replica_whose_pod_was_not_known_is_elected_where_its_log_turns_up() -> None:
    """As after a restored record was taken from the only log while its new pod was away (simulation, seed 2549)."""
    model = Model(partitions=1, replication_factor=1)
    Operator(model).settle()
    observation = seen(model)
    (holder,) = [pod for pod in observation.pods if pod.replicas]
    lines = {
        index: line.replace(f"{holder.name}/", "/").replace(f"leader={holder.name} ", "")
        for index, line in observation.topics[0].status.leaderships.items()
    }
    topic = replace(observation.topics[0], status=replace(observation.topics[0].status, leaderships=lines))
    away = {"state": ShardState.INITIAL, "role": ReplicaRole.NONE, "leader_epoch": -1}
    pods = tuple(
        with_fields(pod, replicas={index: replace(view, **away) for index, view in pod.replicas.items()})
        for pod in observation.pods
    )
    (election,) = elections(plan(with_fields(observation, pods=pods, topics=(topic,)), 1.0))
    assert election.pod == holder.name


@pytest.mark.parametrize("led", [True, False])
def test_logs_that_only_another_log_names_are_published_while_nobody_leads(model: Model, led: bool) -> None:
    """A record that was restored from before a change of the set does not know the new replicas."""
    observation = seen(model)
    old = observation.pods[1].replicas[0]
    new = replace(old, log_id="new", state=ShardState.INITIAL, role=ReplicaRole.NONE, leader_epoch=-1)
    naming = replace(new, log_id=old.log_id, replicas=("new", old.log_id), epoch=old.epoch + (not led))
    pods = (
        *(
            with_fields(pod, replicas={**pod.replicas, 0: naming if pod.name == "c-1" else pod.replicas[0]})
            for pod in observation.pods
        ),
        with_fields(observation.pods[2], name="c-3", node_id=3, replicas={0: new}),
    )
    if not led:
        away = {"state": ShardState.INITIAL, "role": ReplicaRole.NONE, "leader_epoch": -1}
        pods = tuple(
            with_fields(pod, replicas={index: replace(view, **away) for index, view in pod.replicas.items()})
            for pod in pods
        )
    actions = plan(with_fields(observation, pods=pods, image=None), 1.0)
    image = next(each.image for each in actions if isinstance(each, PublishMetadata))
    places = {(place.log_id, place.pod) for place in image.places if place.partition == 0}
    assert (("new", "c-3") in places) is not led


def record_of(observation: Observation) -> dict[str, str]:
    found = dict(observation.topics[0].status.leaderships)
    assert any("c-0/" in line for line in found.values())
    return found


def test_damage_on_a_follower_is_told_once_and_for_as_long_as_its_pod_shows_it(model: Model) -> None:
    observation = seen(model)

    def records(partition: OffsetsPartition, **changes: str) -> list[OffsetsPartitionStatus]:
        follower = next(pod for pod in observation.pods if pod.name != partition.status.leader)
        view = replace(follower.replicas[partition.spec.index], **changes)
        shown = with_fields(follower, replicas={**follower.replicas, partition.spec.index: view})
        pods = tuple(shown if pod is follower else pod for pod in observation.pods)
        others = (each for each in observation.partitions if each.metadata.name != partition.metadata.name)
        actions = plan(with_fields(observation, pods=pods, partitions=(partition, *others)), 1.0)
        return [each.status for each in actions if isinstance(each, WritePartitionStatus)]

    partition = observation.partitions[0]
    (damaged,) = records(partition, state=ShardState.FAILED, reason=FailureReason.LOG_DAMAGED, message="at byte 7")
    condition = find_condition(damaged.conditions, "Damaged")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "LogDamaged")
    assert condition.message.endswith(": at byte 7")
    assert damaged.state is PartitionState.LED
    told = replace(partition, status=damaged)
    assert records(told, reason=FailureReason.LOG_SET_ASIDE, message="at byte 7") == []
    (sound,) = records(told)
    assert sound == partition.status


def test_pod_that_answers_leads_on_whatever_is_said_of_its_node(model: Model) -> None:
    lost = {"lost_peers": frozenset({"c-0"})}
    assert elections(plan(seen(model, c_0={"node_lost": True}, c_1=lost, c_2=lost), 1.0)) == []


def test_pod_that_is_not_ready_leads_on(model: Model) -> None:
    assert elections(plan(seen(model, c_0={"ready": False}), 1.0)) == []


def test_pod_whose_stream_ended_a_moment_ago_leads_on(model: Model) -> None:
    assert elections(plan(seen(model, c_0={"connection": Connection.UNSURE}), 1.0)) == []


def test_preferred_leader_waits_until_its_pod_has_been_up_for_a_while(model: Model) -> None:
    model.stop("c-0")
    Operator(model, token=2).settle()
    model.restart("c-0")
    assert elections(plan(seen(model, c_0={"steady_s": 9.9}), 1.0)) == []
    (move,) = elections(plan(seen(model, c_0={"steady_s": 10.0}), 1.0))
    assert (move.pod, move.force, move.resign) == ("c-0", True, "c-1")


def moves_of_first(observation: Observation) -> list[str]:
    """Where the first partition, which "c-0" should lead, is moved to."""
    return [each.pod for each in elections(plan(observation, 1.0)) if each.partition == "t-0"]


@pytest.mark.parametrize(
    ("change", "moves"),
    [
        ({"steady_s": 9.9}, 0),
        ({"outdated": True}, 0),
        ({"draining": True}, 0),
        ({"connection": Connection.DOWN, "steady_s": 9.9}, 0),
        ({"connection": Connection.DOWN, "steady_s": 10.0}, 1),
    ],
)
def test_preferred_leader_waits_while_another_pod_comes_or_goes(
    model: Model, change: dict[str, Any], moves: int
) -> None:
    model.stop("c-0")
    Operator(model, token=2).settle()
    model.restart("c-0")
    assert len(moves_of_first(seen(model, c_2=change))) == moves


def test_preferred_leader_waits_while_another_pod_is_missing(model: Model) -> None:
    model.stop("c-0")
    Operator(model, token=2).settle()
    model.restart("c-0")
    there = seen(model)
    assert moves_of_first(with_fields(there, pods=there.pods[:2])) == []
    assert moves_of_first(there) == ["c-0"]


def test_pod_that_is_away_for_long_is_replaced_only_where_there_is_another_one() -> None:
    for pods, replaced in ((3, False), (4, True)):
        model = Model(pods=pods, partitions=1, replication_factor=3)
        Operator(model).settle()
        status = model.objects["t-0"].status
        away = next(replica.pod for replica in status.replicas if replica.pod != status.leader)
        model.stop(away)
        model.steady_s = 599.0
        Operator(model, token=2).settle()
        assert model.objects["t-0"].status.learners == ()
        model.steady_s = 601.0
        Operator(model, token=3).settle()
        pods_now = {replica.pod for replica in model.objects["t-0"].status.replicas}
        assert (away not in pods_now) is replaced


def test_copy_in_the_place_of_a_lost_replica_is_not_given_up_while_that_pod_is_away() -> None:
    """What it has lost is not seen then; a copy would be deleted, and begun again, each time that the pod goes."""
    model = Model(pods=3, partitions=1, replication_factor=3)
    Operator(model).settle()
    status = model.objects["t-0"].status
    away = next(replica.pod for replica in status.replicas if replica.pod != status.leader)
    model.lose_volume(away)
    operator = Operator(model, token=2)
    while not any(each.log_id for each in model.objects["t-0"].status.learners):
        assert operator.replan()
        while operator.todo:
            operator.act()
    learners = model.objects["t-0"].status.learners
    model.stop(away)
    operator.settle()
    assert model.objects["t-0"].status.learners == learners
    assert model.objects["t-0"].status.left == ()
    model.restart(away)
    operator.settle()
    status = model.objects["t-0"].status
    assert status.learners == ()
    assert {*learners} < {*status.replicas}


def test_loss_of_a_majority_for_good_stalls_and_names_the_way_out(model: Model) -> None:
    model.lose_volume("c-0")
    model.lose_volume("c-1")
    model.restart("c-2")
    Operator(model, token=2).settle()
    for each in model.objects.values():
        assert (each.status.state, each.status.reason) == (PartitionState.STALLED, Reason.NO_MAJORITY)
        command = f"""kubectl -n ns patch offsetspartition {each.metadata.name} --type merge -p '{{"spec":"""
        assert command + '{"allowDataLoss":0}}\'' in each.status.conditions[0].message


def test_persons_word_has_the_partition_led_from_what_is_left_and_is_spent_then(model: Model) -> None:
    model.lose_volume("c-0")
    model.lose_volume("c-1")
    each = model.objects["t-0"]
    model.objects["t-0"] = replace(each, spec=replace(each.spec, allow_data_loss=0))
    operator = Operator(model, token=2)
    (election,) = elections(operator.replan())
    assert (election.pod, election.allow_data_loss, election.force, len(election.replicas)) == ("c-2", True, True, 1)
    (shown,) = [e for e in operator.todo if isinstance(e, WritePartitionStatus) and e.seen.metadata.name == "t-0"]
    assert shown.status.reason == Reason.DATA_LOSS_ALLOWED
    operator.todo = [each for each in operator.todo if each is not election]  # the operator dies before the call
    while operator.todo:
        operator.act()
    again = Operator(model, token=3)
    (repeated,) = [each for each in elections(again.replan()) if each.partition == "t-0"]
    assert repeated == election
    again.settle(60)
    status = model.objects["t-0"].status
    assert (status.state, len(status.replicas), status.following) == (PartitionState.LED, 3, 3)
    assert model.objects["t-1"].status.state is PartitionState.STALLED
    model.lose_volume("c-2")
    model.lose_volume("c-1")
    Operator(model, token=3).settle()
    assert model.objects["t-0"].status.state is PartitionState.STALLED


def with_one_left(model: Model, allowed: int | None, **left: object) -> Observation:
    """Partition 0 after the volumes of two of its three pods were lost, by a record that says epoch 5 was led."""
    each = model.objects["t-0"]
    partition = replace(
        each,
        spec=replace(each.spec, allow_data_loss=allowed),
        status=replace(each.status, epoch=max(5, each.status.epoch), led_epoch=5),
    )
    model.lose_volume("c-0")
    model.lose_volume("c-1")
    return with_fields(views(model, **left), partitions=(partition,))


def shown_of(actions: tuple[Action, ...]) -> tuple[PartitionState, str]:
    (written,) = [each for each in actions if isinstance(each, WritePartitionStatus)]
    condition = find_condition(written.status.conditions, "Ready")
    assert condition is not None
    return written.status.state, condition.message


@pytest.mark.parametrize(
    ("allowed", "last_epoch", "counts", "asked"),
    [
        (5, 5, True, 5),
        (5, 4, True, 5),  # what epoch 5 had is among what is lost
        (4, 5, False, 5),
        (6, 5, False, 5),
        (1_000_000, 5, False, 5),
        (None, 5, False, 5),
        (5, 7, False, 7),  # the record is of before: etcd was restored
        (7, 7, True, 7),
        (8, 7, False, 7),
    ],
)
def test_persons_word_is_about_one_history_and_counts_for_none_before_or_after_it(
    model: Model, allowed: int | None, last_epoch: int, counts: bool, asked: int
) -> None:
    observation = with_one_left(model, allowed, last_epoch=last_epoch, epoch=9)
    actions = plan(observation, 1.0)
    assert [each.allow_data_loss for each in elections(actions)] == [True] * counts
    if not counts:
        state, message = shown_of(actions)
        assert state is PartitionState.STALLED
        assert f'"allowDataLoss":{asked}}}' in message


def test_replica_that_was_stopped_for_people_is_not_elected_and_its_log_is_kept(model: Model) -> None:
    observation = views(model)
    stopped = {"state": ShardState.FAILED, "reason": FailureReason.PROTOCOL_VIOLATION, "message": "cut at 4"}
    pods = tuple(
        with_fields(pod, replicas={0: replace(pod.replicas[0], **stopped)}) if pod.name == "c-0" else pod
        for pod in observation.pods
    )
    actions = plan(with_fields(observation, pods=pods, partitions=(model.objects["t-0"],)), 1.0)
    (election,) = elections(actions)
    assert election.pod != "c-0"
    (written,) = [each for each in actions if isinstance(each, WritePartitionStatus)]
    damaged = find_condition(written.status.conditions, "Damaged")
    assert damaged is not None
    assert damaged.message == "pod c-0: cut at 4"
    status = model.objects["t-0"].status
    view = pods[0].replicas[0]
    left = replace(status, left=(Replica("c-0", view.log_id),), led_epoch=view.epoch)
    assert not removable(left, "c-0", view)
    proven = replace(view, replicas=("another",), sets_committed=True)
    assert not removable(left, "c-0", replace(proven, **stopped))
    assert removable(left, "c-0", replace(proven, state=ShardState.INITIAL, reason=""))


@pytest.mark.parametrize(
    "unproven",
    [
        {"sets_committed": False},
        {"previous_replicas": ("another",)},
        {"replicas": ()},
        {"last_epoch": -1},
    ],
    ids=str,
)
def test_log_that_left_is_fed_until_it_proves_that_it_does_not_count_and_deleted_then(
    model: Model, unproven: dict[str, Any]
) -> None:
    """A pod refuses to delete a log without that proof."""
    index, partition = 0, model.objects["t-0"]
    observation = seen(model)
    gone = next(each for each in partition.status.replicas if each.pod != partition.status.leader)
    staying = tuple(each for each in partition.status.replicas if each != gone)
    record = replace(partition.status, replicas=staying, left=(gone,))
    model.put("t-0", record)
    names = tuple(each.log_id for each in staying)

    def actions(**changes: Any) -> tuple[Action, ...]:
        found = {"replicas": names, "previous_replicas": (), "sets_committed": True, **changes}
        pods = tuple(
            with_fields(pod, replicas={**pod.replicas, index: replace(pod.replicas[index], **found)})
            if pod.name == gone.pod
            else with_fields(
                pod,
                replicas={**pod.replicas, index: replace(pod.replicas[index], replicas=names, previous_replicas=())},
            )
            for pod in observation.pods
        )
        return plan(with_fields(Operator(model, token=2).observe(), pods=pods), 1.0)

    def places(done: tuple[Action, ...]) -> set[str]:
        (published,) = [each for each in done if isinstance(each, PublishMetadata)]
        return {each.log_id for each in published.image.places if each.partition == index}

    waiting = actions(**unproven)
    assert not any(isinstance(each, RemoveReplicas) for each in waiting)
    assert gone.log_id in places(waiting)
    proven = actions()
    (removal,) = [each for each in proven if isinstance(each, RemoveReplicas)]
    assert (removal.pod, removal.removals[0][1]) == (gone.pod, gone.log_id)
    assert gone.log_id not in places(proven)


def test_persons_word_waits_for_logs_that_are_not_open_yet(model: Model) -> None:
    """After a restart of all pods, and a restore of etcd, nobody knows yet how late the history of that log is."""
    observation = with_one_left(model, 5, log_end_offset=-1, last_epoch=-1)
    actions = plan(observation, 1.0)
    assert elections(actions) == []
    state, message = shown_of(actions)
    assert state is PartitionState.LEADERLESS
    assert "not all of the other logs are open yet" in message
    assert "allowDataLoss" not in message


def test_loss_that_was_allowed_goes_on_after_its_first_record_without_another_word(model: Model) -> None:
    """The elected pod died after it wrote epoch 6 and the smaller set to its log, and before that was committed."""
    (left,) = [each for each in model.objects["t-0"].status.replicas if each.pod == "c-2"]
    observation = with_one_left(model, 5, last_epoch=6, epoch=6, replicas=(left.log_id,))
    (recorded,) = [each for each in plan(observation, 1.0) if isinstance(each, RecordLeadership)]
    line = recorded.leaderships["0"]
    topic = replace(recorded.seen, status=replace(recorded.seen.status, leaderships={"0": line}))
    (election,) = elections(plan(with_fields(observation, topics=(topic,)), 1.0))
    assert (election.pod, election.epoch, election.replicas) == ("c-2", 7, (left.log_id,))
    assert not election.allow_data_loss, "its log names the set, of which it is a majority"


def test_set_of_the_latest_log_is_taken_over_where_a_restored_record_names_lost_replicas() -> None:
    model = Model(pods=5, partitions=1, replication_factor=3)
    Operator(model).settle()
    each = model.objects["t-0"]
    kept, *lost = each.status.replicas
    others = [name for name in model.running if name not in {replica.pod for replica in each.status.replicas}]
    observation = views(model)
    known = next(pod.replicas[0] for pod in observation.pods if pod.name == kept.pod)
    today = (known.log_id, "new-1", "new-2")
    holders = dict(zip((kept.pod, *others), today, strict=True))
    pods = tuple(
        with_fields(
            pod,
            replicas={0: replace(known, log_id=holders[pod.name], replicas=today, last_epoch=9, epoch=9)}
            if pod.name in holders
            else {},
        )
        for pod in observation.pods
    )
    allowed = replace(each, spec=replace(each.spec, allow_data_loss=9))
    restored = with_fields(observation, pods=pods, partitions=(allowed,))
    actions = plan(restored, 1.0)
    assert elections(actions) == [], "nothing has to be given up"
    (recorded,) = [each for each in actions if isinstance(each, RecordLeadership)]
    assert all(f"{pod}/{log_id}" in recorded.leaderships["0"] for pod, log_id in holders.items())
    assert not any(replica.log_id in recorded.leaderships["0"].split("left=")[0] for replica in lost)


@pytest.mark.parametrize("damaged", [False, True])
def test_partition_of_which_no_record_is_left_says_what_helps_instead_of_a_persons_word(
    model: Model, damaged: bool
) -> None:
    failed = {"state": ShardState.FAILED, "reason": FailureReason.LOG_DAMAGED, "message": "at byte 7"}
    left = failed if damaged else {"used": False, "log_end_offset": 0, "last_epoch": -1}
    observation = with_one_left(model, 5, **left)
    actions = plan(observation, 1.0)
    assert elections(actions) == []
    state, message = shown_of(actions)
    assert state is PartitionState.STALLED
    assert "allowDataLoss" not in message
    assert "bring back a volume or repair a damaged log, or delete the OffsetsPartition to begin empty" in message


def test_persons_word_begins_empty_where_a_power_loss_emptied_all_logs() -> None:
    """Under `muster.flush.os`, before anything was written back. The number stays the one of the last leader."""
    model = Model(partitions=1, replication_factor=3)
    Operator(model).settle()
    led = model.objects["t-0"]
    emptied = views(model, rebuilding=True, log_end_offset=0, last_epoch=-1, used=True)
    actions = plan(emptied, 1.0)
    assert elections(actions) == []
    state, message = shown_of(actions)
    assert state is PartitionState.STALLED
    number = led.status.led_epoch
    assert "; or to begin empty: kubectl " in message
    assert f'"allowDataLoss":{number}}}' in message
    allowed = replace(led, spec=replace(led.spec, allow_data_loss=number))
    (election,) = elections(plan(with_fields(emptied, partitions=(allowed,)), 1.0))
    assert (election.allow_data_loss, election.bootstrap, len(election.replicas)) == (True, False, 3)
    never_led = replace(led, status=replace(led.status, led_epoch=-1, high_watermark=None))
    _, message = shown_of(plan(with_fields(emptied, partitions=(never_led,)), 1.0))
    assert '"allowDataLoss":0}' in message


def test_majority_that_rebuilds_its_logs_asks_for_a_persons_word() -> None:
    """Power was lost under `muster.flush.os`: nothing comes back by itself."""
    model = Model(partitions=1, replication_factor=3)
    Operator(model).settle()
    state, message = shown_of(plan(with_fields(views(model, rebuilding=True)), 1.0))
    assert state is PartitionState.STALLED
    assert f'"allowDataLoss":{model.objects["t-0"].status.led_epoch}}}' in message


@pytest.mark.parametrize(
    ("own", "seen_by_pods", "token"), [(3, (), 3), (3, (-1, 2), 3), (3, (3, -1), 3), (3, (2, 8), 9), (0, (0,), 0)]
)
def test_fencing_token_goes_above_those_that_pods_have_seen_from_others(
    own: int, seen_by_pods: tuple[int, ...], token: int
) -> None:
    pods = [PodView(f"c-{number}", number, Connection.UP, fencing_token=t) for number, t in enumerate(seen_by_pods)]
    assert token_above(own, pods) == token


def test_same_image_gets_a_new_number_when_the_fencing_token_has_risen() -> None:
    model = Model()
    operator = Operator(model)
    operator.settle()
    assert number_of(operator.image)[0] == 1
    model.running["c-0"].tokens.note(6)
    operator.settle()
    assert number_of(operator.image) == (7, 1)
    assert {pod.images[-1].token for pod in model.running.values()} == {7}


@pytest.mark.parametrize(("away_s", "named"), [(0.0, [0, 1, 2]), (9.9, [0, 1, 2]), (10.0, [1, 2])])
def test_clients_are_told_of_a_pod_that_is_down_for_rebalance_after(
    model: Model, away_s: float, named: list[int]
) -> None:
    """librdkafka: a producer waits for good for a group's coordinator that Metadata does not name any more."""
    down = {"connection": Connection.DOWN, "steady_s": away_s}
    (published,) = [each for each in plan(seen(model, c_0=down), 1.0) if isinstance(each, PublishMetadata)]
    assert [each.node_id for each in published.image.brokers] == named
    assert 0 not in {each.node_id for each in published.image.leaders}


def test_pod_that_only_the_operator_does_not_reach_stays_named_however_long_and_leads(model: Model) -> None:
    silent = {**SILENT, "steady_s": 3600.0}
    (published,) = [each for each in plan(seen(model, c_0=silent), 1.0) if isinstance(each, PublishMetadata)]
    assert [each.node_id for each in published.image.brokers] == [0, 1, 2]
    assert 0 in {each.node_id for each in published.image.leaders}


def test_clients_are_told_of_a_pod_whose_object_is_away_where_it_was(model: Model) -> None:
    observation = Operator(model, token=2).observe()
    (before,) = [each for each in plan(observation, 1.0) if isinstance(each, PublishMetadata)]
    fewer = with_fields(observation, pods=observation.pods[1:], image=before.image)
    (published,) = [each for each in plan(fewer, 1.0) if isinstance(each, PublishMetadata)]
    assert published.image.brokers == before.image.brokers


def views(model: Model, **changes: object) -> Observation:
    """What an operator sees when no pod leads partition 0, and its replicas are so; the statuses are the record."""
    observation = Operator(model, token=2).observe()
    topic = replace(model.topic, status=replace(model.topic.status, leaderships={}))
    pods = []
    for pod in observation.pods:
        view = pod.replicas.get(0)
        fields: dict[str, Any] = {"state": ShardState.INITIAL, "leader_epoch": -1, **changes}
        left = {} if view is None else {0: replace(view, **fields)}
        pods.append(with_fields(pod, replicas=left))
    return with_fields(observation, pods=tuple(pods), topics=(topic,))


def test_change_that_is_only_recorded_is_begun_by_a_replica_of_the_set_before() -> None:
    """Found by simulation: a new replica, whose log does not name it, was elected and refused for ever."""
    model = Model(pods=4, partitions=1, replication_factor=3)
    Operator(model).settle()
    each = model.objects["t-0"]
    before = each.status.replicas
    (spare,) = model.running.keys() - {replica.pod for replica in before}
    observation = views(model)
    known = next(pod.replicas[0] for pod in observation.pods if pod.name == before[0].pod)
    assert known.replicas == tuple(replica.log_id for replica in before)
    learner = replace(known, log_id="new")
    pods = tuple(with_fields(pod, replicas={0: learner}) if pod.name == spare else pod for pod in observation.pods)
    changing = replace(each.status, replicas=(Replica(spare, "new"), *before[1:]), previous_replicas=before)
    partition = replace(each, status=replace(changing, state=PartitionState.LEADERLESS, leader=None))
    (election,) = elections(plan(with_fields(observation, pods=pods, partitions=(partition,)), 1.0))
    assert election.pod in {replica.pod for replica in before}
    assert election.replicas[0] == "new"


def test_persons_word_has_the_partition_led_from_logs_that_are_being_rebuilt_if_there_are_no_others() -> None:
    """Found by simulation: with no whole log left the partition stayed without a leader whatever was allowed."""
    model = Model(partitions=1, replication_factor=3)
    Operator(model).settle()
    each = model.objects["t-0"]
    observation = views(model, rebuilding=True)
    allowed = replace(each, spec=replace(each.spec, allow_data_loss=each.status.led_epoch))
    assert elections(plan(observation, 1.0)) == []
    (election,) = elections(plan(with_fields(observation, partitions=(allowed,)), 1.0))
    assert election.allow_data_loss
    assert len(election.replicas) == 3


def test_persons_word_is_asked_for_where_all_whole_logs_are_empty_and_others_rebuild() -> None:
    """Found by simulation: the first leader died before a majority had its record, and two pods lost data then."""
    model = Model(partitions=1, replication_factor=3)
    Operator(model).settle()
    each = model.objects["t-0"]
    observation = views(model)
    rebuilds = model.objects["t-0"].status.replicas[0].pod
    pods = tuple(
        with_fields(pod, replicas={0: replace(pod.replicas[0], **changes)})
        for pod in observation.pods
        for changes in (
            [{"rebuilding": True, "last_epoch": 0}]
            if pod.name == rebuilds
            else [{"used": False, "log_end_offset": 0, "last_epoch": -1}]
        )
    )
    never_led = replace(each, status=replace(each.status, led_epoch=-1))
    seen = with_fields(observation, pods=pods, partitions=(never_led,))
    actions = plan(seen, 1.0)
    assert elections(actions) == []
    state, message = shown_of(actions)
    assert state is PartitionState.STALLED
    assert '"allowDataLoss":0}' in message
    allowed = replace(never_led, spec=replace(each.spec, allow_data_loss=0))
    (election,) = elections(plan(with_fields(seen, partitions=(allowed,)), 1.0))
    assert (election.pod, election.allow_data_loss) == (rebuilds, True)


def test_persons_word_holds_until_the_log_says_what_is_left() -> None:
    """Found by simulation: an operator died between the record of the smaller set and its election."""
    model = Model(partitions=1, replication_factor=3)
    Operator(model).settle()
    each = model.objects["t-0"]
    left = each.status.replicas[:1]
    begun = replace(
        each,
        spec=replace(each.spec, allow_data_loss=each.status.led_epoch),
        status=replace(each.status, replicas=left, state=PartitionState.LEADERLESS, leader=None),
    )
    (election,) = elections(plan(with_fields(views(model), partitions=(begun,)), 1.0))
    assert election.allow_data_loss
    assert election.replicas == (left[0].log_id,)


@pytest.mark.parametrize("factor", [1, 3])
def test_copied_volume_is_not_elected_from(factor: Literal[1, 3]) -> None:
    model = Model(pods=factor + 1, partitions=1, replication_factor=factor)
    Operator(model).settle()
    holders = [name for name, pod in model.running.items() if pod.volume.replicas]
    (spare,) = model.running.keys() - set(holders)
    model.running[spare].volume.replicas[0] = model.running[holders[0]].volume.replicas[0]
    (shown,) = [each for each in plan(seen(model), 1.0) if isinstance(each, WritePartitionStatus)]
    assert shown.status.reason == Reason.DUPLICATE_LOG


def test_first_set_never_names_a_log_of_a_copied_volume_twice() -> None:
    """The pods were chosen and have made their logs, and a volume is copied before the record names the logs."""
    model = Model(pods=3, partitions=1, replication_factor=3)
    operator = Operator(model)
    while sum(0 in pod.volume.replicas for pod in model.running.values()) < 3:
        if not operator.todo:
            operator.replan()
        operator.act()
    one, other, _ = model.running.values()
    other.volume.replicas[0] = one.volume.replicas[0]
    planned = plan(seen(model), 1.0)
    assert not elections(planned)
    (shown,) = [each for each in planned if isinstance(each, WritePartitionStatus)]
    assert shown.status.reason == Reason.DUPLICATE_LOG
    assert not any(each.log_id for each in shown.status.replicas)


def test_rollout_moves_leaders_first_and_restarts_one_pod_at_a_time(model: Model) -> None:
    outdated = {"outdated": True}
    first = plan(seen(model, c_0=outdated, c_2=outdated), 1.0)
    assert [(each.resign, each.force) for each in elections(first)] == [("c-2", True)]
    assert not any(isinstance(each, RestartPod) for each in first)
    operator = Operator(model, token=2)
    operator.todo = [*first]
    while operator.todo:
        operator.act()
    second = plan(seen(model, c_0=outdated, c_2=outdated), 1.0)
    assert [each.pod for each in second if isinstance(each, RestartPod)] == ["c-2"]
    young = {"outdated": False, "steady_s": 9.0}
    assert not elections(plan(seen(model, c_0=outdated, c_1=outdated, c_2=young), 1.0))
    down = {"outdated": False, "connection": Connection.DOWN}
    third = plan(seen(model, c_0=outdated, c_2=down), 1.0)
    assert not any(isinstance(each, RestartPod) for each in third)


@pytest.mark.parametrize(
    ("newer", "reason", "restarted"),
    [
        ((), Reason.LOAD_FAILED, ["c-2"]),
        (("c_1",), Reason.LOAD_FAILED, []),  # the declared template is on one of its pods, and did not help
        ((), Reason.NO_MAJORITY, []),
        ((), Reason.CANNOT_WRITE, []),
    ],
)
def test_rollout_brings_the_image_that_can_load_what_the_one_before_cannot(
    newer: tuple[str, ...], reason: Reason, restarted: list[str]
) -> None:
    model = Model(partitions=1, replication_factor=3)
    Operator(model).settle()
    led = model.objects["t-0"].status
    failed = replace(led, state=PartitionState.LEADERLESS, reason=reason, following=0, leader="c-2")
    model.put("t-0", failed)
    pods = {name: {"outdated": name not in newer} for name in ("c_0", "c_1", "c_2")}
    observed = seen(model, **pods)
    cannot = {"state": ShardState.FAILED, "reason": str(reason), "leader_epoch": -1, "message": "at offset 7"}
    views = tuple(with_fields(pod, replicas={0: replace(pod.replicas[0], **cannot)}) for pod in observed.pods)
    attempt = Attempt(in_flight=False, held_back=True, pod="c-2", reason=reason, refused=frozenset({"c-0", "c-1"}))
    actions = plan(with_fields(observed, pods=views, attempts={"t-0": attempt}), 1.0)
    assert [each.pod for each in actions if isinstance(each, RestartPod)] == restarted


@pytest.mark.parametrize(
    ("reason", "fenced", "shown", "restarted"),
    [
        (Reason.LOAD_FAILED, False, Reason.LOAD_FAILED, ["c-2"]),
        (Reason.LOAD_FAILED, True, Reason.POD_DOWN, []),
        (Reason.CANNOT_WRITE, False, Reason.CANNOT_WRITE, []),
    ],
)
def test_rollout_restarts_the_pod_with_the_only_log_that_it_could_not_load(
    reason: Reason, fenced: bool, shown: Reason, restarted: list[str]
) -> None:
    """The pod is emptied, so nothing may be elected on it any more: that must not become the reason, or the rollout
    would wait for a leader again, and the election that it then gets would fail like the last one.
    """
    model = Model(partitions=3, replication_factor=1)
    Operator(model).settle()
    (name,) = (name for name, each in model.objects.items() if each.status.leader == "c-2")
    index = model.objects[name].spec.index
    model.put(name, replace(model.objects[name].status, state=PartitionState.LEADERLESS, reason=reason, following=0))
    cannot = {"state": ShardState.FAILED, "reason": str(reason), "leader_epoch": -1, "message": "at offset 7"}
    attempt = Attempt(in_flight=False, held_back=True, pod="c-2", reason=reason, refused=frozenset())
    for _ in range(3):
        observed = seen(model, c_2={"outdated": True, "fenced": fenced})
        *others, pod = observed.pods
        pod = with_fields(pod, replicas={index: replace(pod.replicas[index], **cannot)})
        actions = plan(with_fields(observed, pods=(*others, pod), attempts={name: attempt}), 1.0)
        assert [each.pod for each in actions if isinstance(each, RestartPod)] == restarted
        for each in actions:
            if isinstance(each, WritePartitionStatus):
                model.put(each.seen.metadata.name, each.status)
        assert model.objects[name].status.reason == shown


def test_outdated_pod_that_is_down_is_restarted_at_once(model: Model) -> None:
    actions = plan(seen(model, c_1={"outdated": True, "connection": Connection.DOWN}), 1.0)
    assert [each.pod for each in actions if isinstance(each, RestartPod)] == ["c-1"]


def test_more_replicas_than_pods_stall_with_the_numbers() -> None:
    model = Model(pods=2, replication_factor=3)
    Operator(model).settle()
    conditions = {each.type: each for each in model.topic.status.conditions}
    assert conditions["Stalled"].reason == Reason.TOO_FEW_PODS
    assert "needs 3 pods" in conditions["Ready"].message


def test_leaders_of_a_pod_that_ends_go_to_a_cordoned_node_when_there_is_no_other(model: Model) -> None:
    cordoned, ends = {"cordoned": True}, {"cordoned": True, "draining": True}
    (move,) = elections(plan(seen(model, c_0=ends, c_1=cordoned, c_2=cordoned), 1.0))
    assert (move.partition, move.resign) == ("t-0", "c-0")
    (move,) = elections(plan(seen(model, c_0=ends, c_1=cordoned), 1.0))[:1]
    assert move.pod == "c-2"


def test_leaders_leave_a_cordoned_node_but_not_when_all_are(model: Model) -> None:
    cordoned = {"cordoned": True}
    (move,) = elections(plan(seen(model, c_0=cordoned), 1.0))
    assert (move.resign, move.force) == ("c-0", True)
    assert elections(plan(seen(model, c_0=cordoned, c_1=cordoned, c_2=cordoned), 1.0)) == []
    model.stop("c-2")
    lost = elections(plan(seen(model, c_0=cordoned, c_1=cordoned), 1.0))
    assert [each.resign for each in lost] == [""]


# Moves of leaders that live


def test_leaders_of_a_pod_that_was_deleted_by_force_move_all_at_once() -> None:
    model = Model(partitions=9, replication_factor=3)
    Operator(model).settle()
    model.running["c-0"].drained = True
    assert len(elections(plan(seen(model), 1.0))) == MOVES_AT_ONCE
    moves = elections(plan(seen(model, c_0={"draining": True, "gone": True}), 1.0))
    assert [each.resign for each in moves] == ["c-0"] * 3


def draining(moved: int) -> tuple[Model, Observation, list[Elect]]:
    """Each of three pods leads two times as many partitions as move at once; c-0 drains, and the elections of the first
    plan are recorded and called, of which `moved` have made a leader; no call is answered."""
    model = Model(partitions=6 * MOVES_AT_ONCE, replication_factor=3)
    Operator(model).settle()
    model.running["c-0"].drained = True
    operator = Operator(model, token=2)
    operator.replan()
    begun = elections(tuple(operator.todo))
    for action in [each for each in operator.todo if isinstance(each, RecordLeadership)]:
        assert model.record(action)
    for election in begun[:moved]:
        operator._carry_out(election)
    operator.attempts = {each.partition: Attempt(True, False, each.reason, pod=each.pod) for each in begun}
    return model, operator.observe(), begun


@pytest.mark.parametrize("moved", sorted({0, 1, MOVES_AT_ONCE}))
def test_next_moves_begin_when_leaders_are_there_however_late_the_calls_are_answered(moved: int) -> None:
    _, observation, begun = draining(moved)
    assert len(begun) == MOVES_AT_ONCE
    assert {each.resign for each in begun} == {"c-0"}
    following = elections(plan(observation, 1.0))
    assert len(following) == moved
    assert not {each.partition for each in following} & {each.partition for each in begun}


def test_large_cluster_moves_one_leader_in_a_hundred_partitions_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "PARTITIONS_PER_MOVE", 4)
    model = Model(partitions=24, replication_factor=3)
    Operator(model).settle()
    model.running["c-0"].drained = True
    assert len(elections(plan(seen(model), 1.0))) == 6


def test_call_that_ended_without_a_leader_takes_no_place_from_the_other_moves() -> None:
    _, observation, begun = draining(0)
    hung, *others = begun
    attempts = {each.partition: observation.attempts[each.partition] for each in others}
    attempts[hung.partition] = Attempt(in_flight=False, held_back=True, pod=hung.pod)
    following = elections(plan(with_fields(observation, attempts=attempts), 1.0))
    assert len(following) == 1
    assert following[0].partition not in {each.partition for each in begun}


def test_moves_that_are_under_way_hold_up_no_failover() -> None:
    model, _, begun = draining(0)
    model.stop("c-1")
    operator = Operator(model, token=2)
    operator.attempts = {each.partition: Attempt(True, False, each.reason, pod=each.pod) for each in begun}
    lost = {name for name, each in model.objects.items() if each.status.leader == "c-1"}
    assert lost <= {each.partition for each in elections(plan(operator.observe(), 1.0))}
