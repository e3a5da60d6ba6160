"""Moves of groups in one shard that follows a partition of Kafka: what stands in their way, and what is appended at
their end. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgspec

from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.mirror.moving.at_kafka import GroupAtKafka
from muster_coordinator.mirror.moving.back import DecideBackRequest, DecideBackResponse, trouble_at_kafka
from muster_coordinator.mirror.moving.deciding import (
    BeginSessionsRequest,
    BeginSessionsResponse,
    DecideRequest,
    DecideResponse,
)
from muster_coordinator.mirror.moving.differences import difference_of, difference_of_offsets
from muster_coordinator.mirror.moving.move import Task
from muster_coordinator.mirror.routes import Routes
from muster_coordinator.records.group_route import GroupRoute, encode_route
from muster_coordinator.records.mirror_position import MirrorPosition, position_record
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.requests import groups as m
from muster_coordinator.state_machine import Record, Result, Token

_DESCRIBED = 5
"""The version of DescribeGroups that Kafka is asked in: a group that it does not know is Dead."""


class Mirror(Protocol):
    """The mirror as a move sees it: how far it has read."""

    @property
    def position(self) -> MirrorPosition: ...

    @property
    def has_strays(self) -> bool: ...


class MovesOfShard:
    """`knows_topics`: whether the upstream has said which topics there are."""

    def __init__(
        self, mirror: Mirror, groups: GroupCoordinator, routes: Routes, knows_topics: Callable[[], bool]
    ) -> None:
        self._mirror = mirror
        self._groups = groups
        self._routes = routes
        self._knows_topics = knows_topics

    # -- to Muster -----------------------------------------------------------------------------------------------------

    def obstacles(self, group_id: str) -> Iterator[str]:
        """The obstacles in this partition to a move of the group to Muster."""
        handover, position = self._groups.handover, self._mirror.position
        sessions = handover.session_timeouts_ms(group_id)
        if self._routes.serves(group_id):
            yield "Muster serves it already"
        elif position.clearing or not position.complete:
            yield "the mirror has not read all of Kafka's partition yet"
        elif sessions is None:
            yield "there is no such group"
        else:
            limit, setting = handover.size_limit(group_id)
            if len(sessions) > limit:
                yield f"it has {len(sessions)} members, and {setting} is {limit} here"
            if self._groups.has_pending(group_id):
                yield "it has offsets in a transaction that is open"
            yield from self._obstacles_of_topics(group_id)

    def _obstacles_of_topics(self, group_id: str) -> Iterator[str]:
        """A consumer would have to give back what this pod does not know, or would get nothing."""
        if not self._groups.has_consumers(group_id):
            return
        if not self._knows_topics():
            yield "this pod does not know yet which topics Kafka has"
            return
        unknown = self._groups.handover.unknown_partition(group_id)
        if unknown:
            yield f"a member has {unknown}, which this pod does not see at Kafka: not yet, or no more"

    def obstacles_there(self, there: GroupAtKafka) -> Iterator[str]:
        """The obstacles in Kafka's answers to a move of the group to Muster."""
        wrong = self._groups.handover.config_out_of_bounds(there.configs)
        if wrong:
            yield (
                f"its {wrong} is {there.configs[wrong]} at Kafka, which is out of bounds here: widen group.consumer.min"
                " or .max of that name, of the pods"
            )

    def decide(self, request: DecideRequest, token: Token, now_ms: int) -> Result:
        reason = self._doubt(request, token, now_ms)
        if request.move.compared(reason) is not Task.DECIDE:
            return Result(response=DecideResponse(request.move.reason))
        records = self._groups.handover.records_in(request.group_id, request.there.configs)
        return Result((self._route_record(request.group_id, at_muster=True), *records), response=DecideResponse(""))

    def _route_record(self, group_id: str, *, at_muster: bool) -> Record:
        before = self._routes.by_group.get(group_id)
        route = GroupRoute(group_id, 1 if before is None else before.epoch + 1, at_muster)
        return (*encode_route(route), route)

    def _doubt(self, request: DecideRequest, token: Token, now_ms: int) -> str:
        """The reason why the group may not be taken over as it is here; "": it may."""
        group_id = request.group_id
        if self._mirror.has_strays or self._mirror.position.offset < request.move.end:
            return "the mirror has begun to read again"
        for obstacle in (*self.obstacles(group_id), *self.obstacles_there(request.there)):
            return obstacle
        asked: Any = m.DescribeGroupRequest(group_id, _DESCRIBED)
        if self._groups.handover.is_of_consumers(group_id):
            asked = c.DescribeConsumerGroupRequest(group_id)
        described: Any = self._groups.operations[type(asked)](asked, token, now_ms).response
        return difference_of(request.there, GroupAtKafka(described, self._offsets(group_id, token, now_ms)))

    def _offsets(self, group_id: str, token: Token | None, now_ms: int) -> m.OffsetFetchResponse:
        request = m.OffsetFetchRequest(group_id, None, -1, None, require_stable=False)
        fetched: Any = self._groups.operations[m.OffsetFetchRequest](request, token, now_ms).response
        assert isinstance(fetched, m.OffsetFetchResponse)
        return fetched

    def begin_sessions(self, request: BeginSessionsRequest, _token: Token, now_ms: int) -> Result:
        if not self._routes.serves(request.group_id):
            return Result(response=BeginSessionsResponse(False))
        begun = self._groups.begin_sessions(request.group_id, now_ms)
        return msgspec.structs.replace(begun, response=BeginSessionsResponse(True))

    # -- back ----------------------------------------------------------------------------------------------------------

    def obstacles_back(self, group_id: str) -> Iterator[str]:
        """The obstacles in this partition to a move of the group back to Kafka."""
        if self._routes.is_own(group_id):
            yield "it was never Kafka's: muster.upstream.served.groups names it"
        elif not self._routes.serves(group_id):
            yield "Kafka serves it already"
        else:
            if self._groups.handover.rebalances(group_id):
                yield "it rebalances"
            if self._groups.has_pending(group_id):
                yield "it has offsets in a transaction that is open"

    def trouble_at_kafka(self, group_id: str, there: GroupAtKafka, now_ms: int) -> str:
        """The reason why Kafka cannot take the group, as it has answered; "": it can."""
        return trouble_at_kafka(there, self._offsets(group_id, None, now_ms))

    def decide_back(self, request: DecideBackRequest, token: Token, now_ms: int) -> Result:
        group_id, move, there = request.group_id, request.move, request.there
        reads_again = self._mirror.has_strays or self._mirror.position.clearing
        reason = "the mirror has begun to read again" if reads_again else ""
        reason = reason or next(self.obstacles_back(group_id), "")
        reason = reason or self.trouble_at_kafka(group_id, there, now_ms)
        if reason:
            move.give_up(reason)
            return Result(response=DecideBackResponse(move.reason))
        task = move.compared(difference_of_offsets(there.fetched, self._offsets(group_id, token, now_ms)))
        if task is not Task.DECIDE:
            return Result(response=DecideBackResponse(move.reason, task is Task.WRITE))
        # The group is what Kafka's is from here on, without members. The position says that this came from no broker.
        records = (
            self._route_record(group_id, at_muster=False),
            *self._groups.handover.records_back(group_id, there.described, now_ms),
            position_record(self._mirror.position),
        )
        return Result(records, response=DecideBackResponse(""))
