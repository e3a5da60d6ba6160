"""What is decided on: the record of the topic, and the partitions' statuses only where it says nothing newer."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace
from tests.unit.operator.fakes import topic
from tests.unit.operator.model import Model, Operator

from muster_operator.api.conditions import Reason
from muster_operator.api.meta import MAX_PARTITIONS
from muster_operator.api.models import (
    LeadershipRecord,
    ObjectMeta,
    OffsetsPartition,
    OffsetsPartitionSpec,
    OffsetsPartitionStatus,
    OffsetsTopic,
    OffsetsTopicStatus,
    PartitionState,
    Replica,
    TopicRef,
)
from muster_operator.plan.actions import Elect, RecordLeadership, WritePartitionStatus
from muster_operator.plan.record import as_recorded, leadership_of, next_record

REPLICAS = tuple(Replica(f"c-{pod}", f"log-{pod}") for pod in range(3))
STATUS = OffsetsPartitionStatus(
    leader="c-0", epoch=5, led_epoch=5, replicas=REPLICAS, state=PartitionState.LED, reason="Led", following=3
)
PARTITION = OffsetsPartition(ObjectMeta("t-0", "ns"), OffsetsPartitionSpec(TopicRef("t"), 0), STATUS)


def with_record(record: LeadershipRecord | None) -> OffsetsTopic:
    return replace(topic(1), status=OffsetsTopicStatus(leaderships={} if record is None else {"0": record.line}))


RECORDS = [
    LeadershipRecord(),
    LeadershipRecord("c-1", 6, 5, REPLICAS),
    LeadershipRecord(None, 0, -1, (Replica("c-0"), Replica("", "lost")), uid="11d4-9"),
    LeadershipRecord("c-1", 6, 5, REPLICAS[:2], REPLICAS[1:], REPLICAS[:1], REPLICAS[2:], "11d4-9"),
]


@pytest.mark.parametrize("record", RECORDS)
def test_line_of_a_record_is_parsed_to_the_same_record_and_taken_by_the_schema(record: LeadershipRecord) -> None:
    assert LeadershipRecord.parse(record.line) == record
    assert msgspec.convert({"leaderships": {"0": record.line}}, OffsetsTopicStatus).leaderships == {"0": record.line}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "epoch=6",
        "epoch=x led=5",
        "epoch=6 led=5 replicas=c-0",
        "epoch=6 led=5 leader=",
        "epoch=6 led=5 more=1",
        "epoch=6 led=5 ",
        "led=5 epoch=6",
    ],
)
def test_line_that_could_not_be_parsed_is_refused_by_the_schema(line: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"leaderships": {"0": line}}, OffsetsTopicStatus)


def test_leader_and_sets_are_those_of_the_record_and_the_rest_is_as_shown() -> None:
    record = LeadershipRecord("c-1", 6, 5, REPLICAS[:2], REPLICAS, (), REPLICAS[2:])
    told = as_recorded(with_record(record), PARTITION).status
    assert leadership_of(told, "") == record
    assert (told.state, told.following) == (PartitionState.ELECTING, 3)


def test_partition_that_shows_what_is_recorded_is_the_very_object() -> None:
    assert as_recorded(with_record(leadership_of(STATUS, "")), PARTITION) is PARTITION


def test_partition_of_another_topic_is_left_as_it_is() -> None:
    other = replace(PARTITION, spec=replace(PARTITION.spec, topic_ref=TopicRef("other")))
    assert as_recorded(with_record(LeadershipRecord("c-1", 6, 5, REPLICAS)), other) is other


@pytest.mark.parametrize("record", [None, LeadershipRecord("c-2", 4, 4, REPLICAS)])
def test_record_that_was_lost_or_restored_lowers_no_epoch(record: LeadershipRecord | None) -> None:
    assert as_recorded(with_record(record), PARTITION) is PARTITION


def test_partition_whose_place_is_recorded_and_not_shown_has_a_reason_to_show() -> None:
    """A plan that changes nothing, as while a pod is in doubt, shows it as it is."""
    placed = LeadershipRecord(replicas=tuple(replace(each, log_id="") for each in REPLICAS))
    status = as_recorded(with_record(placed), replace(PARTITION, status=OffsetsPartitionStatus())).status
    assert (status.state, status.reason) == (PartitionState.PENDING, Reason.PLACING)


def test_topic_created_again_has_the_leaderships_of_its_partitions_and_pods_recorded() -> None:
    model = Model(partitions=2, replication_factor=3)
    Operator(model).settle()
    statuses = {name: each.status for name, each in model.objects.items()}
    model.topic = replace(model.topic, status=OffsetsTopicStatus())
    operator = Operator(model, token=2)
    (record,) = [each for each in operator.replan() if isinstance(each, RecordLeadership)]
    told = {str(each.spec.index): (each.status, each.metadata.uid) for each in model.objects.values()}
    assert record.leaderships == {index: leadership_of(*each).line for index, each in told.items()}
    operator.settle()
    assert {name: each.status for name, each in model.objects.items()} == statuses


def test_partition_that_does_not_show_yet_what_is_recorded_is_led_on() -> None:
    model = Model(partitions=2, replication_factor=3)
    Operator(model).settle()
    led = model.objects["t-1"].status
    model.objects["t-1"] = replace(model.objects["t-1"], status=OffsetsPartitionStatus())
    Operator(model, token=2).settle()
    now = model.objects["t-1"].status
    assert leadership_of(now, "") == leadership_of(led, "")
    assert now.state is PartitionState.LED


def test_partition_object_that_was_deleted_begins_anew_only_without_any_log_and_its_epoch_goes_on() -> None:
    model = Model(partitions=2)
    Operator(model).settle()
    led = model.objects["t-1"].status
    del model.objects["t-1"]
    Operator(model, token=2).settle()
    assert model.objects["t-1"].status.replicas == led.replicas, "the log is there"
    model.lose_volume(led.replicas[0].pod)
    Operator(model, token=3).settle()
    assert model.objects["t-1"].status.reason == "LogLost"
    del model.objects["t-1"]
    Operator(model, token=4).settle()
    now = model.objects["t-1"].status
    assert (now.state, now.epoch) == (PartitionState.LED, led.epoch + 1)
    assert now.replicas[0].log_id != led.replicas[0].log_id


def test_older_object_that_a_cache_still_has_does_not_make_the_partition_begin_anew() -> None:
    record = LeadershipRecord("c-1", 5, 5, REPLICAS[:1], uid="newer")
    told = as_recorded(with_record(record), PARTITION)
    assert leadership_of(told.status, "newer") == record
    after = next_record({"0": record.line}, {0: PARTITION}, {0: told.status}, ())
    assert after == {"0": record.line}


def test_all_partitions_that_a_dead_pod_has_led_are_one_record_before_their_elections_and_are_shown_after() -> None:
    model = Model(partitions=9, replication_factor=3)
    Operator(model).settle()
    model.stop("c-0")
    operator = Operator(model, token=2)
    actions = operator.replan()
    assert [type(each) for each in actions[:4]] == [RecordLeadership, Elect, Elect, Elect]
    elected = {each.index: (each.pod, each.epoch) for each in actions if isinstance(each, Elect)}
    shown = {each.seen.spec.index: each.status for each in actions if isinstance(each, WritePartitionStatus)}
    assert {index: (shown[index].leader, shown[index].epoch) for index in elected} == elected


def test_operator_that_dies_between_record_and_election_has_the_same_pod_called_in_the_same_epoch() -> None:
    model = Model(partitions=3, replication_factor=3)
    Operator(model).settle()
    model.stop("c-0")
    first = Operator(model, token=2)
    called = [each for each in first.replan() if isinstance(each, Elect)]
    first.act()
    again = [each for each in Operator(model, token=3).replan() if isinstance(each, Elect)]
    assert [(each.partition, each.pod, each.epoch) for each in again] == [
        (each.partition, each.pod, each.epoch) for each in called
    ]


def test_retired_partitions_leave_the_record() -> None:
    model = Model(partitions=2)
    Operator(model).settle()
    model.ask(3)
    Operator(model, token=2).settle()
    assert {*model.topic.status.leaderships} == {"0", "1", "2", "3", "4"}
    model.ask(None)
    Operator(model, token=3).settle()
    assert {*model.topic.status.leaderships} == {"0", "1"}


def test_record_of_the_largest_topic_fits_into_one_object() -> None:
    """etcd takes 1.5 MB, of which the API server needs a part for the other fields."""
    replicas = tuple(Replica(f"{'c' * 52}-{pod}", "f" * 32) for pod in range(5))
    record = LeadershipRecord(replicas[0].pod, 999_999, 999_999, replicas, uid="f" * 36)
    leaderships = {str(index): record.line for index in range(MAX_PARTITIONS)}
    assert len(msgspec.json.encode(OffsetsTopicStatus(leaderships=leaderships))) < 600_000
