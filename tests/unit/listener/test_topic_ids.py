"""Commits and fetches that name their topics by id: names on the way in, ids on the way out."""

from __future__ import annotations

from typing import Any

import pytest

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.handlers.topic_ids import TopicIdHandlers
from muster_coordinator.partition_numbers import OFFSETS
from muster_coordinator.pod.cluster_view import ClusterView, topic_id
from muster_coordinator.podapi.image import DeclaredTopic, MetadataImage
from muster_coordinator.records.structs import NO_TOPIC_ID
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.packed_offsets import ENTRY_BYTES, AcceptedOffsets, PackedOffsets
from muster_coordinator.shard.ports import Answer

ORDERS, BILLS, UNKNOWN = topic_id("orders"), topic_id("bills"), b"nobody knows me!"
AT_ZERO = ((0, 5, -1, "m"),)
FOUND = ((0, 5, -1, "m", 0),)


class Client:
    """What one pod answers. `coordinator` answers what is handed to a shard; an error code refuses it."""

    def __init__(self) -> None:
        self.view = ClusterView()
        topics = (DeclaredTopic("orders", 3), DeclaredTopic("bills", 1))
        self.view.update(MetadataImage(1, 1, "c", (), 50, (), topics, any_topic=True))
        self.routed: list[Any] = []
        self.in_transaction: list[Any] = []
        self.got: list[Any] = []
        self.coordinator: Any = None
        self.handlers = TopicIdHandlers(self.view, self._route, self._commit_in_transaction)

    def _route(self, request: Any, answer: Answer) -> None:
        self.routed.append(request)
        if isinstance(self.coordinator, ErrorCode):
            answer.refuse(self.coordinator)
        else:
            answer.answer(self.coordinator)

    def _commit_in_transaction(self, request: m.TxnOffsetCommitRequest, answer: Answer) -> None:
        self.in_transaction.append(request)
        self._route(request, answer)

    def answer(self, response: Any) -> None:
        self.got.append(response)

    def refuse(self, code: ErrorCode) -> None:
        raise AssertionError(code)

    def commit(self, *topics: tuple[bytes, m.CommittedPartitions]) -> Any:
        self.handlers.offset_commit(m.OffsetCommitByIdRequest("g", 3, "m", "i", topics, 10), self)
        (response,) = self.got
        return response.topics

    def commit_in_transaction(self, *topics: tuple[bytes, tuple[tuple[int, int, int, str | None], ...]]) -> Any:
        request = m.TxnOffsetCommitByIdRequest("tx", "g", 7, 1, 3, "m", "i", topics, 6)
        self.handlers.txn_offset_commit(request, self)
        (response,) = self.got
        assert isinstance(response, m.TxnOffsetCommitByIdResponse)
        return response.topics

    def fetch(self, *wanted: tuple[tuple[bytes, tuple[int, ...]], ...] | None) -> Any:
        groups = tuple(m.OffsetFetchByIdRequest(f"g{n}", "m", 4, topics, True) for n, topics in enumerate(wanted))
        self.handlers.offset_fetch(w.OffsetFetchByIdRequests(groups, True), self)
        (response,) = self.got
        return response.groups


@pytest.fixture
def client() -> Client:
    return Client()


def test_commit_goes_to_the_group_with_names_and_comes_back_with_ids(client: Client) -> None:
    client.coordinator = m.OffsetCommitResponse((("bills", ((0, 0),)), ("orders", ((0, 12),))))
    assert client.commit((ORDERS, AT_ZERO), (BILLS, AT_ZERO)) == ((BILLS, ((0, 0),)), (ORDERS, ((0, 12),)))
    assert client.routed == [m.OffsetCommitRequest("g", 3, "m", "i", -1, (("orders", AT_ZERO), ("bills", AT_ZERO)), 10)]


def test_unknown_ids_are_refused_and_the_others_committed(client: Client) -> None:
    client.coordinator = m.OffsetCommitResponse((("orders", ((0, 0),)),))
    answer = client.commit((ORDERS, AT_ZERO), (UNKNOWN, AT_ZERO), (NO_TOPIC_ID, AT_ZERO))
    assert answer == ((UNKNOWN, ((0, 100),)), (NO_TOPIC_ID, ((0, 100),)), (ORDERS, ((0, 0),)))
    assert client.routed[0].topics == (("orders", AT_ZERO),)


def test_packed_partitions_stay_packed_and_those_of_an_unknown_id_are_refused_one_by_one(client: Client) -> None:
    committed = PackedOffsets(bytes(2 * ENTRY_BYTES), (4, 5), (6, 7), (8, 9), "")
    accepted = AcceptedOffsets(committed)
    client.coordinator = m.OffsetCommitResponse((("orders", accepted),))
    answer = client.commit((ORDERS, committed), (UNKNOWN, committed))
    assert answer == ((UNKNOWN, ((4, 100), (5, 100))), (ORDERS, ((4, 0), (5, 0))))
    assert client.routed[0].topics[0][1] is committed
    assert answer[1][1] is accepted


def test_what_does_not_exist_is_answered_first_in_the_order_of_the_request(client: Client) -> None:
    client.coordinator = m.OffsetCommitResponse((("bills", ((9, 3),)), ("orders", ((0, 0),))))
    answer = client.commit((ORDERS, AT_ZERO), (BILLS, ((9, 5, -1, "m"),)), (UNKNOWN, AT_ZERO))
    assert [topic for topic, _ in answer] == [BILLS, UNKNOWN, ORDERS]


def test_commit_of_unknown_ids_only_does_not_ask_the_group(client: Client) -> None:
    assert client.commit((UNKNOWN, AT_ZERO)) == ((UNKNOWN, ((0, 100),)),)
    assert client.routed == []


def test_refused_commit_says_so_by_id(client: Client) -> None:
    client.coordinator = ErrorCode.NOT_COORDINATOR
    assert client.commit((ORDERS, AT_ZERO), (UNKNOWN, AT_ZERO)) == ((UNKNOWN, ((0, 100),)), (ORDERS, ((0, 16),)))


def test_fetch_of_several_groups_by_id(client: Client) -> None:
    client.coordinator = m.OffsetFetchResponse("g0", 0, (("orders", FOUND),))
    first, second = client.fetch(((ORDERS, (0,)), (UNKNOWN, (0, 1))), ((ORDERS, (0,)),))
    refused = ((0, -1, -1, "", 100), (1, -1, -1, "", 100))
    assert first == m.OffsetFetchByIdResponse("g0", 0, ((ORDERS, FOUND), (UNKNOWN, refused)))
    assert second.topics == ((ORDERS, FOUND),)
    assert client.routed == [m.OffsetFetchRequest(f"g{n}", "m", 4, (("orders", (0,)),), True) for n in range(2)]


def test_fetch_of_all_topics_leaves_out_what_has_no_id(client: Client) -> None:
    found = tuple((name, FOUND) for name in ("orders", "undeclared", OFFSETS.name))
    client.coordinator = m.OffsetFetchResponse("g0", 0, found)
    (group,) = client.fetch(None)
    assert group.topics == ((ORDERS, FOUND), (topic_id(OFFSETS.name), FOUND))
    assert client.routed[0].topics is None


def test_answer_names_what_was_asked_for_though_the_topic_is_gone_by_then(client: Client) -> None:
    def route(request: m.OffsetFetchRequest, answer: Answer) -> None:
        client.view.update(MetadataImage(1, 2, "c", (), 50, ()))
        answer.answer(m.OffsetFetchResponse("g0", 0, (("orders", FOUND),)))

    client.handlers = TopicIdHandlers(client.view, route, client._route)
    (group,) = client.fetch(((ORDERS, (0,)),))
    assert group.topics == ((ORDERS, FOUND),)


def test_refused_group_has_its_error(client: Client) -> None:
    client.coordinator = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    (group,) = client.fetch(((ORDERS, (0,)),))
    assert group.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_commit_of_a_transaction_goes_on_with_names_and_comes_back_with_ids(client: Client) -> None:
    client.coordinator = m.TxnOffsetCommitResponse((("orders", ((0, 113), (1, 0))),))
    answer = client.commit_in_transaction((ORDERS, ((0, 5, -1, "m"), (1, 6, -1, None))), (UNKNOWN, AT_ZERO))
    assert answer == ((UNKNOWN, ((0, 100),)), (ORDERS, ((0, 113), (1, 0))))
    topics = (("orders", ((0, 5, -1, "m"), (1, 6, -1, None))),)
    assert client.in_transaction == [m.TxnOffsetCommitRequest("tx", "g", 7, 1, 3, "m", "i", topics, 6)]


def test_commit_of_a_transaction_is_refused_by_ids(client: Client) -> None:
    client.coordinator = ErrorCode.NOT_COORDINATOR
    answer = client.commit_in_transaction((ORDERS, AT_ZERO), (UNKNOWN, AT_ZERO))
    assert answer == ((UNKNOWN, ((0, 100),)), (ORDERS, ((0, 16),)))


def test_commit_of_a_transaction_with_unknown_ids_only_asks_no_coordinator(client: Client) -> None:
    assert client.commit_in_transaction((NO_TOPIC_ID, AT_ZERO)) == ((NO_TOPIC_ID, ((0, 100),)),)
    assert client.routed == []


def test_topic_that_is_named_twice_is_answered_once_beside_one_that_is_unknown(client: Client) -> None:
    """Kafka joins what the group answers to what it has answered itself, by topic."""
    client.coordinator = m.OffsetCommitResponse((("orders", ((0, 0),)), ("bills", ((0, 0),)), ("orders", ((1, 0),))))
    at_one = ((1, 5, -1, "m"),)
    answer = client.commit((UNKNOWN, AT_ZERO), (ORDERS, AT_ZERO), (BILLS, AT_ZERO), (ORDERS, at_one), (UNKNOWN, at_one))
    assert answer == ((UNKNOWN, ((0, 100), (1, 100))), (ORDERS, ((0, 0), (1, 0))), (BILLS, ((0, 0),)))
