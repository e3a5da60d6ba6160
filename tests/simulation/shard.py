"""The shard of a simulated leader: the real one, over a writer, a scheduler and a clock of the simulation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.members import LiveGroups

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.batch import RecordBatch
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.shard.ports import NO_PRODUCER
from muster_coordinator.shard.replayed import ReplayedState
from muster_coordinator.shard.shard import Shard
from muster_coordinator.state_machine import Operation, Record, Result, TimerKey, Token
from muster_coordinator.states import ShardState

if TYPE_CHECKING:
    from tests.simulation.replica import Replica

__all__ = ["Request", "SimulatedShard"]

COMMIT_TIMEOUT_MS = 10**9
"""Clients give up long before."""


@dataclass(eq=False)
class Request:
    """`answer` gets the response, or None: no leader is here, or the connection was closed.

    `cancelled`: the client closed its connection and would not see an answer.
    """

    message: Any
    answer: Callable[[Any], None]
    cancelled: bool = False


class SimulatedShard:
    """Implements the ports of a shard: PartitionWriter, Scheduler, ShardEvents and Clock. It ends with the leadership,
    unless this very replica is elected again."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._pod = replica.pod
        self._epoch = -1
        self.coordinator = replica.machine.coordinator
        self._live = LiveGroups(self, replica.partition.members)
        self._groups = _WatchedGroups(self, self._live)
        self._is_dirty = False
        self._armed: int | None = None  # when the timers fire
        self._shard = Shard(
            replica.partition.index,
            ReplayedState(self._groups),
            self,
            epoch=self._epoch,
            scheduler=self,
            events=self,
            clock=self,
            metrics=ShardMetrics(),
            commit_timeout_ms=COMMIT_TIMEOUT_MS,
        )
        self._shard.start_loading()

    # -- called by the replica ----------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        return self._shard.state is ShardState.ACTIVE

    def hold(self) -> None:
        self._shard.hold()

    def open_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        self._live.lead(epoch)
        self._shard.open_epoch(epoch)

    def activate(self) -> None:
        self._shard.activate()

    def submit(self, request: Request) -> None:
        self._shard.submit(request.message, _Answer(self, request))

    def fire(self, key: TimerKey) -> None:
        self._shard._queue_internal(lambda now_ms: self._groups.on_timer(key, now_ms))

    def end_turn(self) -> None:
        """Run what has come. Raises Crash."""
        if self._is_dirty:
            self._is_dirty = False
            self._shard.drain(self.wall_ms(), self.monotonic_ms())
            self._groups.settle()

    def committed(self, end_offset: int) -> None:
        self._shard.parked.committed(end_offset)

    def reads_confirmed(self, round_: int) -> None:
        self._shard.parked.reads_confirmed(round_)

    def end(self) -> None:
        self._shard.close("the leadership ended")

    # -- PartitionWriter ----------------------------------------------------------------------------------------------

    @property
    def end_offset(self) -> int:
        return self._replica.log.end

    def append(
        self,
        records: list[Record],
        epoch: int,
        now_ms: int,
        producer: tuple[int, int] = NO_PRODUCER,
        *,
        control: bool = False,
    ) -> None:
        self._replica.append_own(records, now_ms, producer, control=control)

    def append_imported(self, batch: RecordBatch, epoch: int) -> None:
        raise AssertionError("no partition is re-sharded here")

    def confirm_read(self) -> int:
        return self._replica.confirm_read()

    # -- Scheduler ----------------------------------------------------------------------------------------------------

    def drain_soon(self, shard: object) -> None:
        self._is_dirty = True
        self._replica.turn_soon()

    def arm_timer(self, shard: object, deadline_ms: int) -> None:
        if self._armed is None or deadline_ms < self._armed:
            self._armed = deadline_ms
            self._pod.after(max(deadline_ms - self.monotonic_ms(), 0), lambda: self._fire(deadline_ms))

    def disarm(self, shard: object) -> None:
        self._armed = None

    def _fire(self, deadline_ms: int) -> None:
        if self._armed == deadline_ms:
            self._armed = None
            self._shard.fire_timers()

    # -- ShardEvents --------------------------------------------------------------------------------------------------

    def state_changed(self, shard: Shard) -> None:
        """A shard that fails here has a defect, or its pod crashes: pass on what the shard has caught."""
        if shard.state is ShardState.FAILED:
            error = sys.exc_info()[1]
            assert error is not None, shard.message
            raise error

    def storage_failed(self, error: Exception) -> None:
        raise error

    # -- Clock --------------------------------------------------------------------------------------------------------

    def wall_ms(self) -> int:
        return self._pod.wall_ms()

    def monotonic_ms(self) -> int:
        return self._pod.now_ms()

    def monotonic_s(self) -> float:
        return self._pod.now_ms() / 1000

    # -- answers ------------------------------------------------------------------------------------------------------

    def answer(self, request: Request, response: Any) -> None:
        self._check(request.message, response)
        request.answer(response)

    def _check(self, message: Any, response: Any) -> None:
        group = self.coordinator.group(getattr(message, "group_id", ""))
        live_generation = -1 if group is None else group.generation
        self._replica.partition.members.answered(message, response, self._epoch, live_generation)


class _Answer:
    """Implements `shard.ports.Answer`."""

    def __init__(self, shard: SimulatedShard, request: Request) -> None:
        self._shard = shard
        self.request = request

    def answer(self, response: Any) -> None:
        self._shard.answer(self.request, response)

    def refuse(self, code: ErrorCode) -> None:
        error = sys.exc_info()[1]
        if code is ErrorCode.UNKNOWN_SERVER_ERROR and error is not None:  # the operation has a defect
            raise error
        self.request.answer(None)


class _WatchedGroups:
    """The coordinator of the leader, whose operations and timers `live` judges. What they did to members is known once
    their records are replayed: before the next of them, or at the end of the turn."""

    def __init__(self, shard: SimulatedShard, live: LiveGroups) -> None:
        self._coordinator = shard.coordinator
        self._live = live
        self._pending: Callable[[], None] | None = None
        self.operations: Mapping[type, Operation] = {
            request: partial(self._operate, operation) for request, operation in self._coordinator.operations.items()
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coordinator, name)

    def settle(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending()

    def _operate(self, operation: Operation, request: Any, token: Token, now_ms: int) -> Result:
        self.settle()
        group_id = getattr(request, "group_id", "")
        was = self._live.before(group_id)
        result = operation(request, token, now_ms)
        self._live.heard(request, result.response)
        self._pending = partial(self._live.after, group_id, was, request, ())
        return result

    def on_timer(self, key: TimerKey, now_ms: int) -> Result:
        self.settle()
        was = self._live.before(key[1])
        result = self._coordinator.on_timer(key, now_ms)
        self._pending = partial(self._live.after, key[1], was, None, key)
        return result
