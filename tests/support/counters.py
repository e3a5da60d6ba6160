"""A second coordinator: it counts. It shares no request, no record and no line of code with the group coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from muster_coordinator.records.errors import RecordDecodeError
from muster_coordinator.records.structs import UnknownRecord
from muster_coordinator.state_machine import (
    CancelTimer,
    Decoder,
    Operation,
    Record,
    Reply,
    Result,
    SetTimer,
    TimerKey,
    Token,
)

__all__ = ["UNKNOWN_RECORD", "Add", "CounterCoordinator", "Get", "Invalid", "WaitFor"]

LIFE_MS = 60_000
"""A counter that is not added to for this time is removed."""
UNKNOWN_RECORD: Record = (b"?later", b"", None)
"""A record of a version that is newer than this one."""


class Add(msgspec.Struct, frozen=True):
    """Answered with the sum, or refused if `name` is not a name."""

    name: str
    amount: int
    life_ms: int = LIFE_MS


class Get(msgspec.Struct, frozen=True):
    """Answered with the sum."""

    name: str


class WaitFor(msgspec.Struct, frozen=True):
    """Answered with the sum when that is at least `least`."""

    name: str
    least: int


class Invalid(msgspec.Struct, frozen=True):
    """The refusal of an empty name."""


class Change(msgspec.Struct, frozen=True):
    """`total`: None removes the counter."""

    name: str
    total: int | None


def decode(key: bytes | None, value: bytes | None) -> Any:
    if key is None:
        raise RecordDecodeError("record without a key")
    if key.startswith(b"?"):
        return UnknownRecord(99, "later")
    return Change(key.decode(), None if value is None else int(value))


class CounterCoordinator:
    """Implements `state_machine.StateMachine`."""

    max_batch_bytes = 1_000
    snapshot_version = 7

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.offsets: list[int] = []  # of all records that were replayed
        self.markers: list[bool] = []
        self.leads = False
        self._waiting: list[tuple[WaitFor, Token]] = []
        self.event_counts: Mapping[str, int] = {"additions": 0}
        self.gauges: Mapping[tuple[str, str], int] = {}
        self.operations: Mapping[type, Operation] = {
            request: partial(handler, self) for request, handler in _HANDLERS.items()
        }

    @property
    def key_count(self) -> int:
        return len(self.totals)

    def open_transactions(self, names: int) -> tuple[int, tuple[str, ...]]:
        return 0, ()

    def refuse(self, request: object) -> object | None:
        return Invalid() if isinstance(request, Add) and not request.name else None

    def _add(self, request: Add, token: Token, now_ms: int) -> Result:
        total = self.totals.get(request.name, 0) + request.amount
        due = [pair for pair in self._waiting if pair[0].name == request.name and total >= pair[0].least]
        self._waiting = [pair for pair in self._waiting if pair not in due]
        self.event_counts = {"additions": self.event_counts["additions"] + 1}
        return Result(
            [_record(request.name, total)],
            total,
            [Reply(token, total) for _, token in due],
            [SetTimer(("remove", request.name), request.life_ms)],
        )

    def _get(self, request: Get, token: Token, now_ms: int) -> Result:
        return Result(response=self.totals.get(request.name, 0))

    def _wait(self, request: WaitFor, token: Token, now_ms: int) -> Result:
        total = self.totals.get(request.name, 0)
        if total >= request.least:
            return Result(response=total)
        self._waiting.append((request, token))
        return Result()

    def new_decoder(self) -> Decoder:
        return decode

    def replay(self, change: Change, offset: int, timestamp_ms: int, *producer: int) -> None:
        self.offsets.append(offset)
        if change.total is None:
            self.totals.pop(change.name, None)
        else:
            self.totals[change.name] = change.total

    def replay_transaction_marker(
        self, producer_id: int, producer_epoch: int, committed: bool, offset: int, coordinator_epoch: int
    ) -> None:
        self.markers.append(committed)

    def snapshot(self, size: int) -> Iterator[bytes]:
        items = iter(self.totals.items())
        while part := list(islice(items, size)):
            yield msgspec.msgpack.encode(part)

    def check(self, part: bytes) -> None:
        msgspec.msgpack.decode(part, type=list[tuple[str, int]])

    def restore(self, part: bytes) -> None:
        self.totals.update(msgspec.msgpack.decode(part, type=list[tuple[str, int]]))

    def on_loaded(self, now_ms: int) -> Result:
        self.leads = True
        return Result(timers=[SetTimer(("remove", name), LIFE_MS) for name in self.totals])

    def on_unloaded(self) -> tuple[Token, ...]:
        self.leads = False
        waiting, self._waiting = self._waiting, []
        return tuple(token for _, token in waiting)

    def on_timer(self, key: TimerKey, now_ms: int) -> Result:
        return Result([_record(key[1], None)]) if key[1] in self.totals else Result()

    def on_event(self, event: object, now_ms: int) -> Result:
        """`event`: the name of a counter that is removed."""
        assert isinstance(event, str)
        return Result([_record(event, None)], timers=[CancelTimer(("remove", event))])


def _record(name: str, total: int | None) -> Record:
    return name.encode(), None if total is None else str(total).encode(), Change(name, total)


_HANDLERS: dict[type, Callable[[CounterCoordinator, Any, Token, int], Result]] = {
    Add: CounterCoordinator._add,
    Get: CounterCoordinator._get,
    WaitFor: CounterCoordinator._wait,
}
