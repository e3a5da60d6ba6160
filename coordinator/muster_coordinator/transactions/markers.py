"""The markers of a transaction whose end is decided (Kafka: TransactionMarkerChannelManager).

An attempt to write markers leaves as a reply, which the shard sends when all records before it are committed: nobody is
told of a decision that could still be lost. A partition that has not acknowledged its marker is asked again when it is
known what became of the attempt before. So an election of this partition or of one to mark only costs time, and no
marker is on its way when the transaction is complete: a client of transaction version 1 begins the next one in the same
epoch, and a late marker would end that. Markers of an earlier leadership are refused by their coordinator epoch.
"""

from __future__ import annotations

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.transaction_log import Partitions, TransactionLogValue, TransactionStatus
from muster_coordinator.requests.transactions import MarkersToWrite, MarkersWritten
from muster_coordinator.state_machine import NOTHING, CancelTimer, Reply, Result, SetTimer
from muster_coordinator.transactions.end_txn import end_transaction
from muster_coordinator.transactions.states import PREPARED, TransactionEvent
from muster_coordinator.transactions.tables import (
    TransactionTables,
    Unmarked,
    transaction_record,
    transaction_timer,
)
from muster_coordinator.transactions.transitions import EPOCH_BUMP_VERSION, completed


def on_transaction_timer(state: TransactionTables, transactional_id: str, now_ms: int) -> Result:
    """The time of a transaction is over, or its markers are to be written."""
    stored = state.ids.get(transactional_id)
    if stored is None:
        return NOTHING
    offset, value = stored
    if value.status is TransactionStatus.ONGOING:
        return _time_out(state, transactional_id, value, now_ms)
    if value.status in PREPARED:
        return _write_markers(state, transactional_id, offset, value)
    return NOTHING


def _time_out(state: TransactionTables, transactional_id: str, value: TransactionLogValue, now_ms: int) -> Result:
    """Abort in a higher epoch: the producer is fenced (TransactionCoordinator#abortTimedOutTransactions)."""
    ended = end_transaction(state, transactional_id, value, TransactionEvent.ABORT, EPOCH_BUMP_VERSION, now_ms)
    if ended.code is not ErrorCode.NONE:
        return Result(timers=(SetTimer(transaction_timer(transactional_id), state.config.marker_retry_ms),))
    state.counters.timed_out += 1
    return Result(ended.records, timers=ended.timers)


def _write_markers(state: TransactionTables, transactional_id: str, offset: int, value: TransactionLogValue) -> Result:
    unmarked = state.unmarked.get(transactional_id)
    if unmarked is None:
        unmarked = state.unmarked[transactional_id] = Unmarked(value)
    partitions = unmarked.missing - unmarked.asked
    if not partitions:
        return NOTHING
    unmarked.asked |= partitions
    request = MarkersToWrite(
        transactional_id,
        offset,
        value.producer_id,
        value.producer_epoch,
        value.status is TransactionStatus.PREPARE_COMMIT,
        value.client_version,
        _grouped(partitions),
    )
    return Result(replies=(Reply(state.marker_writer.attempt(request), request),))


def on_markers_written(state: TransactionTables, event: MarkersWritten, now_ms: int) -> Result:
    """Partitions have their marker, or say why not. The last one completes the transaction."""
    transactional_id = event.transactional_id
    stored, unmarked = state.ids.get(transactional_id), state.unmarked.get(transactional_id)
    if stored is None or unmarked is None or stored[0] != event.prepared_at:
        return NOTHING
    timer = transaction_timer(transactional_id)
    for topic, codes in event.topics:
        for partition, code in codes:
            unmarked.asked.discard((topic, partition))
            if code == ErrorCode.NONE:
                unmarked.missing.discard((topic, partition))
            else:
                state.counters.refused_markers += 1
    if not unmarked.missing:
        del state.unmarked[transactional_id]
        record = transaction_record(transactional_id, completed(stored[1], now_ms))
        return Result((record,), timers=(CancelTimer(timer),))
    if unmarked.missing - unmarked.asked:
        return Result(timers=(SetTimer(timer, state.config.marker_retry_ms),))
    return NOTHING


def _grouped(partitions: set[tuple[str, int]]) -> Partitions:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return tuple([(topic, tuple(indexes)) for topic, indexes in topics.items()])
