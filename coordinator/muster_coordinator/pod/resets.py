"""Resets of offsets: what one would do, and the same carried out, at the leader of the group's partition.

The group has no member when a plan is made, and when it is carried out: the state machine refuses the commit otherwise.
If its members are to be parked, they are put out for that (`groups/parking.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import structlog

from muster_coordinator.errors import ErrorCode
from muster_coordinator.mirror.coordinator import MirrorCoordinator
from muster_coordinator.pod.mirroring.connection import UpstreamError
from muster_coordinator.pod.mirroring.records_of import Place, RecordsOfKafka
from muster_coordinator.pod.shard_question import ShardRefusedError, ask_shard
from muster_coordinator.podapi.resets import (
    PARKED_MS,
    PLACES_MAX,
    PlanAnswer,
    PlannedOffset,
    PlanRequest,
    ResetAnswer,
    ResetRequest,
)
from muster_coordinator.records.partitioner import partition_for
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.parking import ParkGroupRequest
from muster_coordinator.reset_aims import Aim, Edges, Impossible, aimed
from muster_coordinator.shard.shard import Shard

logger = structlog.get_logger(__name__)

_DESCRIBED = 5
"""The version of DescribeGroups in which a group that is not there is Dead."""
_COMMITTED = 8
"""The version of OffsetCommit: any that names topics."""
_UNBOUNDED = Edges(0, 2**63 - 1)
_MEMBERS = "the group has members: stop its consumers"
_OF_MEMBERS = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)
_ELSEWHERE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class NotLedError(Exception):
    """This pod does not lead the group's partition, or cannot answer for it now."""


class Topics(Protocol):
    def find(self, topic: str) -> tuple[bytes, int] | None:
        """The id of a topic, and how many partitions it has."""
        ...


class Resets:
    """`partitions`: our numbers of those that clients know. `records`: None if nobody knows where partitions end.
    `may_answer`: whether groups may be changed here now, and that be told."""

    def __init__(
        self,
        shards: Mapping[int, Shard],
        partitions: Callable[[], range],
        topics: Topics,
        records: RecordsOfKafka | None,
        may_answer: Callable[[], bool] = lambda: True,
    ) -> None:
        self._shards = shards
        self._partitions = partitions
        self._topics = topics
        self._records = records
        self._may_answer = may_answer

    async def plan(self, request: PlanRequest) -> PlanAnswer:
        """Raises NotLedError."""
        shard = self._led(request.group)
        if isinstance(shard.machine, MirrorCoordinator) and not shard.machine.routes.serves(request.group):
            return PlanAnswer(("Kafka coordinates the group: reset it there",))
        try:
            if not request.park:
                if not await self._is_empty(shard, request.group):
                    raise Impossible(_MEMBERS)
                return PlanAnswer((), await self._planned(request, await self._committed(shard, request.group)))
            if not await self._is_empty(shard, request.group):  # nobody is put out for what cannot be
                await self._planned(request, await self._committed(shard, request.group))
            return PlanAnswer((), await self._planned_parked(shard, request))
        except Impossible as error:
            return PlanAnswer((str(error),))
        except UpstreamError as error:
            return PlanAnswer((f"Kafka does not say where partitions begin and end: {error}",))

    async def _planned_parked(self, shard: Shard, request: PlanRequest) -> tuple[PlannedOffset, ...]:
        """The plan, once nobody can join. Raises Impossible, UpstreamError, NotLedError."""
        await _park(shard, request.group)
        try:
            return await self._planned(request, await self._committed(shard, request.group))
        except BaseException:
            await _let_in(shard, request.group)
            raise

    async def reset(self, request: ResetRequest) -> ResetAnswer:
        """Raises NotLedError."""
        answer = await self._reset(request) if self._may_answer() else None
        if answer is None or not self._may_answer():
            raise NotLedError("this site does not serve clients now")
        return answer

    async def _reset(self, request: ResetRequest) -> ResetAnswer:
        shard, group = self._led(request.group), request.group
        try:
            answer = await self._judged(shard, request)
            if answer is None and request.park:
                await _park(shard, group)
                answer = await self._judged(shard, request)
            return answer or await self._written(shard, request)
        except Impossible as error:
            return ResetAnswer("Refused", str(error))
        finally:
            if request.park:
                await _let_in(shard, group)

    async def _judged(self, shard: Shard, request: ResetRequest) -> ResetAnswer | None:
        """None: the offsets are to be written. Raises Impossible, NotLedError."""
        now = await self._committed(shard, request.group)
        places = [(each, now.get((each.topic, each.partition), -1)) for each in request.offsets]
        if all(offset == each.after for each, offset in places):
            return ResetAnswer("Written")
        if changed := [each for each, offset in places if offset not in (each.before, each.after)]:
            return ResetAnswer("Changed", f"{changed[0].topic}-{changed[0].partition} has another offset since")
        return None

    async def _written(self, shard: Shard, request: ResetRequest) -> ResetAnswer:
        """Raises NotLedError."""
        topics: dict[str, list[tuple[int, int, int, str]]] = {}
        for each in request.offsets:
            topics.setdefault(each.topic, []).append((each.partition, each.after, -1, ""))
        asked = tuple((topic, tuple(offsets)) for topic, offsets in topics.items())
        answer = await _ask(shard, m.OffsetCommitRequest(request.group, -1, "", None, -1, asked, _COMMITTED))
        refused = {code: f"{topic}-{index}" for topic, results in answer.topics for index, code in results if code}
        if not refused:
            logger.info("offsets_reset", group=request.group, partitions=len(request.offsets), parked=request.park)
            return ResetAnswer("Written")
        return ResetAnswer("Refused", _why(refused))

    # -- the group -----------------------------------------------------------------------------------------------------

    def _led(self, group: str) -> Shard:
        partitions = self._partitions()
        number = partitions.start + partition_for(group, len(partitions)) if partitions else -1
        shard = self._shards.get(number)
        if shard is None:
            raise NotLedError(f"this pod does not lead the partition of group {group!r}")
        return shard

    async def _is_empty(self, shard: Shard, group: str) -> bool:
        """True if the group has no member of either protocol, or does not exist."""
        classic = await _ask(shard, m.DescribeGroupRequest(group, _DESCRIBED))
        of_consumers = await _ask(shard, c.DescribeConsumerGroupRequest(group))
        _check(classic.error_code)
        return not classic.members and not of_consumers.members and classic.group_state in ("Empty", "Dead")

    async def _committed(self, shard: Shard, group: str) -> dict[Place, int]:
        """Raises Impossible if a transaction that is open may change them."""
        answer = await _ask(shard, m.OffsetFetchRequest(group, None, -1, None, True))
        _check(answer.error_code)
        found = {}
        for topic, partitions in answer.topics:
            for index, offset, _, _, code in partitions:
                if code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    raise Impossible(f"a transaction with an offset of {topic}-{index} is open: end it")
                if offset >= 0:
                    found[topic, index] = offset
        return found

    # -- where to ------------------------------------------------------------------------------------------------------

    async def _planned(self, request: PlanRequest, committed: Mapping[Place, int]) -> tuple[PlannedOffset, ...]:
        """Raises Impossible, UpstreamError."""
        found: Mapping[Place, int] = {(each.topic, each.partition): each.offset for each in request.offsets}
        places = self._places(request, committed) if request.to != "offsets" else self._known(found)
        edges = dict.fromkeys(places, _UNBOUNDED)
        if self._records is not None:
            edges = await self._records.edges(places)
            if request.to == "datetime":
                found = await self._records.first_since(places, request.number)
        elif request.to not in ("offset", "shiftBy", "offsets"):
            raise Impossible("no upstream says where partitions end: reset to an offset, to offsets, or by a shift")
        planned = []
        for place in places:
            if place not in edges:
                raise Impossible(f"Kafka has no partition {place[0]}-{place[1]}")
            since = found.get(place, -1)
            aim = Aim("file" if request.to == "offsets" else request.to, request.number)
            name = f"{place[0]}-{place[1]}"
            now = committed.get(place)
            after, _ = aimed(aim, name, now, edges[place], since if since >= 0 else None)
            planned.append(PlannedOffset(*place, -1 if now is None else now, after))
        return tuple(planned)

    def _known(self, wanted: Mapping[Place, int]) -> list[Place]:
        """Raises Impossible."""
        if not wanted:
            raise Impossible("it names no offsets")
        for topic, number in wanted:
            known = self._topics.find(topic)
            if known is None or number >= known[1]:
                raise Impossible(f"there is no partition {topic}-{number}")
        return sorted(wanted)

    def _places(self, request: PlanRequest, committed: Mapping[Place, int]) -> list[Place]:
        """Raises Impossible."""
        places = set() if request.topics else set(committed)
        for topic in request.topics:
            known = self._topics.find(topic)
            if known is None:
                raise Impossible(f"there is no topic {topic}")
            places |= {(topic, number) for number in range(known[1])}
        if not places:
            raise Impossible("nothing is committed for the group: name its topics")
        if len(places) > PLACES_MAX:
            raise Impossible(f"{len(places)} partitions, more than {PLACES_MAX}: name fewer topics")
        return sorted(places)


def _check(code: int) -> None:
    """Raises NotLedError, Impossible."""
    if code in _ELSEWHERE:
        raise NotLedError(f"the partition of the group cannot be asked now: {ErrorCode(code).name}")
    if code:
        raise Impossible(f"the group is refused with {ErrorCode(code).name}")


def _why(refused: Mapping[int, str]) -> str:
    """Raises NotLedError."""
    if any(code in _OF_MEMBERS for code in refused):
        return _MEMBERS
    code, where = next(iter(refused.items()))
    if code in _ELSEWHERE:
        raise NotLedError(f"the partition of the group cannot be written now: {ErrorCode(code).name}")
    return f"{where} is refused with {ErrorCode(code).name}"


async def _park(shard: Shard, group: str) -> None:
    """Raises Impossible: its members cannot be put out; NotLedError."""
    answer = await _ask(shard, ParkGroupRequest(group, PARKED_MS))
    _check(answer.error_code)
    if answer.reason:
        raise Impossible(answer.reason)


async def _let_in(shard: Shard, group: str) -> None:
    """Lets members in again. If the leadership has ended, nobody is kept out any more."""
    with suppress(NotLedError):
        await _ask(shard, ParkGroupRequest(group, 0))


async def _ask(shard: Shard, request: Any) -> Any:
    """Raises NotLedError if the leadership ends."""
    try:
        return await ask_shard(shard, request)
    except ShardRefusedError as error:
        raise NotLedError(f"the partition of the group answers {error.code.name}") from None
