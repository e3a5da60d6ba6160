"""The markers of a transaction whose end is decided (Kafka: TransactionMarkerChannelManager).

Markers leave as a reply, which the shard sends when all records before it are committed: nobody is told of a decision
that could still be lost. They are asked for again until every partition has acknowledged its own. So an election of
this partition or of one to mark only costs time. The offset of the PREPARE record says which end of which transaction
an acknowledgement belongs to: producers of transaction version 0 use the same epoch again.
"""

from __future__ import annotations

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.transaction_log import Partitions, TransactionLogValue, TransactionStatus
from muster_coordinator.requests.transactions import MarkersToWrite, MarkersWritten
from muster_coordinator.state_machine import NOTHING, CancelTimer, Reply, Result, SetTimer
from muster_coordinator.transactions.end_txn import end_transaction
from muster_coordinator.transactions.states import PREPARED, TransactionEvent
from muster_coordinator.transactions.tables import TransactionTables, transaction_record, transaction_timer
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
    request = MarkersToWrite(
        transactional_id,
        offset,
        value.producer_id,
        value.producer_epoch,
        value.status is TransactionStatus.PREPARE_COMMIT,
        value.client_version,
        _grouped(_missing(state, transactional_id, value)),
    )
    timer = SetTimer(transaction_timer(transactional_id), state.config.marker_retry_ms)
    return Result(replies=(Reply(state.marker_writer, request),), timers=(timer,))


def on_markers_written(state: TransactionTables, event: MarkersWritten, now_ms: int) -> Result:
    """Partitions have their marker, or say why not. The last one completes the transaction."""
    stored = state.ids.get(event.transactional_id)
    if stored is None or stored[0] != event.prepared_at or stored[1].status not in PREPARED:
        return NOTHING
    value = stored[1]
    missing = _missing(state, event.transactional_id, value)
    for topic, codes in event.topics:
        for partition, code in codes:
            if code == ErrorCode.NONE:
                missing.discard((topic, partition))
            else:
                state.counters.refused_markers += 1
    if missing:
        return NOTHING
    del state.missing[event.transactional_id]
    return Result(
        (transaction_record(event.transactional_id, completed(value, now_ms)),),
        timers=(CancelTimer(transaction_timer(event.transactional_id)),),
    )


def _missing(state: TransactionTables, transactional_id: str, value: TransactionLogValue) -> set[tuple[str, int]]:
    missing = state.missing.get(transactional_id)
    if missing is None:
        missing = {(topic, partition) for topic, partitions in value.partitions for partition in partitions}
        state.missing[transactional_id] = missing
    return missing


def _grouped(partitions: set[tuple[str, int]]) -> Partitions:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return tuple([(topic, tuple(indexes)) for topic, indexes in topics.items()])
