"""A cluster with a topic of groups and one of transactions: one plan for each topic, one image for both (ADR 28)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.operator.fakes import cluster, topic

from muster_coordinator.partition_numbers import TRANSACTIONS
from muster_operator.api.conditions import Reason, find_condition
from muster_operator.api.models import (
    Layout,
    ObjectMeta,
    OffsetsPartition,
    OffsetsPartitionSpec,
    OffsetsTopic,
    Reshard,
    ReshardPhase,
    ReshardStatus,
    TopicRef,
)
from muster_operator.plan.actions import (
    CreatePartitions,
    PublishMetadata,
    RecordLeadership,
    RecordReshard,
    WriteTopicStatus,
)
from muster_operator.plan.observation import Connection, Observation, PodView
from muster_operator.plan.planner import plan

FIRST = TRANSACTIONS.first


def other(name: str = "x", partitions: int = 2) -> OffsetsTopic:
    groups = topic(partitions, replication_factor=1)
    spec = replace(groups.spec, topic="__transaction_state")
    return replace(groups, spec=spec, metadata=replace(groups.metadata, name=name))


def seen(*topics: OffsetsTopic, partitions: tuple[OffsetsPartition, ...] = ()) -> Observation:
    pods = tuple(PodView(f"c-{n}", n, Connection.UP, f"h:{9092 + n}", ready=True, steady_s=99.0) for n in range(3))
    return Observation("ns", "c", cluster(3), topics, partitions, pods, fencing_token=1)


def of_kind(actions: tuple[Any, ...], kind: type) -> list[Any]:
    return [each for each in actions if isinstance(each, kind)]


def placed(name: str, indexes: range) -> list[OffsetsPartition]:
    return [
        OffsetsPartition(ObjectMeta(f"{name}-{n}", "ns", f"u{n}"), OffsetsPartitionSpec(TopicRef(name), n))
        for n in indexes
    ]


def test_each_topic_gets_partitions_with_numbers_of_its_own() -> None:
    actions = plan(seen(topic(2, replication_factor=1), other()), 0)
    created = {each.topic.metadata.name: each.indexes for each in of_kind(actions, CreatePartitions)}
    assert created == {"t": (0, 1), "x": (FIRST, FIRST + 1)}


def test_each_topic_has_a_record_of_its_own_with_nothing_of_the_other() -> None:
    partitions = (*placed("t", range(2)), *placed("x", range(FIRST, FIRST + 2)))
    actions = plan(seen(topic(2, replication_factor=1), other(), partitions=partitions), 0)
    records = {each.seen.metadata.name: set(each.leaderships) for each in of_kind(actions, RecordLeadership)}
    assert records == {"t": {"0", "1"}, "x": {str(FIRST), str(FIRST + 1)}}


def test_image_tells_clients_of_both_topics() -> None:
    (published,) = of_kind(plan(seen(topic(2, replication_factor=1), other(partitions=3)), 0), PublishMetadata)
    image = published.image
    assert (image.offsets_base, image.offsets_partitions) == (0, 2)
    assert (image.transaction_base, image.transaction_partitions) == (FIRST, 3)
    assert [each.partition for each in image.leaders] == [0, 1, FIRST, FIRST + 1, FIRST + 2]


def test_image_of_a_cluster_without_the_second_topic_has_no_transactions() -> None:
    (published,) = of_kind(plan(seen(topic(2, replication_factor=1)), 0), PublishMetadata)
    assert published.image.transaction_partitions == 0


def test_second_resource_of_the_same_topic_is_refused() -> None:
    actions = plan(seen(topic(2, replication_factor=1), other("x"), other("y")), 0)
    told = {each.seen.metadata.name: each.status for each in of_kind(actions, WriteTopicStatus)}
    ready = find_condition(told["y"].conditions, "Ready")
    assert ready is not None
    assert ready.reason == Reason.DUPLICATE_TOPIC
    assert "older OffsetsTopic x" in ready.message


def test_topic_of_transactions_alone_is_not_used_and_says_so() -> None:
    actions = plan(seen(other("x")), 0)
    assert not of_kind(actions, CreatePartitions)
    (told,) = of_kind(actions, WriteTopicStatus)
    ready = find_condition(told.status.conditions, "Ready")
    assert ready is not None
    assert ready.reason == Reason.NO_TOPIC


def test_transaction_topic_is_resharded_beside_the_groups() -> None:
    wanted = other()
    wanted = replace(wanted, spec=replace(wanted.spec, reshard=Reshard(4)))
    (begun,) = of_kind(plan(seen(topic(2, replication_factor=1), wanted), 0), RecordReshard)
    assert begun.seen is wanted
    assert begun.status.reshard is not None
    assert (begun.status.reshard.base, begun.status.reshard.partitions) == (FIRST + 2, 4)


def test_transaction_topic_waits_until_the_groups_are_resharded() -> None:
    used = replace(other().status, leaderships={str(FIRST): "epoch=1 led=1 uid=u0"})
    wanted = replace(other(), status=used, spec=replace(other().spec, reshard=Reshard(4)))
    actions = plan(seen(resharded(ReshardPhase.COPYING), wanted), 0)
    assert all(each.seen is not wanted for each in of_kind(actions, RecordReshard))
    told = {each.seen.metadata.name: each.status for each in of_kind(actions, WriteTopicStatus)}
    ready = find_condition(told["x"].conditions, "Ready")
    assert ready is not None
    assert "waits until __consumer_offsets is re-sharded" in ready.message


def resharded(phase: ReshardPhase) -> OffsetsTopic:
    groups = topic(2, replication_factor=1)
    status = ReshardStatus(phase, base=2, partitions=4, generation=1)
    return replace(
        groups,
        spec=replace(groups.spec, reshard=Reshard(4)),
        status=replace(groups.status, reshard=status),
    )


@pytest.mark.parametrize("phase", ReshardPhase)
def test_topic_that_comes_during_a_reshard_is_used_when_that_is_over(phase: ReshardPhase) -> None:
    actions = plan(seen(resharded(phase), other()), 0)
    created = {each.topic.metadata.name for each in of_kind(actions, CreatePartitions)}
    told = {each.seen.metadata.name: each.status for each in of_kind(actions, WriteTopicStatus)}
    ready = find_condition(told["x"].conditions, "Ready")
    assert ready is not None
    (published,) = of_kind(actions, PublishMetadata)
    is_over = phase in (ReshardPhase.DONE, ReshardPhase.ABORTED)
    assert ("x" in created) == is_over
    assert (published.image.transaction_partitions > 0) == is_over
    assert (ready.reason == Reason.WAITS_FOR_RESHARD) != is_over


def test_topic_that_was_used_before_a_reshard_stays() -> None:
    first = other()
    used = replace(first, status=replace(first.status, leaderships={str(FIRST): "epoch=1 led=1 uid=u0"}))
    (published,) = of_kind(plan(seen(resharded(ReshardPhase.COPYING), used), 0), PublishMetadata)
    assert published.image.transaction_partitions == 2


def test_lost_layout_is_found_per_topic() -> None:
    """The volumes remember a later layout of the groups, and the present one of the transactions."""
    before = seen(topic(2, replication_factor=1), other())
    layouts = (Layout(50, 3), Layout(FIRST, 2))
    pods = tuple(
        PodView(p.name, p.node_id, p.connection, p.kafka_address, ready=True, layouts=layouts) for p in before.pods
    )
    found = Observation("ns", "c", before.cluster, before.topics, (), pods, fencing_token=1)
    (recorded,) = of_kind(plan(found, 0), RecordReshard)
    assert (recorded.seen.metadata.name, recorded.status.layout) == ("t", Layout(50, 3))
