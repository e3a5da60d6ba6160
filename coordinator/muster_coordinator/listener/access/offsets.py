"""Guards of the requests about offsets: the group first, then each topic; the allowed topics are carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.access.asked import Rights, hand_on, split
from muster_coordinator.listener.exchange import ClientAnswer
from muster_coordinator.listener.state import Handler
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.refusals import refusal
from muster_coordinator.security.acls import Operation

NameOf = Callable[[bytes], str | None]
"""The name of the topic with this id; None: no topic has it."""

_TOPIC, _GROUP = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), ErrorCode.GROUP_AUTHORIZATION_FAILED
_SAID_FIRST = (_TOPIC, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), int(ErrorCode.UNKNOWN_TOPIC_ID))
"""Kafka answers these before it asks the group: they stand first, in the order of the request."""


def _codes(partitions: Iterable[Any], code: int) -> tuple[tuple[int, int], ...]:
    """`partitions`: numbers, or tuples that begin with one."""
    return tuple([(each if isinstance(each, int) else each[0], code) for each in partitions])


def _in_kafkas_order(asked: Sequence[tuple[Any, Any]], answered: Sequence[tuple[Any, Any]]) -> tuple[Any, ...]:
    """Topics of a commit's or deletion's answer. `asked`: those of the request."""
    place = {topic: index for index, (topic, _) in reversed(list(enumerate(asked)))}

    def key(topic: tuple[Any, Any]) -> tuple[bool, int]:
        first = any(code in _SAID_FIRST for _, code in topic[1])
        return (not first, place[topic[0]] if first else 0)

    return tuple(sorted(answered, key=key))


def _only_allowed_topics(
    request: Any, exchange: ClientAnswer, handler: Handler, response_type: type, may: Callable[[Any], bool]
) -> None:
    """Carry out what is about topics that `may` allows. `response_type` takes the topics."""
    allowed, others = split(request.topics, lambda topic: may(topic[0]))
    if not others:
        handler(request, exchange)
        return
    refused = tuple([(topic, _codes(parts, _TOPIC)) for topic, parts in others])
    if not allowed:
        exchange.answer(response_type(topics=refused))  # as in Kafka, whether or not the group is here
        return

    def change(response: Any) -> Any:
        return response_type(topics=_in_kafkas_order(request.topics, refused + response.topics))

    hand_on(msgspec.structs.replace(request, topics=allowed), exchange, handler, change)


def offset_commit(request: m.OffsetCommitRequest, exchange: ClientAnswer, rights: Rights, handler: Handler) -> None:
    if not rights.group(Operation.READ, request.group_id):
        exchange.answer(refusal(request, _GROUP))
        return
    _only_allowed_topics(
        request, exchange, handler, m.OffsetCommitResponse, lambda name: rights.topic(Operation.READ, name)
    )


def txn_offset_commit(
    request: m.TxnOffsetCommitRequest, exchange: ClientAnswer, rights: Rights, handler: Handler
) -> None:
    if code := _in_transaction(request, rights):
        exchange.answer(refusal(request, code))
        return
    _only_allowed_topics(
        request, exchange, handler, m.TxnOffsetCommitResponse, lambda name: rights.topic(Operation.READ, name)
    )


def _in_transaction(request: m.TxnOffsetCommitRequest | m.TxnOffsetCommitByIdRequest, rights: Rights) -> ErrorCode:
    """The refusal of a commit in a transaction, whatever its topics are; NONE: there is none."""
    if not rights.transactional_id(Operation.WRITE, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.NONE if rights.group(Operation.READ, request.group_id) else _GROUP


def offset_delete(request: m.OffsetDeleteRequest, exchange: ClientAnswer, rights: Rights, handler: Handler) -> None:
    """An error of the group replaces all that its topics had."""
    if not rights.group(Operation.DELETE, request.group_id):
        exchange.answer(refusal(request, _GROUP))
        return
    allowed, others = split(request.topics, lambda topic: rights.topic(Operation.READ, topic[0]))
    refused = tuple([(topic, _codes(parts, _TOPIC)) for topic, parts in others])

    def change(response: m.OffsetDeleteResponse) -> m.OffsetDeleteResponse:
        if response.error_code:
            return response
        return m.OffsetDeleteResponse(0, _in_kafkas_order(request.topics, refused + response.topics))

    hand_on(msgspec.structs.replace(request, topics=allowed), exchange, handler, change)


class OffsetsById:
    """Guards of the versions that name topics by id. An id that nothing has is left to the handler."""

    def __init__(self, name_of: NameOf) -> None:
        self._name_of = name_of

    def commit(
        self, request: m.OffsetCommitByIdRequest, exchange: ClientAnswer, rights: Rights, handler: Handler
    ) -> None:
        if not rights.group(Operation.READ, request.group_id):
            refused = tuple([(topic_id, _codes(parts, int(_GROUP))) for topic_id, parts in request.topics])
            exchange.answer(m.OffsetCommitByIdResponse(refused))
            return
        may = self._may(Operation.READ, rights)
        _only_allowed_topics(request, exchange, handler, m.OffsetCommitByIdResponse, may)

    def commit_in_transaction(
        self, request: m.TxnOffsetCommitByIdRequest, exchange: ClientAnswer, rights: Rights, handler: Handler
    ) -> None:
        if code := _in_transaction(request, rights):
            refused = tuple([(topic_id, _codes(parts, int(code))) for topic_id, parts in request.topics])
            exchange.answer(m.TxnOffsetCommitByIdResponse(refused))
            return
        may = self._may(Operation.READ, rights)
        _only_allowed_topics(request, exchange, handler, m.TxnOffsetCommitByIdResponse, may)

    def fetch(
        self, request: w.OffsetFetchByIdRequests, exchange: ClientAnswer, rights: Rights, handler: Handler
    ) -> None:
        def may(rights: Rights, topic_id: bytes) -> bool:
            return self._may(Operation.DESCRIBE, rights)(topic_id)

        def refused(group: m.OffsetFetchByIdRequest) -> m.OffsetFetchByIdResponse:
            return m.OffsetFetchByIdResponse(group.group_id, int(_GROUP))

        _fetch(request, exchange, rights, handler, may, refused)

    def _may(self, operation: Operation, rights: Rights) -> Callable[[bytes], bool]:
        def may(topic_id: bytes) -> bool:
            name = self._name_of(topic_id)
            return name is None or rights.topic(operation, name)

        return may


def offset_fetch(request: w.OffsetFetchRequests, exchange: ClientAnswer, rights: Rights, handler: Handler) -> None:
    def refused(group: m.OffsetFetchRequest) -> Any:
        return refusal(group, _GROUP)

    _fetch(request, exchange, rights, handler, lambda rights, name: rights.topic(Operation.DESCRIBE, name), refused)


def _fetch(
    request: Any,
    exchange: ClientAnswer,
    rights: Rights,
    handler: Handler,
    may_describe: Callable[[Rights, Any], bool],
    refused: Callable[[Any], Any],
) -> None:
    """Offsets of several groups. Topics without a right are left out where all were asked for, else an error."""
    may, sees = partial(may_describe, rights), partial(may_describe, rights.unasked)
    allowed = [rights.group(Operation.DESCRIBE, group.group_id) for group in request.groups]
    narrowed = tuple(
        [
            group
            if group.topics is None
            else msgspec.structs.replace(group, topics=tuple([each for each in group.topics if may(each[0])]))
            for group, yes in zip(request.groups, allowed, strict=True)
            if yes
        ]
    )

    def change(response: Any) -> Any:
        found = iter(response.groups)
        groups = [
            _fetched(group, next(found), sees if group.topics is None else may) if yes else refused(group)
            for group, yes in zip(request.groups, allowed, strict=True)
        ]
        return msgspec.structs.replace(response, groups=tuple(groups))

    hand_on(msgspec.structs.replace(request, groups=narrowed), exchange, handler, change)


def _fetched(asked: Any, found: Any, may: Callable[[Any], bool]) -> Any:
    if found.error_code:
        return found
    if asked.topics is None:
        topics = tuple([each for each in found.topics if may(each[0])])
    else:
        refused = [(t, tuple([(p, -1, -1, "", _TOPIC) for p in parts])) for t, parts in asked.topics if not may(t)]
        place = {topic: index for index, (topic, _) in enumerate(asked.topics)}
        topics = tuple(sorted((*found.topics, *refused), key=lambda topic: _error_place(topic, place)))
    return msgspec.structs.replace(found, topics=topics)


def _error_place(topic: tuple[Any, Any], place: dict[Any, int]) -> int:
    """Puts the offsets that were found first, then the errors in the order of the request."""
    return place[topic[0]] if any(each[4] in (_TOPIC, _SAID_FIRST[2]) for each in topic[1]) else -1
