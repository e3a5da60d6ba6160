"""The surroundings of a shard under test: a state machine, a log, a pod and a clock that the test controls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.batch import count_of
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.shard.replayed import ReplayedState
from muster_coordinator.shard.shard import Shard
from muster_coordinator.state_machine import CancelTimer, Reply, Result, SetTimer
from muster_coordinator.states import ShardState


class Write(msgspec.Struct, frozen=True):
    """A request that appends one record per text."""

    texts: tuple[str, ...]


class WriteRun(msgspec.Struct, frozen=True):
    """A request that appends a run of as many records."""

    count: int


class Run(msgspec.Struct, frozen=True):
    """Implements `records.batch.RecordRun`."""

    count: int

    @property
    def bytes_max(self) -> int:
        return self.count

    def encode(self, first_delta: int) -> bytes:
        raise AssertionError("this log keeps what it is given")


class Read(msgspec.Struct, frozen=True):
    """A request that shows the state."""


class Park(msgspec.Struct, frozen=True):
    """A request that waits for a later operation, as a join does."""


class Release(msgspec.Struct, frozen=True):
    """Answers what was parked."""


class Break(msgspec.Struct, frozen=True):
    """A request whose handler has a defect."""


class Poison(msgspec.Struct, frozen=True):
    """A request whose record cannot be replayed."""


class Timer(msgspec.Struct, frozen=True):
    """Sets (delay) or cancels (-1) a timer."""

    delay_ms: int


class FakeMachine:
    """A state machine whose state is a list of texts."""

    max_batch_bytes = 1_000
    snapshot_version = 1

    def __init__(self) -> None:
        self.state: list[str] = []
        self.parked: list[Any] = []
        self.fired: list[Any] = []
        self.loaded = 0
        self.operations: dict[type, Callable[[Any, Any, int], Result]] = {
            Write: self._write,
            WriteRun: lambda r, t, now: Result(records=[Run(r.count)], response="written"),
            Read: lambda r, t, now: Result(response=("read", tuple(self.state))),
            Park: self._park,
            Release: self._release,
            Break: self._break,
            Poison: lambda r, t, now: Result(records=[(b"k", b"v", "poison")], response="never"),
            Timer: self._timer,
        }

    def _write(self, request: Write, token: Any, now_ms: int) -> Result:
        return Result(records=[(b"k", text.encode(), text) for text in request.texts], response="written")

    def _park(self, request: Park, token: Any, now_ms: int) -> Result:
        self.parked.append(token)
        return Result()

    def _release(self, request: Release, token: Any, now_ms: int) -> Result:
        waiting, self.parked = self.parked, []
        return Result(response="released", replies=[Reply(t, "at last") for t in waiting])

    def _break(self, request: Break, token: Any, now_ms: int) -> Result:
        raise KeyError("a defect")

    def _timer(self, request: Timer, token: Any, now_ms: int) -> Result:
        timer = SetTimer(("t", "", ""), request.delay_ms) if request.delay_ms >= 0 else CancelTimer(("t", "", ""))
        return Result(response="ok", timers=[timer])

    def refuse(self, request: Any) -> Any:
        return "broken in itself" if isinstance(request, Break) else None

    @property
    def key_count(self) -> int:
        return len(self.state)

    def open_transactions(self, names: int) -> tuple[int, tuple[str, ...]]:
        return 0, ()

    @property
    def event_counts(self) -> dict[str, int]:
        return {"writes": len(self.state)}

    @property
    def gauges(self) -> dict[tuple[str, str], int]:
        return {}

    def on_event(self, event: Any, now_ms: int) -> Result:
        """Removes `event`, a text, if the state has it."""
        return Result(records=[(b"k", None, f"-{text}") for text in self.state if text == event])

    def on_timer(self, key: Any, now_ms: int) -> Result:
        self.fired.append(key)
        return Result()

    def replay(self, change: Any, offset: int, timestamp_ms: int, *producer: int) -> None:
        if change == "poison":
            raise ValueError("cannot be replayed")
        self.state.append(f"{change.count} at {offset}" if isinstance(change, Run) else change)

    def on_loaded(self, now_ms: int) -> Result:
        self.loaded += 1
        return Result()

    def on_unloaded(self) -> tuple[Any, ...]:
        waiting, self.parked = self.parked, []
        return tuple(waiting)

    def new_decoder(self) -> Any:
        raise AssertionError("these tests load no log")

    def replay_transaction_marker(self, *marker: Any) -> None:
        raise AssertionError("these tests have no transactions")

    def snapshot(self, size: int) -> Iterator[bytes]:
        raise AssertionError("these tests take no snapshot")

    def check(self, part: bytes) -> None:
        raise AssertionError("these tests take no snapshot")

    def restore(self, part: bytes) -> None:
        raise AssertionError("these tests take no snapshot")


class FakeWriter:
    """A log in memory. `read_round`: what reads must wait for."""

    def __init__(self) -> None:
        self.end_offset = 0
        self.batches: list[list[Any]] = []
        self.error: Exception | None = None
        self.read_round = 0

    def append(self, records: list[Any], epoch: int, now_ms: int, *rest: Any, **options: Any) -> None:
        if self.error is not None:
            raise self.error
        self.batches.append(records)
        self.end_offset += count_of(records)

    def append_imported(self, batch: Any, epoch: int) -> None:
        raise AssertionError("these tests import no batches")

    def confirm_read(self) -> int:
        return self.read_round


class FakePod:
    """Scheduler, events and clock of a shard."""

    def __init__(self) -> None:
        self.dirty: list[Shard] = []
        self.now_ms = 1000
        self.states: list[ShardState] = []
        self.storage_errors: list[Exception] = []

    def drain_soon(self, shard: Shard) -> None:
        self.dirty.append(shard)

    def arm_timer(self, shard: Shard, deadline_ms: int) -> None:
        pass

    def disarm(self, shard: Shard) -> None:
        pass

    def state_changed(self, shard: Shard) -> None:
        self.states.append(shard.state)

    def storage_failed(self, error: Exception) -> None:
        self.storage_errors.append(error)

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def monotonic_s(self) -> float:
        return self.now_ms / 1000

    def turn(self) -> None:
        dirty, self.dirty = self.dirty, []
        for shard in dirty:
            shard.drain(self.now_ms, self.now_ms)


class Asked:
    """One request's answer."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def answer(self, response: Any) -> None:
        self.got.append(response)

    def refuse(self, code: ErrorCode) -> None:
        self.got.append(code)


class World:
    def __init__(self, machine: Any = None) -> None:
        self.pod = FakePod()
        self.writer = FakeWriter()
        self.machine = FakeMachine() if machine is None else machine
        self.replayed = ReplayedState(self.machine)
        self.metrics = ShardMetrics()
        self.shard = Shard(
            3,
            self.replayed,
            self.writer,
            epoch=4,
            scheduler=self.pod,
            events=self.pod,
            clock=self.pod,
            metrics=self.metrics,
            commit_timeout_ms=500,
        )

    def activate(self) -> None:
        self.shard.start_loading()
        self.open_epoch(4)
        self.commit()
        self.shard.activate()
        assert self.shard.state is ShardState.ACTIVE

    def open_epoch(self, epoch: int) -> None:
        self.writer.append([("leader-change", epoch)], epoch, self.pod.now_ms)
        self.shard.open_epoch(epoch)

    def ask(self, request: Any) -> Asked:
        asked = Asked()
        self.shard.submit(request, asked)
        return asked

    def turn(self) -> None:
        self.pod.turn()

    def commit(self, end_offset: int | None = None) -> None:
        self.shard.parked.committed(self.writer.end_offset if end_offset is None else end_offset)
