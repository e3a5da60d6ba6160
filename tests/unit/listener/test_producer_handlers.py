"""DescribeProducers: each partition is answered by who leads it, in the order of the request."""

from __future__ import annotations

import pytest
from tests.unit.groups.harness import Harness
from tests.unit.listener.test_transaction_handlers import Asked
from tests.unit.shard.fake_world import World

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.handlers.producers import ProducerHandlers
from muster_coordinator.partition_numbers import OFFSETS, TRANSACTIONS
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.podapi.image import Broker, DeclaredTopic, MetadataImage
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import groups as m

NONE = m.DescribeProducersResponse(ErrorCode.NONE)
UNKNOWN = m.DescribeProducersResponse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
ELSEWHERE = m.DescribeProducersResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
COMMIT = m.TxnOffsetCommitRequest("tx", "g", 7, 3, -1, "", None, (("t", ((0, 5, -1, ""),)),), 3)
BASE = 10
"""A re-shard has moved the offsets topic."""


class Pod:
    """It leads partition 1 of three, by its number."""

    def __init__(self) -> None:
        coordinator = Harness().coordinator
        coordinator.on_unloaded()
        self.world = World(coordinator)
        view = ClusterView()
        view.update(
            MetadataImage(
                token=1,
                version=1,
                cluster_id="c",
                brokers=(Broker(0, "a", 1, "pod-0"),),
                offsets_partitions=3,
                offsets_base=BASE,
                leaders=(),
                topics=(DeclaredTopic("t", 2),),
                transaction_partitions=2,
            )
        )
        self.handlers = ProducerHandlers(view, {BASE + 1: self.world.shard})

    def turn(self) -> None:
        self.world.turn()
        self.world.commit()

    def ask(self, *topics: tuple[str, tuple[int, ...]]) -> tuple[tuple[str, tuple[tuple[int, object], ...]], ...]:
        asked = Asked(request := w.DescribePartitionsProducersRequest(topics))
        self.handlers.describe_producers(request, asked)  # type: ignore[arg-type]
        self.turn()
        (response,) = asked.got
        assert isinstance(response, w.DescribePartitionsProducersResponse)
        return response.topics


@pytest.fixture
def pod() -> Pod:
    pod = Pod()
    pod.world.activate()
    pod.turn()
    return pod


def test_open_transactions_are_those_of_the_shard_that_leads_here(pod: Pod) -> None:
    pod.world.shard.submit(COMMIT, Asked(COMMIT))  # type: ignore[arg-type]
    pod.turn()
    ((name, ((partition, found), *others)),) = pod.ask((OFFSETS.name, (1, 0, 2, 3)))
    assert (name, partition) == (OFFSETS.name, 1)
    assert isinstance(found, m.DescribeProducersResponse)
    assert [(each.producer_id, each.producer_epoch) for each in found.producers] == [(7, 3)]
    assert others == [(0, ELSEWHERE), (2, ELSEWHERE), (3, UNKNOWN)]


def test_other_topics_have_no_transactions(pod: Pod) -> None:
    topics = (("t", (1, 2)), ("missing", (0,)), (TRANSACTIONS.name, (1,)), ("t", ()))
    assert pod.ask(*topics) == (
        ("t", ((1, NONE), (2, UNKNOWN))),
        ("missing", ((0, UNKNOWN),)),
        (TRANSACTIONS.name, ((1, NONE),)),
        ("t", ()),
    )
    assert pod.ask() == ()


def test_partition_that_is_named_twice_is_asked_once(pod: Pod) -> None:
    asked = Asked(request := w.DescribePartitionsProducersRequest(((OFFSETS.name, (1, 1)), (OFFSETS.name, (1,)))))
    pod.handlers.describe_producers(request, asked)  # type: ignore[arg-type]
    assert "queue=1 " in repr(pod.world.shard)
    pod.turn()
    assert asked.got[0].topics == ((OFFSETS.name, ((1, NONE), (1, NONE))), (OFFSETS.name, ((1, NONE),)))


def test_shard_that_resigns_is_no_leader(pod: Pod) -> None:
    pod.world.shard.close("resigned")
    assert pod.ask((OFFSETS.name, (1,))) == ((OFFSETS.name, ((1, ELSEWHERE),)),)
