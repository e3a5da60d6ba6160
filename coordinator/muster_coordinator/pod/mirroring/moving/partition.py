"""Leases and moves of one partition, for one leadership of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass

import structlog

from muster_coordinator.errors import ErrorCode
from muster_coordinator.mirror.moving.back import DecideBackRequest, DecideBackResponse, WayBack
from muster_coordinator.mirror.moving.deciding import (
    BeginSessionsRequest,
    BeginSessionsResponse,
    DecideRequest,
    DecideResponse,
)
from muster_coordinator.mirror.moving.leases import Leases
from muster_coordinator.mirror.moving.move import Move, Step, Task
from muster_coordinator.pod.mirroring.connection import UpstreamError
from muster_coordinator.pod.mirroring.followed import Followed
from muster_coordinator.pod.mirroring.moving.kafka import KafkaOfMoves
from muster_coordinator.pod.mirroring.writing.kafka import RefusedError
from muster_coordinator.pod.mirroring.writing.writes import WriteBack
from muster_coordinator.podapi.moves import MoveStatus
from muster_coordinator.requests.moving import LeaseAnswer, LeaseRequest, Route
from muster_coordinator.shard.ports import Clock
from muster_coordinator.shard.shard import Shard
from muster_coordinator.states import ShardState

logger = structlog.get_logger(__name__)

WAIT_LEASES = 20
"""A move waits for the mirror, and for leases that an earlier leader gave, as long as so many leases last."""
FENCE_LEASES = 2
"""A fence stands as long as so many leases last, at most: it may have to wait for the end of one."""
OVER = (Step.MOVED, Step.GIVEN_UP)


@dataclass
class Active:
    """A move, and since when its fence stands, and when it fell (monotonic ms)."""

    group_id: str
    partition: int
    move: Move
    fenced_at_ms: int = -1
    free_at_ms: int = -1

    def look_at_fence(self, now_ms: int) -> None:
        if self.fenced_at_ms < 0 and self.move.fence is not None:
            self.fenced_at_ms = now_ms
        if self.fenced_at_ms >= 0 and self.free_at_ms < 0 and self.move.fence is None:
            self.free_at_ms = now_ms

    def status(self, now_ms: int) -> MoveStatus:
        until_ms = self.free_at_ms if self.free_at_ms >= 0 else now_ms
        fenced_ms = until_ms - self.fenced_at_ms if self.fenced_at_ms >= 0 else 0
        move = self.move
        return MoveStatus(self.group_id, self.partition, move.step.value, move.reason, fenced_ms, self.is_back)

    @property
    def is_back(self) -> bool:
        return isinstance(self.move, WayBack)


class PartitionMoves:
    """`followed`: of one leadership. It has given no lease before this object is made."""

    def __init__(self, followed: Followed, kafka: KafkaOfMoves, clock: Clock, lease_ms: int, writes: WriteBack) -> None:
        self.followed = followed
        self.active: dict[str, Active] = {}
        self._kafka = kafka
        self._writes = writes
        self._clock = clock
        self._lease_ms = lease_ms
        self._leases = Leases(followed.epoch, lease_ms, clock.monotonic_ms())
        self._movable: dict[str, tuple[str, ...]] = {}
        self._unanswered: set[str] = set()  # gateways whose last lease is not committed yet
        self._tasks: set[asyncio.Task[None]] = set()

    # -- leases --------------------------------------------------------------------------------------------------------

    def lease(self, request: LeaseRequest, movable: tuple[str, ...]) -> asyncio.Future[LeaseAnswer] | None:
        """The answer to the gateway, done when all that was appended before is committed, and cancelled if this
        leadership ends before. None: the gateway's last request is not answered yet, or the shard cannot append."""
        shard = self.followed.shard
        if request.gateway in self._unanswered or not shard.can_append:
            return None
        now_ms = self._clock.monotonic_ms()
        self._leases.asked(request, now_ms)
        self._movable[request.gateway] = movable
        fences = tuple([fence for each in self.active.values() if (fence := each.move.fence) is not None])
        by_group = self.followed.machine.routes.by_group
        routes = tuple([Route(each.group_id, each.epoch, each.at_muster) for each in by_group.values()])
        answer = LeaseAnswer(request.number, self.followed.epoch, self._lease_ms, routes, fences)
        waiting = _Lease(request.gateway, self._unanswered)
        self._unanswered.add(request.gateway)
        shard.answer_when_committed(waiting, answer)
        return waiting.done

    # -- moves ---------------------------------------------------------------------------------------------------------

    def obstacles(self, group_id: str, *, back: bool) -> Iterator[str]:
        """The obstacles to a move, as far as they are known here."""
        machine = self.followed.machine
        yield from machine.moves.obstacles_back(group_id) if back else machine.moves.obstacles(group_id)
        gateways = self._leases.gateways(self._clock.monotonic_ms())
        if not gateways and not back:
            yield (
                "no gateway asks this pod for leases: clients of the group have to come by gateways whose "
                "muster.movable.groups name it, and which reach this pod's API"
            )
        wrong = self._gateways_without(group_id, gateways)
        if wrong:
            yield wrong

    def start(self, group_id: str, number: int, *, back: bool) -> Active:
        """`number`: one that no fence of this pod had before."""
        sessions_ms = self.followed.machine.groups.handover.session_timeouts_ms(group_id) or ()
        # Kafka's sessions go on behind the fence.
        fence_ms = min([FENCE_LEASES * self._lease_ms, *(each // 2 for each in sessions_ms)])
        now_ms = self._clock.monotonic_ms()
        kind = WayBack if back else Move
        move = kind(group_id, number, WAIT_LEASES * self._lease_ms, fence_ms, now_ms)
        active = self.active[group_id] = Active(group_id, self.followed.partition, move)
        if back:
            self._writes.hold(self.followed, group_id)
        logger.info("move_started", group=group_id, partition=self.followed.partition, back=back)
        return active

    def look(self) -> list[Active]:
        """Take the steps that can be taken. Returns the moves that are over, which are forgotten here."""
        now_ms = self._clock.monotonic_ms()
        over: list[Active] = []
        for active in list(self.active.values()):
            self._look(active, now_ms)
            active.look_at_fence(now_ms)
            if active.move.step in OVER:
                del self.active[active.group_id]
                over.append(active)
                self._release(active)
        return over

    def end(self, reason: str) -> list[Active]:
        """This leadership is over, or the pod stops. Moves that were being decided stay as they are: the log knows."""
        for task in self._tasks:
            task.cancel()
        ended, self.active = list(self.active.values()), {}
        for active in ended:
            active.move.give_up(reason)
            active.look_at_fence(self._clock.monotonic_ms())
            self._release(active)
        return ended

    def _release(self, active: Active) -> None:
        if active.is_back:
            self._writes.release(self.followed, active.group_id)

    def _look(self, active: Active, now_ms: int) -> None:
        followed, move = self.followed, active.move
        wrong = self._gateways_without(active.group_id, self._leases.gateways(now_ms))
        if wrong:
            move.give_up(wrong)
        # The route comes behind the position in the log, so it is committed only if the position is.
        position = followed.position
        complete = position.complete and not position.clearing
        has_pending = followed.machine.groups.has_pending(active.group_id)
        self._do(active, move.look(self._leases, followed.certain_offset, complete, has_pending, now_ms))

    def _do(self, active: Active, task: Task | None) -> None:
        if task is Task.READ_END:
            self._run(active, self._read_end(active))
        elif task is Task.WRITE:
            self._run(active, self._write(active))
        elif task is Task.COMPARE:
            self._run(active, self._compare(active))

    def _gateways_without(self, group_id: str, gateways: Sequence[str]) -> str:
        self._movable = {gateway: self._movable[gateway] for gateway in gateways}
        for gateway, prefixes in self._movable.items():
            if not group_id.startswith(prefixes):
                return f"gateway {gateway} does not have the group in muster.movable.groups"
        return ""

    def _run(self, active: Active, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._guarded(active, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, active: Active, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except (UpstreamError, RefusedError) as error:
            active.move.give_up(str(error))
        except Exception as error:
            logger.exception("move_failed", group=active.group_id)
            active.move.give_up(f"{type(error).__name__}: {error}")

    async def _read_end(self, active: Active) -> None:
        active.move.end_read(await self._kafka.end_of(self.followed.partition))

    async def _write(self, active: Active) -> None:
        assert isinstance(active.move, WayBack)
        await self._writes.write_now(self.followed, active.group_id)
        self._do(active, active.move.written())

    async def _compare(self, active: Active) -> None:
        there = await self._kafka.group(self.followed.partition, active.group_id)
        kind = DecideBackRequest if isinstance(active.move, WayBack) else DecideRequest
        request = kind(active.group_id, active.move, there)  # type: ignore[arg-type]
        self.followed.shard.submit(request, _Decision(self.followed.shard, active, self._do))


class _Lease:
    """`shard.ports.Answer` of a lease."""

    def __init__(self, gateway: str, unanswered: set[str]) -> None:
        self._gateway = gateway
        self._unanswered = unanswered
        self.done: asyncio.Future[LeaseAnswer] = asyncio.get_running_loop().create_future()

    def answer(self, response: LeaseAnswer) -> None:
        self._unanswered.discard(self._gateway)
        if not self.done.done():  # else the caller has given up
            self.done.set_result(response)

    def refuse(self, _code: ErrorCode) -> None:
        self._unanswered.discard(self._gateway)
        self.done.cancel()


class _Decision:
    """`shard.ports.Answer` of what is asked of the shard about one move: first that it decides, then that sessions
    begin. With the answer the route is committed; a refusal may mean that this takes long."""

    def __init__(self, shard: Shard, active: Active, do: Callable[[Active, Task], None]) -> None:
        self._shard = shard
        self._do = do
        self._active = active

    def answer(self, response: DecideResponse | DecideBackResponse | BeginSessionsResponse) -> None:
        move, group_id = self._active.move, self._active.group_id
        if isinstance(response, BeginSessionsResponse):
            if response.at_muster != self._active.is_back:
                move.decided()
        elif isinstance(response, DecideBackResponse):
            if response.write_again:
                self._do(self._active, Task.WRITE)
            elif response.reason:
                move.give_up(response.reason)
            else:
                move.decided()
        elif response.reason:
            move.give_up(response.reason)
        else:
            move.decided()
            self._shard.submit(BeginSessionsRequest(group_id), self)

    def refuse(self, code: ErrorCode) -> None:
        move = self._active.move
        if move.give_up(f"this pod could not append: {code.name}") or move.step is Step.GIVEN_UP:
            return
        if self._shard.state is ShardState.ACTIVE:
            self._shard.submit(BeginSessionsRequest(self._active.group_id), self)
