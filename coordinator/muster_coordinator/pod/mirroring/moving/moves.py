"""Leases and moves of all partitions that this pod leads."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

import structlog

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.group import CONSUMER_GROUP_STATES
from muster_coordinator.mirror.moving.at_kafka import GroupAtKafka
from muster_coordinator.mirror.moving.move import Step
from muster_coordinator.pod.mirroring.connection import UpstreamError
from muster_coordinator.pod.mirroring.followed import Followed
from muster_coordinator.pod.mirroring.moving.kafka import KafkaOfMoves
from muster_coordinator.pod.mirroring.moving.partition import Active, PartitionMoves
from muster_coordinator.pod.mirroring.writing.kafka import RefusedError
from muster_coordinator.pod.mirroring.writing.partition import UNKNOWN
from muster_coordinator.pod.mirroring.writing.writes import WriteBack
from muster_coordinator.podapi.leases import (
    FenceEntry,
    LeaseAsk,
    LeasesAnswer,
    LeasesRequest,
    PartitionLease,
    RouteEntry,
)
from muster_coordinator.podapi.moves import MoveAnswer, MoveRequest, MovesAnswer, RoutedGroup
from muster_coordinator.records.group_route import GroupRoute
from muster_coordinator.records.partitioner import partition_for
from muster_coordinator.requests.groups import DescribedGroup
from muster_coordinator.requests.moving import LeaseAnswer, LeaseRequest
from muster_coordinator.setting_fields import parse_prefixes
from muster_coordinator.settings import UpstreamSettings
from muster_coordinator.shard.ports import Clock
from muster_coordinator.tuning.pacing import POLL_S

logger = structlog.get_logger(__name__)

ANSWER_PART = 6
"""A partition whose lease is not committed within this part of a lease is left out of the answer."""
ENDED_MAX = 1_000
"""Moves that are over and still shown."""
AT_ONCE_MAX = 100
"""Moves of one pod at a time: every fence makes clients wait."""

_CAN_MOVE = ("Stable", "Empty")
"""States of classic groups. What a group of consumers is about to do is in its records, whatever its state."""


class NotLeaderError(Exception):
    """This pod does not lead the group's partition."""


class NothingMovableError(Exception):
    """No group can move here."""


class Moves:
    """`current`: the partitions that this pod leads and follows now. `partitions`: how many there are, 0 if that is not
    known."""

    def __init__(
        self,
        settings: UpstreamSettings,
        kafka: KafkaOfMoves,
        current: Callable[[], Mapping[int, Followed]],
        partitions: Callable[[], int],
        clock: Clock,
        writes: WriteBack,
    ) -> None:
        self._writes = writes
        self._lease_ms = settings.upstream_lease_ms
        self._movable = parse_prefixes(settings.upstream_movable_groups)
        self._kafka = kafka
        self._current = current
        self._partitions = partitions
        self._clock = clock
        self._by_partition: dict[int, PartitionMoves] = {}
        self._ended: deque[Active] = deque(maxlen=ENDED_MAX)
        self._fences = 0
        self._task: asyncio.Task[None] | None = None
        self._started = asyncio.Event()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        for each in self._by_partition.values():
            self._over(each.end("the pod stops"))

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def leases(self, request: LeasesRequest) -> LeasesAnswer:
        """Answers also where no group can move by this pod's settings: groups that have moved stay where their routes
        say.
        """
        waiting: dict[int, asyncio.Future[LeaseAnswer]] = {}
        for ask in request.asks:
            moves = self._of(ask.partition)
            done = moves.lease(_request_of(request.gateway, ask), request.movable) if moves is not None else None
            if done is not None:
                waiting[ask.partition] = done
        if waiting:
            await asyncio.wait(waiting.values(), timeout=self._lease_ms / ANSWER_PART / 1000)
        given = {partition: done for partition, done in waiting.items() if done.done() and not done.cancelled()}
        answers = tuple([_lease_of(partition, done.result()) for partition, done in given.items()])
        return LeasesAnswer(self._partitions(), self._lease_ms, answers, self._movable)

    async def move(self, request: MoveRequest) -> MoveAnswer:
        """Start a move, unless something stands in its way. Raises NothingMovableError, NotLeaderError."""
        self._check_movable()
        group_id = request.group
        moves = self._led(group_id)
        if group_id not in moves.active:
            obstacles = self._obstacles(moves, group_id, request.back)
            obstacles = obstacles or await self._obstacles_there(moves, group_id, request.back)
            moves = self._led(group_id)  # time has passed
            if obstacles or request.dry_run:
                return MoveAnswer(obstacles, None)
        if group_id not in moves.active:
            self._fences += 1
            moves.start(group_id, self._fences, back=request.back)
            self._started.set()
        active = moves.active[group_id]
        if active.is_back != request.back:
            return MoveAnswer((f"it is moving to {'Kafka' if active.is_back else 'Muster'} now",), None)
        return MoveAnswer((), active.status(self._clock.monotonic_ms()))

    def status(self) -> MovesAnswer:
        now_ms = self._clock.monotonic_ms()
        current = sorted(self._current().items())
        active = [each for moves in self._by_partition.values() for each in moves.active.values()]
        routes = [
            self._routed(partition, route)
            for partition, followed in current
            for route in followed.machine.routes.by_group.values()
        ]
        return MovesAnswer(tuple([each.status(now_ms) for each in (*self._ended, *active)]), tuple(routes))

    def _routed(self, partition: int, route: GroupRoute) -> RoutedGroup:
        group_id, writes = route.group_id, self._writes
        unwritten_ms = writes.unwritten_ms(partition, group_id) if route.at_muster else UNKNOWN
        problem = writes.problem_of(partition, group_id)
        return RoutedGroup(group_id, partition, route.epoch, route.at_muster, unwritten_ms, problem)

    # -- what stands in the way ----------------------------------------------------------------------------------------

    def _check_movable(self) -> None:
        if not self._movable:
            raise NothingMovableError("no group can move: muster.upstream.movable.groups is empty")

    def _obstacles(self, moves: PartitionMoves, group_id: str, back: bool) -> tuple[str, ...]:
        found = list(moves.obstacles(group_id, back=back))
        if not group_id.startswith(self._movable):
            found.insert(0, "muster.upstream.movable.groups of this pod does not name it")
        if sum(len(each.active) for each in self._by_partition.values()) >= AT_ONCE_MAX:
            found.append(f"{AT_ONCE_MAX} groups are moving at this pod: wait for some")
        return tuple(found)

    async def _obstacles_there(self, moves: PartitionMoves, group_id: str, back: bool) -> tuple[str, ...]:
        """The answer of Kafka."""
        partition = moves.followed.partition
        try:
            await self._kafka.end_of(partition)
            there = await self._kafka.group(partition, group_id)
            if back:
                await self._writes.make_ready(moves.followed)
        except (UpstreamError, RefusedError) as error:
            return (f"Kafka cannot be asked: {error}",)
        machine = moves.followed.machine
        if back:
            trouble = machine.moves.trouble_at_kafka(group_id, there, self._clock.wall_ms())
            return (trouble,) if trouble else ()
        return (*_complaints(there), *machine.moves.obstacles_there(there))

    # -- who leads what ------------------------------------------------------------------------------------------------

    def _led(self, group_id: str) -> PartitionMoves:
        """Raises NotLeaderError."""
        count = self._partitions()
        partition = partition_for(group_id, count) if count else -1
        moves = self._of(partition)
        if moves is None:
            raise NotLeaderError(f"this pod does not lead partition {partition}, which has group {group_id!r}")
        return moves

    def _of(self, partition: int) -> PartitionMoves | None:
        """Those of this leadership; made when it is first asked for, and that is when its first lease is given."""
        followed = self._current().get(partition)
        moves = self._by_partition.get(partition)
        if moves is not None and moves.followed is not followed:
            self._over(moves.end("this pod leads the partition no more"))
            del self._by_partition[partition]
            moves = None
        if moves is None and followed is not None:
            parts = followed, self._kafka, self._clock, self._lease_ms, self._writes
            moves = self._by_partition[partition] = PartitionMoves(*parts)
        return moves

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            if not any(each.active for each in self._by_partition.values()):
                self._started.clear()
                await self._started.wait()
            for partition in list(self._by_partition):
                moves = self._of(partition)
                if moves is not None:
                    self._over(moves.look())
            await asyncio.sleep(POLL_S)

    def _over(self, ended: list[Active]) -> None:
        for active in ended:
            status = active.status(self._clock.monotonic_ms())
            what = {"group": status.group, "partition": status.partition, "fenced_ms": status.fenced_ms}
            if active.move.step is Step.MOVED:
                logger.info("group_moved", to="kafka" if active.is_back else "muster", **what)
            else:
                logger.warning("move_ended", step=status.step, reason=status.reason, **what)
        self._ended.extend(ended)


def _complaints(there: GroupAtKafka) -> list[str]:
    described, fetched = there.described, there.fetched
    found = [
        f"Kafka answers {api} with {_name(code)}: the account of the mirror needs DESCRIBE on the group and its topics"
        for api, code in ((there.describing, described.error_code), ("OffsetFetch", fetched.error_code))
        if code
    ]
    for topic, partitions in fetched.topics:
        wrong = [each for each in partitions if each[4]]
        if wrong:
            found.append(f"Kafka answers OffsetFetch of {topic}-{wrong[0][0]} with {_name(wrong[0][4])}")
    states = _CAN_MOVE if isinstance(described, DescribedGroup) else CONSUMER_GROUP_STATES
    if not described.error_code and described.group_state not in states:
        found.append(f"at Kafka it is {described.group_state}: it moves when it is {' or '.join(states)}")
    return found


def _name(code: int) -> str:
    return ErrorCode(code).name if code in set(ErrorCode) else f"error code {code}"


def _request_of(gateway: str, ask: LeaseAsk) -> LeaseRequest:
    return LeaseRequest(gateway, ask.number, ask.leader_epoch, ask.drained)


def _lease_of(partition: int, answer: LeaseAnswer) -> PartitionLease:
    routes = tuple([RouteEntry(each.group_id, each.epoch, each.at_muster) for each in answer.routes])
    fences = tuple([FenceEntry(each.group_id, each.number) for each in answer.fences])
    return PartitionLease(partition, answer.number, answer.leader_epoch, answer.lease_ms, routes, fences)
