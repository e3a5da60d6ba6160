"""Who is named as leader: image, promise of the replica here, and pods that are not heard."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from muster_coordinator.listener.handlers.cluster import ClusterHandlers
from muster_coordinator.partition_numbers import OFFSETS
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.pod.status import held_by
from muster_coordinator.podapi.image import Broker, Endpoint, MetadataImage, PartitionLeader
from muster_coordinator.records.partitioner import partition_for
from muster_coordinator.requests import cluster as w

IMAGE = MetadataImage(
    token=3,
    version=8,
    cluster_id="c",
    brokers=tuple(Broker(n, f"host-{n}", 9092, f"pod-{n}") for n in range(3)),
    offsets_partitions=2,
    leaders=(PartitionLeader(0, 1, 5),),
)


class Knowledge:
    """In place of the replicas: one promise for every partition."""

    def __init__(self, promise: tuple[int, str] | None, *lost: str) -> None:
        self._promise = promise
        self._lost = lost

    def promised(self, partition: int) -> tuple[int, str] | None:
        return self._promise

    def is_lost(self, pod: str) -> bool:
        return pod in self._lost


@pytest.mark.parametrize(
    ("here", "promise", "lost", "leader"),
    [
        ("pod-0", None, (), "pod-1"),  # no replica here: what the image says
        ("pod-0", (5, "pod-1"), (), "pod-1"),
        ("pod-0", (4, "pod-2"), (), "pod-1"),  # the image is newer
        ("pod-0", (5, "pod-2"), (), "pod-1"),  # promised to one that never led
        ("pod-0", (5, "pod-2"), ("pod-1",), None),
        ("pod-0", (6, "pod-2"), (), "pod-2"),  # the promise is newer
        ("pod-0", (6, "pod-0"), (), "pod-0"),
        ("pod-0", (6, ""), (), "pod-1"),
        ("pod-0", (6, "no-broker"), (), None),
        ("pod-1", (6, "pod-2"), (), "pod-2"),  # this pod led until now
        ("pod-1", (5, "pod-2"), (), "pod-2"),  # it cannot lead after that
        ("pod-0", (5, "pod-0"), (), "pod-0"),  # it leads, or is being elected
        ("pod-1", (6, ""), (), None),
        ("pod-1", (5, ""), (), None),
        ("pod-1", (4, ""), (), "pod-1"),  # its election is on the way
        ("pod-0", (5, ""), ("pod-1",), None),
        ("pod-0", None, ("pod-1",), None),
        ("pod-0", None, ("pod-2",), "pod-1"),
    ],
)
def test_leader_is_that_of_the_newer_of_image_and_promise_unless_it_is_not_heard(
    here: str, promise: tuple[int, str] | None, lost: tuple[str, ...], leader: str | None
) -> None:
    view = ClusterView(here, Knowledge(promise, *lost))
    view.update(IMAGE)
    found = view.leader_of(0)
    assert (found.pod if found is not None else None) == leader


@pytest.mark.parametrize(("promise", "shown"), [(None, (1, 5)), ((6, "pod-2"), (2, 6)), ((6, "no-broker"), (-1, 6))])
def test_metadata_of_the_offsets_topic_shows_the_leader_that_find_coordinator_names(
    promise: tuple[int, str] | None, shown: tuple[int, int]
) -> None:
    view = ClusterView("pod-0", Knowledge(promise))
    view.update(msgspec.structs.replace(IMAGE, offsets_partitions=1))
    answers: list[w.MetadataResponse] = []
    exchange: Any = SimpleNamespace(version=9, answer=answers.append)
    ClusterHandlers(view).metadata(w.MetadataRequest((w.MetadataRequestTopic(OFFSETS.name, bytes(16)),)), exchange)
    (partition,) = answers[0].topics[0].partitions
    assert (partition.leader_id, partition.leader_epoch) == shown


def test_recalled_image_names_no_leader_and_any_other_image_replaces_it() -> None:
    view = ClusterView("pod-0", Knowledge((7, "pod-2")))
    view.recall(IMAGE)
    assert view.recalled
    found = view.leader_of(0)
    assert found is not None
    assert found.pod == "pod-2"
    knows_nothing = ClusterView("pod-0", Knowledge(None))
    knows_nothing.recall(IMAGE)
    assert knows_nothing.leader_of(0) is None
    assert view.update(msgspec.structs.replace(IMAGE, token=1, version=1))
    assert not view.recalled
    assert not view.update(msgspec.structs.replace(IMAGE, token=1, version=0))


def test_after_a_reshard_groups_hash_with_the_new_count_into_new_indexes_that_clients_do_not_see() -> None:
    view = ClusterView()
    view.update(IMAGE)
    before = {f"g-{n}": view.partition_of(f"g-{n}") for n in range(50)}
    leaders = (PartitionLeader(51, 2, 7), PartitionLeader(0, 1, 9))
    view.update(msgspec.structs.replace(IMAGE, version=9, offsets_base=50, offsets_partitions=3, leaders=leaders))
    after = {group: view.partition_of(group) for group in before}
    assert set(before.values()) == {0, 1}
    assert after == {group: 50 + partition_for(group, 3) for group in before}
    assert [view.has(OFFSETS.name, number) for number in (0, 2, 3, 50)] == [True, True, False, False]
    assert view.own_index(1) == 51
    answers: list[w.MetadataResponse] = []
    exchange: Any = SimpleNamespace(version=9, answer=answers.append)
    ClusterHandlers(view).metadata(w.MetadataRequest((w.MetadataRequestTopic(OFFSETS.name, bytes(16)),)), exchange)
    [topic] = answers[0].topics
    assert [(each.partition, each.leader_id) for each in topic.partitions] == [(0, -1), (1, 2), (2, -1)]


OUTSIDE = msgspec.structs.replace(
    IMAGE,
    brokers=(
        Broker(0, "host-0", 9092, "pod-0"),
        Broker(1, "host-1", 9092, "pod-1", (Endpoint("other", "o", 1), Endpoint("outside", "node-a", 30001))),
        Broker(2, "host-2", 9092, "pod-2", (Endpoint("outside", "node-b", 30002),)),
    ),
    leaders=(PartitionLeader(0, 1, 5), PartitionLeader(1, 0, 5)),
)
"""Clients from outside do not reach pod-0."""


def asked(listener: str, call: str, request: object) -> Any:
    view = ClusterView("pod-2")
    view.update(OUTSIDE)
    answers: list[Any] = []
    exchange: Any = SimpleNamespace(version=9, answer=answers.append)
    getattr(ClusterHandlers(view, listener), call)(request, exchange)
    return answers[0]


def groups_of(partition: int) -> str:
    return next(f"g-{n}" for n in range(50) if partition_for(f"g-{n}", 2) == partition)


@pytest.mark.parametrize(
    ("listener", "brokers", "controller"),
    [
        ("", [(0, "host-0", 9092), (1, "host-1", 9092), (2, "host-2", 9092)], 2),
        ("outside", [(1, "node-a", 30001), (2, "node-b", 30002)], 2),
        ("unknown", [], -1),
    ],
)
def test_clients_are_told_the_addresses_of_the_listener_that_they_came_in_by(
    listener: str, brokers: list[tuple[int, str, int]], controller: int
) -> None:
    for call, request in (
        ("metadata", w.MetadataRequest(None)),
        ("describe_cluster", w.DescribeClusterRequest(False)),
    ):
        answer = asked(listener, call, request)
        assert [(each.node_id, each.host, each.port) for each in answer.brokers] == brokers
        assert answer.controller_id == controller


@pytest.mark.parametrize(
    ("listener", "partition", "leader"),
    [
        ("", 0, (1, "host-1", 9092)),
        ("outside", 0, (1, "node-a", 30001)),
        ("", 1, (0, "host-0", 9092)),
        ("outside", 1, (-1, "", -1)),
    ],
)
def test_coordinator_of_a_group_is_where_the_client_reaches_it_or_not_available(
    listener: str, partition: int, leader: tuple[int, str, int]
) -> None:
    request = w.FindCoordinatorRequest(w.KEY_TYPE_GROUP, (groups_of(partition),))
    [found] = asked(listener, "find_coordinator", request).coordinators
    assert (found.node_id, found.host, found.port) == leader
    [topic] = asked(listener, "metadata", w.MetadataRequest((w.MetadataRequestTopic(OFFSETS.name, bytes(16)),))).topics
    assert topic.partitions[partition].leader_id == leader[0]


def test_transactions_are_announced_until_an_image_has_no_partitions_for_them() -> None:
    view = ClusterView()
    assert view.has_transactions, "a client that finds no EndTxn announced gives up for good"
    view.expect(IMAGE)
    assert not view.has_transactions
    view.update(msgspec.structs.replace(IMAGE, transaction_partitions=2))
    assert view.has_transactions
    assert list(view.transaction_partitions) == [500_000, 500_001]
    assert view.is_current(500_001)
    assert not view.is_current(500_002)


def test_pods_of_the_last_image_are_named_at_once_and_nothing_else_of_it() -> None:
    view = ClusterView()
    view.expect(IMAGE)
    assert set(view.brokers) == {broker.node_id for broker in IMAGE.brokers}
    assert (view.image, view.topics, view.partition_of("g")) == (None, {}, None)


def test_pod_lets_no_transaction_begin_while_its_image_says_so_also_after_a_restart() -> None:
    held = msgspec.structs.replace(IMAGE, holds_transactions=True)
    view = ClusterView()
    assert held_by(view) is None
    view.update(IMAGE)
    assert (view.holds_transactions, held_by(view)) == (False, None)
    view.update(held)
    assert (view.holds_transactions, held_by(view)) == (True, (3, 8))
    restarted = ClusterView()
    restarted.recall(held)
    assert restarted.holds_transactions


def test_long_group_ids_are_not_remembered() -> None:
    """A client may make up as many as it likes, of 32 KB each."""
    view = ClusterView()
    view.update(IMAGE)
    for number in range(100):
        assert view.partition_of(f"{number}-" + "x" * 30_000) is not None
    assert sum(map(len, view._routes)) < 10_000
