"""Requests of transactions find their shard, and answers of several shards become one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.listener.asked import Asked
from tests.unit.listener.test_handlers import refuse_early
from tests.unit.shard.fake_world import World
from tests.unit.transactions.harness import OFFSETS, MarkerWriter, Topics

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.handlers.transactions import TransactionHandlers
from muster_coordinator.podapi.image import MetadataImage
from muster_coordinator.records.partitioner import partition_for
from muster_coordinator.requests import transactions as m
from muster_coordinator.requests.refusals import refusal
from muster_coordinator.shard.shard import Shard
from muster_coordinator.transactions.config import TransactionConfig
from muster_coordinator.transactions.coordinator import TransactionCoordinator

FIRST = 500_000
COUNT = 3


class View:
    image = MetadataImage(token=1, version=1, cluster_id="c", brokers=(), offsets_partitions=1, leaders=(), topics=())
    transaction_partitions = range(FIRST, FIRST + COUNT)

    def when_known(self, then: Callable[[], None]) -> None:
        """The image is known."""

    def partition_of_transactional_id(self, transactional_id: str) -> int | None:
        here = self.transaction_partitions
        return here[partition_for(transactional_id, len(here))] if here else None


NAME_IN = {partition_for(name, COUNT): name for name in ("a", "b", "c", "d")}
"""For each partition a transactional id that lives there."""


class Pod:
    """It leads the first two of three partitions, and a partition of another topic."""

    def __init__(self) -> None:
        self.view = View()
        self.worlds = {
            FIRST + index: World(TransactionCoordinator(TransactionConfig(), index, Topics(), MarkerWriter()))
            for index in range(2)
        }
        self.shards: dict[int, Shard] = {number: world.shard for number, world in self.worlds.items()}
        self.shards[0] = World().shard
        self.handlers = TransactionHandlers(self.view, self.shards, refuse_early)

    def activate(self) -> None:
        for world in self.worlds.values():
            world.activate()
        self.turn()

    def turn(self) -> None:
        for world in self.worlds.values():
            world.turn()
            world.commit()

    def ask(self, method: Any, request: Any) -> Any:
        asked = Asked(request)
        method(request, asked)
        self.turn()
        (response,) = asked.got
        return response


@pytest.fixture
def pod() -> Pod:
    pod = Pod()
    pod.activate()
    return pod


def init(pod: Pod, name: str | None) -> m.InitProducerIdResponse:
    response = pod.ask(pod.handlers.init_producer_id, m.InitProducerIdRequest(name, 60_000))
    assert isinstance(response, m.InitProducerIdResponse)
    return response


def test_transactional_id_is_served_by_the_shard_of_its_hash(pod: Pod) -> None:
    for index in range(2):
        assert init(pod, NAME_IN[index]).producer_id >> 40 == index + 1
    assert init(pod, NAME_IN[2]) == m.InitProducerIdResponse(ErrorCode.NOT_COORDINATOR)


def test_producer_without_a_transactional_id_is_served_by_any_shard_here(pod: Pod) -> None:
    assert init(pod, None).producer_id >> 40 in (1, 2)
    pod.worlds[FIRST].shard.close("resigned")
    assert init(pod, None).producer_id >> 40 == 2
    pod.worlds[FIRST + 1].shard.close("resigned")
    assert init(pod, None) == m.InitProducerIdResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_nothing_is_served_before_the_partitions_are_known(pod: Pod) -> None:
    pod.view.transaction_partitions = range(0)
    assert init(pod, NAME_IN[0]).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert init(pod, None).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    end = m.EndTxnRequest("a", 1, 0, True, 5)
    assert pod.ask(pod.handlers.route, end) == m.EndTxnResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_transactions_of_one_request_are_answered_together_in_their_order(pod: Pod) -> None:
    producers = {index: init(pod, NAME_IN[index]) for index in range(2)}
    topics = ((OFFSETS, (1,)),)
    transactions = [
        m.AddPartitionsRequest(NAME_IN[2], 5, 0, topics, 5),
        *[
            m.AddPartitionsRequest(NAME_IN[index], each.producer_id, each.producer_epoch, topics, 5)
            for index, each in reversed(producers.items())
        ],
    ]
    response = pod.ask(pod.handlers.add_partitions, m.AddPartitionsToTxnRequest(tuple(transactions)))
    assert [(each.transactional_id, each.topics[0][1]) for each in response.transactions] == [
        (NAME_IN[2], ((1, ErrorCode.NOT_COORDINATOR),)),
        (NAME_IN[1], ((1, ErrorCode.NONE),)),
        (NAME_IN[0], ((1, ErrorCode.NONE),)),
    ]


def test_descriptions_are_answered_together(pod: Pod) -> None:
    init(pod, NAME_IN[0])
    response = pod.ask(
        pod.handlers.describe_transactions, m.DescribeTransactionsRequest((NAME_IN[2], NAME_IN[0], NAME_IN[1], ""))
    )
    assert [(each.error_code, each.state) for each in response.transactions][:3] == [
        (ErrorCode.NOT_COORDINATOR, ""),
        (ErrorCode.NONE, "Empty"),
        (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ""),
    ]


def list_all(pod: Pod, *states: str) -> m.ListTransactionsResponse:
    response = pod.ask(pod.handlers.list_transactions, m.ListTransactionsRequest(states))
    assert isinstance(response, m.ListTransactionsResponse)
    return response


def test_list_has_the_ids_of_all_shards_here(pod: Pod) -> None:
    for index in range(2):
        init(pod, NAME_IN[index])
    response = list_all(pod, "Empty", "Asleep")
    assert {each.transactional_id for each in response.transactions} == {NAME_IN[0], NAME_IN[1]}
    assert (response.error_code, response.unknown_states) == (ErrorCode.NONE, ("Asleep",))


def test_list_says_that_a_shard_loads() -> None:
    pod = Pod()
    pod.worlds[FIRST].activate()
    pod.worlds[FIRST + 1].shard.start_loading()
    assert list_all(pod) == m.ListTransactionsResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [(None, {0, 1}), ("", {0, 1}), (".*", {0, 1}), (NAME_IN[1], {1}), ("x|", set()), ("(a", None)],
)
def test_list_has_the_ids_whose_whole_name_the_pattern_matches(
    pod: Pod, pattern: str | None, found: set[int] | None
) -> None:
    for index in range(2):
        init(pod, NAME_IN[index])
    asked = Asked(m.ListTransactionsRequest(("Empty",), pattern=pattern))

    async def ask() -> None:
        pod.handlers.list_transactions(asked.request, asked)
        async with asyncio.timeout(10):
            while not asked.got:
                pod.turn()
                await asyncio.sleep(0.001)

    asyncio.run(ask())
    (answer,) = asked.got
    code = ErrorCode.NONE if found is not None else ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.error_code == code
    assert {each.transactional_id for each in answer.transactions} == {NAME_IN[index] for index in found or ()}


def test_list_of_a_pod_without_shards_is_empty() -> None:
    assert list_all(Pod(), "Asleep") == m.ListTransactionsResponse(ErrorCode.NONE, ("Asleep",))


@pytest.mark.parametrize(
    ("request_", "refused"),
    [
        (m.AddOffsetsToTxnRequest("a", 1, 0, "g"), m.AddOffsetsToTxnResponse(ErrorCode.NOT_COORDINATOR)),
        (m.EndTxnRequest("a", 1, 0, True, 5), m.EndTxnResponse(ErrorCode.NOT_COORDINATOR)),
        (m.ListTransactionsRequest(), m.ListTransactionsResponse(ErrorCode.NOT_COORDINATOR)),
    ],
)
def test_refusal_has_the_code_where_its_api_puts_it(request_: Any, refused: Any) -> None:
    assert refusal(request_, ErrorCode.NOT_COORDINATOR) == refused
