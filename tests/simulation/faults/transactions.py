"""What the two coordinators do for transactions, and what is between them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace
from tests.simulation.faults.fault import Fault

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups import coordinator as groups_module
from muster_coordinator.groups.offset_store import OffsetStore
from muster_coordinator.listener.answer_queue import AnswerQueue
from muster_coordinator.listener.handlers import txn_offsets as txn_offsets_module
from muster_coordinator.pod.marker_writer import MarkerWriter, PartitionMarkers
from muster_coordinator.requests import groups as m
from muster_coordinator.requests import transactions as t
from muster_coordinator.shard.ports import Answer
from muster_coordinator.state_machine import Result, Token, Transaction
from muster_coordinator.transactions import coordinator as coordinator_module
from muster_coordinator.transactions import init_producer_id as init_module
from muster_coordinator.transactions import markers as markers_module
from muster_coordinator.transactions import snapshot as snapshot_module
from muster_coordinator.transactions.coordinator import TransactionCoordinator
from muster_coordinator.transactions.producer_ids import BLOCK_SIZE, ProducerIds

__all__ = ["TRANSACTION_FAULTS"]

# -- connections ------------------------------------------------------------------------------------------------------


def _as_they_come(self: AnswerQueue, exchange: Any, frame: bytes) -> None:
    if exchange in self.pending:
        self.pending.remove(exchange)
        self.pending.appendleft(exchange)
    _complete(self, exchange, frame)


_complete = AnswerQueue.complete


# -- producers --------------------------------------------------------------------------------------------------------


def _last_block_again(self: Any) -> None:
    self._next = max(self._first, self.reserved_to - BLOCK_SIZE)


_initialised = init_module.initialised


def _same_epoch(value: Any, producer_id: int, epoch: int, timeout_ms: int, now_ms: int) -> Any:
    return _initialised(value, producer_id, min(epoch, value.producer_epoch), timeout_ms, now_ms)


_snapshot_parts = snapshot_module.snapshot_parts


def _without_block(state: Any, size: int) -> Iterator[bytes]:
    parts = _snapshot_parts(state, size)
    next(parts)
    yield from parts


# -- decisions --------------------------------------------------------------------------------------------------------

_handlers = coordinator_module._HANDLERS


def _end_at_once(state: Any, request: Any, token: Any, now_ms: int) -> Result:
    result = _handlers[t.EndTxnRequest](state, request, token, now_ms)
    token.answer(result.response)
    return Result(result.records, timers=result.timers)


class _Ignored:
    """`shard.ports.Answer`."""

    def answer(self, response: object) -> None:
        pass

    def refuse(self, code: ErrorCode) -> None:
        pass


def _attempt_at_once(self: Any, request: Any) -> Answer:
    asyncio.get_running_loop().call_soon(self._writer.write, self._number, request)
    return _Ignored()


_on_markers_written = markers_module.on_markers_written


def _any_answer_counts(state: Any, event: t.MarkersWritten, now_ms: int) -> Result:
    topics = tuple((topic, tuple((index, 0) for index, _ in codes)) for topic, codes in event.topics)
    return _on_markers_written(state, replace(event, topics=topics), now_ms)


# -- markers and offsets ----------------------------------------------------------------------------------------------

_write_one = MarkerWriter._write_one
AGAIN_S = 0.3


def _written_twice(self: Any, shard: Any, request: Any, partition: int, resolved: Any) -> None:
    _write_one(self, shard, request, partition, resolved)
    again = (self, shard, request, partition, lambda code: None)
    asyncio.get_running_loop().call_later(AGAIN_S, _write_one, *again)


_write_marker = groups_module._HANDLERS[m.WriteTxnMarkerRequest]


def _of_any_epoch(state: Any, request: m.WriteTxnMarkerRequest, token: Token, now_ms: int) -> Result:
    return _accepted(request)


def _of_any_coordinator(state: Any, request: m.WriteTxnMarkerRequest, token: Token, now_ms: int) -> Result:
    result = _write_marker(state, request, token, now_ms)
    assert isinstance(result.response, m.WriteTxnMarkerResponse)
    fenced = result.response.error_code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    return _accepted(request) if fenced else result


def _accepted(request: m.WriteTxnMarkerRequest) -> Result:
    marker = Transaction(request.producer_id, request.producer_epoch, request.committed, request.coordinator_epoch)
    return Result(response=m.WriteTxnMarkerResponse(ErrorCode.NONE), transaction=marker)


def _groups_with(handler: Any) -> dict[type, Any]:
    return {**groups_module._HANDLERS, m.WriteTxnMarkerRequest: handler}


TRANSACTION_FAULTS = {
    "block of producer ids is handed out twice": Fault(10, ProducerIds, "lead", _last_block_again),
    "checkpoint forgets the block of producer ids": Fault(60, coordinator_module, "snapshot_parts", _without_block),
    "second instance of a producer gets the epoch of the first": Fault(10, init_module, "initialised", _same_epoch),
    "end of a transaction is answered before it is committed": Fault(
        10, coordinator_module, "_HANDLERS", {**_handlers, t.EndTxnRequest: _end_at_once}
    ),
    "time-out of a transaction does not fence its producer": Fault(60, markers_module, "EPOCH_BUMP_VERSION", 0),
    "transactions without all markers are forgotten at a load": Fault(
        10, TransactionCoordinator, "_start_slice", lambda self, now_ms: []
    ),
    "markers leave before the decision is committed": Fault(10, PartitionMarkers, "attempt", _attempt_at_once),
    "transaction is complete whatever its partitions answer": Fault(
        10, coordinator_module, "on_markers_written", _any_answer_counts
    ),
    "marker is written again": Fault(10, MarkerWriter, "_write_one", _written_twice),
    "marker of an old epoch is taken": Fault(200, groups_module, "_HANDLERS", _groups_with(_of_any_epoch)),
    "marker of a coordinator that was followed is taken": Fault(
        600, groups_module, "_HANDLERS", _groups_with(_of_any_coordinator)
    ),
    "late commit becomes part of the next transaction": Fault(
        60, txn_offsets_module, "replace", lambda request, asked_at: request
    ),
    "answers leave as they come": Fault(60, AnswerQueue, "complete", _as_they_come),
    "stable fetch does not look at open transactions": Fault(
        10, OffsetStore, "has_pending", lambda self, group_id, topic, partition: False
    ),
}
