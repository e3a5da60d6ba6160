"""OffsetCommit and OffsetFetch from version 10 on, TxnOffsetCommit from version 6 on: they name topics by their ids
(KIP-848, KIP-1319).

As in Kafka (KafkaApis) the ids become names before a group's coordinator sees the request, and names ids in its
answer. An id is known where Metadata gives it out: that of a declared topic (ADR 27).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.gather import ask_distinct
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.records.structs import NO_TOPIC_ID
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.refusals import refusal
from muster_coordinator.shard.ports import Answer

_UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_ID)
_DOES_NOT_EXIST = (_UNKNOWN, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
_Partitions = TypeVar("_Partitions")
_Commits = tuple[tuple[bytes, m.PartitionResults], ...]
_Offsets = tuple[tuple[bytes, tuple[tuple[int, int, int, str, int], ...]], ...]


class TopicIdHandlers:
    """`route` hands a request with names to the shard of its group, `commit_in_transaction` one of a transaction."""

    def __init__(
        self,
        view: ClusterView,
        route: Callable[[Any, Answer], None],
        commit_in_transaction: Callable[[m.TxnOffsetCommitRequest, Answer], None],
    ) -> None:
        self._view = view
        self._route = route
        self._commit_in_transaction = commit_in_transaction

    def offset_commit(self, request: m.OffsetCommitByIdRequest, exchange: Answer) -> None:
        names, topics = self._by_name(request.topics)
        named = m.OffsetCommitRequest(
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            -1,
            topics,
            request.api_version,
        )
        _CommitById(named, names, request.topics, m.OffsetCommitByIdResponse, exchange).ask(self._route)

    def txn_offset_commit(self, request: m.TxnOffsetCommitByIdRequest, exchange: Answer) -> None:
        names, topics = self._by_name(request.topics)
        named = m.TxnOffsetCommitRequest(
            request.transactional_id,
            request.group_id,
            request.producer_id,
            request.producer_epoch,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            topics,
            request.api_version,
        )
        answer = _CommitById(named, names, request.topics, m.TxnOffsetCommitByIdResponse, exchange)
        answer.ask(self._commit_in_transaction)

    def offset_fetch(self, request: w.OffsetFetchByIdRequests, exchange: Answer) -> None:
        ask_distinct(
            request.groups, self._fetch_group, lambda parts: exchange.answer(w.OffsetFetchByIdResponses(parts))
        )

    def _fetch_group(self, group: m.OffsetFetchByIdRequest, answer: Answer) -> None:
        topics = group.topics or ()
        names, found = self._by_name(topics)
        named = m.OffsetFetchRequest(
            group.group_id,
            group.member_id,
            group.member_epoch,
            None if group.topics is None else found,
            group.require_stable,
        )
        unknown = tuple(
            [(each, tuple([(p, -1, -1, "", _UNKNOWN) for p in parts])) for each, parts in topics if each not in names]
        )
        ids = {name: topic_id for topic_id, name in names.items()}
        id_of = self._view.id_of if group.topics is None else ids.__getitem__
        self._route(named, _FetchById(named, id_of, unknown, answer))

    def _by_name(
        self, topics: Sequence[tuple[bytes, _Partitions]]
    ) -> tuple[dict[bytes, str], tuple[tuple[str, _Partitions], ...]]:
        """The names of the topics that are known, and these topics by name."""
        found = ((topic_id, self._view.name_of(topic_id)) for topic_id, _ in topics)
        names = {topic_id: name for topic_id, name in found if name is not None}
        return names, tuple([(names[each], parts) for each, parts in topics if each in names])


class _CommitById:
    """Implements `shard.ports.Answer` for a commit whose client has named its topics by id. `asked`: those of its
    request; `respond` makes the answer of the topics."""

    __slots__ = ("_exchange", "_ids", "_places", "_request", "_respond", "_unknown")

    def __init__(
        self,
        request: m.OffsetCommitRequest | m.TxnOffsetCommitRequest,
        names: dict[bytes, str],
        asked: Sequence[tuple[bytes, m.CommittedPartitions]],
        respond: Callable[[_Commits], object],
        exchange: Answer,
    ) -> None:
        self._request = request
        self._ids = {name: topic_id for topic_id, name in names.items()}
        self._unknown = tuple(
            [(each, tuple([(p[0], _UNKNOWN) for p in parts])) for each, parts in asked if each not in names]
        )
        self._places = {topic_id: place for place, (topic_id, _) in reversed(tuple(enumerate(asked)))}
        self._respond = respond
        self._exchange = exchange

    def ask(self, route: Callable[[Any, Answer], None]) -> None:
        """Hand the request on, unless no topic of it is known: as in Kafka, whether or not the group is here."""
        if self._request.topics:
            route(self._request, self)
        else:
            self._answer(())

    def answer(self, response: m.OffsetCommitResponse | m.TxnOffsetCommitResponse) -> None:
        self._answer(response.topics)

    def _answer(self, answered: m.CommitResults) -> None:
        topics = tuple([(self._ids[name], codes) for name, codes in answered])
        if self._unknown:
            topics = m.each_once(sorted(self._unknown + topics, key=self._place))
        self._exchange.answer(self._respond(topics))

    def _place(self, topic: tuple[bytes, m.PartitionResults]) -> tuple[bool, int]:
        """Topics that do not exist, or of which a partition does not, come first: Kafka answers them before it asks
        the group."""
        topic_id, codes = topic
        return all(code not in _DOES_NOT_EXIST for _, code in codes), self._places[topic_id]

    def refuse(self, code: ErrorCode) -> None:
        self.answer(refusal(self._request, code))  # type: ignore[arg-type]  # of the request's own type


class _FetchById:
    """Implements `shard.ports.Answer` for one group of a fetch. Of all topics, those without an id are left out: there
    is no other way to name them in this version (KafkaApis#fetchAllOffsetsForGroup)."""

    __slots__ = ("_answer", "_id_of", "_request", "_unknown")

    def __init__(
        self, request: m.OffsetFetchRequest, id_of: Callable[[str], bytes], unknown: _Offsets, answer: Answer
    ) -> None:
        self._request = request
        self._id_of = id_of
        self._unknown = unknown
        self._answer = answer

    def answer(self, response: m.OffsetFetchResponse) -> None:
        named = [(self._id_of(name), partitions) for name, partitions in response.topics]
        known = tuple([each for each in named if each[0] != NO_TOPIC_ID])
        self._answer.answer(m.OffsetFetchByIdResponse(response.group_id, response.error_code, known + self._unknown))

    def refuse(self, code: ErrorCode) -> None:
        self.answer(refusal(self._request, code))  # type: ignore[arg-type]  # of the request's own type
