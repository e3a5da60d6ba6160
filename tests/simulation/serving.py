"""What a leader does for its clients: operations of the group coordinator, timers, answers that wait.

An answer is given when what it shows is committed and, if it carries no records of its own, confirmed by a majority.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.simulation.machine import Machine
from tests.simulation.members import LiveGroups

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.control import EndTxnMarker, encode_end_txn_marker
from muster_coordinator.requests import groups as m
from muster_coordinator.state_machine import Record, Result, SetTimer, TimerKey, Transaction

if TYPE_CHECKING:
    from tests.simulation.replica import Replica

__all__ = ["Request", "Serving"]


@dataclass(eq=False)
class Request:
    """``answer`` gets the response, or None: nobody leads here, or the connection was closed.

    ``cancelled``: the client closed its connection, nobody would see an answer.
    """

    message: Any
    answer: Callable[[Any], None]
    cancelled: bool = False


class Serving:
    """Of one leadership and, if it is elected again, of the next one: ``end`` is final."""

    def __init__(self, replica: Replica, epoch: int) -> None:
        self.replica = replica
        self.machine: Machine = replica.machine
        self.epoch = epoch
        self._parked: deque[tuple[int, int, Request, Any]] = deque()  # (log end, round, request, response)
        self._confirmed = 0
        self._timers: dict[TimerKey, int] = {}
        self._serial = 0
        self._live = LiveGroups(self, replica.partition.members, epoch)
        self._ended = False
        self._take(self.machine.coordinator.on_loaded(replica.pod.wall_ms()), None)

    def now_ms(self) -> int:
        return self.replica.pod.now_ms()

    def end(self) -> None:
        """Nothing of this leadership is shown any more."""
        self._ended = True
        self._timers.clear()
        parked, self._parked = self._parked, deque()
        for _, _, request, _ in parked:
            request.answer(None)
        for waiting in self.machine.coordinator.on_unloaded():
            waiting.answer(None)

    # -- operations ---------------------------------------------------------------------------------------------------

    def request(self, request: Request) -> None:
        message = request.message
        group_id = getattr(message, "group_id", "")
        was = self._live.before(group_id)
        result = self.machine.coordinator.operations[type(message)](message, request, self.replica.pod.wall_ms())
        self._live.heard(message, result.response)
        self._take(result, request)
        self._live.after(group_id, was, message, ())

    def _due(self, key: TimerKey, serial: int) -> None:
        if not self._ended and self._timers.get(key) == serial:
            del self._timers[key]
            self.fire(key)

    def fire(self, key: TimerKey) -> None:
        was = self._live.before(key[1])
        self._take(self.machine.coordinator.on_timer(key, self.replica.pod.wall_ms()), None)
        self._live.after(key[1], was, None, key)

    def _take(self, result: Result, request: Request | None) -> None:
        if result.transaction is not None:
            self._append_transactional(result, result.transaction)
        elif result.records:
            self.replica.append_own(list(result.records))
        answers = [(reply.token, reply.response) for reply in result.replies]
        if result.response is not None and request is not None:
            answers.insert(0, (request, result.response))
        if answers:
            has_records = bool(result.records) or result.transaction is not None
            round_ = 0 if has_records else self.replica.confirm_read()
            self._parked.extend((self.replica.log.end, round_, *answer) for answer in answers)
        for timer in result.timers:
            if isinstance(timer, SetTimer):
                self._set_timer(timer.key, timer.delay_ms)
            else:
                self._timers.pop(timer.key, None)
        self.release()

    def _append_transactional(self, result: Result, transaction: Transaction) -> None:
        producer = transaction.producer_id, transaction.producer_epoch
        if transaction.marker is None:
            self.replica.append_own(list(result.records), producer)
        else:
            marker = EndTxnMarker(transaction.marker, transaction.coordinator_epoch)
            record: Record = (*encode_end_txn_marker(marker), None)
            self.replica.append_own([record], producer, control=True)

    def _set_timer(self, key: TimerKey, delay_ms: int) -> None:
        self._serial += 1
        self._timers[key] = serial = self._serial
        pod = self.replica.pod
        pod.after(delay_ms, lambda: self._due(key, serial))

    # -- answers ------------------------------------------------------------------------------------------------------

    def confirmed(self, round_: int) -> None:
        self._confirmed = round_
        self.release()

    def release(self) -> None:
        """Answer what waits for nothing any more, in order."""
        core = self.replica.core
        if core is None or not core.is_active:
            return
        while self._parked:
            end, round_, request, response = self._parked[0]
            if end > self.replica.committed_end or round_ > self._confirmed:
                return
            self._parked.popleft()
            self._check(request.message, response)
            request.answer(response)

    def _check(self, message: Any, response: Any) -> None:
        members = self.replica.partition.members
        match message, response:
            case m.SyncGroupRequest(), m.SyncGroupResponse(error_code=ErrorCode.NONE):
                members.synced(message.group_id, message.member_id, message.generation_id)
            case ((m.SyncGroupRequest() | m.HeartbeatRequest()), _):
                self._check_turned_away(message, response.error_code)
            case m.OffsetCommitRequest(), m.OffsetCommitResponse() if message.member_id:
                for _, codes in response.topics:
                    for _, code in codes:
                        self._check_turned_away(message, code)
            case _:
                pass

    def _check_turned_away(self, message: Any, code: int) -> None:
        group = self.machine.coordinator.group(message.group_id)
        live_generation = -1 if group is None else group.generation
        self.replica.partition.members.turned_away(
            message.group_id, message.member_id, message.generation_id, self.epoch, code, live_generation
        )
