"""EndTxn, and every other way in which a transaction ends (Kafka: TransactionCoordinator#endTransaction).

The answer waits until the decision is committed, and then does not wait for the markers: they follow from the record,
under any leader. A transaction of version 2 has an epoch of its own. It ends in the next one, so what comes late
from its producer is refused (KIP-890).
"""

from __future__ import annotations

import msgspec

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.transaction_log import TransactionLogValue, TransactionStatus
from muster_coordinator.requests.transactions import EndTxnRequest, EndTxnResponse
from muster_coordinator.state_machine import CancelTimer, Record, Result, SetTimer, Token
from muster_coordinator.transactions.admission import refuse
from muster_coordinator.transactions.states import END_TXN, PREPARED, EndCall, TransactionEvent
from muster_coordinator.transactions.tables import TransactionTables, transaction_record, transaction_timer
from muster_coordinator.transactions.transitions import (
    EPOCH_BUMP_VERSION,
    MAX_EPOCH,
    completed,
    is_exhausted,
    prepared,
)

EPOCH_BUMP_SINCE = 5
"""Version of EndTxn that only clients of transaction version 2 send (Kafka: TransactionVersion)."""

_LAST_CLIENT_EPOCH = MAX_EPOCH - 1


class Ended(msgspec.Struct, frozen=True, gc=False):
    """The end of a transaction. `producer_id` and `producer_epoch`: those that its producer goes on with. With another
    code than NONE nothing happens."""

    code: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1
    records: tuple[Record, ...] = ()
    timers: tuple[SetTimer | CancelTimer, ...] = ()


def end_txn(state: TransactionTables, request: EndTxnRequest, _token: Token, now_ms: int) -> Result:
    refusal = refuse(request, state.config)
    if refusal is not None:
        return Result(response=refusal)
    value = state.value(request.transactional_id)
    if value is None:
        return Result(response=EndTxnResponse(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    bumps = request.api_version >= EPOCH_BUMP_SINCE
    outcome = _outcome(value, request, bumps)
    if outcome is ErrorCode.NONE and bumps:
        return Result(response=EndTxnResponse(ErrorCode.NONE, value.producer_id, value.producer_epoch))
    if isinstance(outcome, ErrorCode):
        return Result(response=EndTxnResponse(outcome))
    version = EPOCH_BUMP_VERSION if bumps else 0
    ended = end_transaction(state, request.transactional_id, value, outcome, version, now_ms)
    if bumps and ended.code is ErrorCode.NONE:
        response = EndTxnResponse(ErrorCode.NONE, ended.producer_id, ended.producer_epoch)
    else:
        response = EndTxnResponse(ended.code)
    return Result(ended.records, response, timers=ended.timers)


def _outcome(value: TransactionLogValue, request: EndTxnRequest, bumps: bool) -> TransactionEvent | ErrorCode:
    """The effect of the call, or its answer. While markers are missing, a client of transaction version 2 may come with
    the producer id and epoch that its next transaction will have.

    A repetition has the epoch before, because the end of a transaction of version 2 has moved it. After one of version
    1 it was another instance that has moved it, and the caller is fenced; Kafka 4.3 takes that for a repetition too.
    """
    if bumps and value.status in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    moved = value.client_version >= EPOCH_BUMP_VERSION
    again = bumps and moved and value.producer_epoch == request.producer_epoch + 1
    after_rotation = (
        bumps
        and value.previous_producer_id == request.producer_id
        and request.producer_epoch == _LAST_CLIENT_EPOCH
        and value.producer_epoch == 0
    )
    if value.producer_id != request.producer_id and not after_rotation:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if not (again or after_rotation) and value.producer_epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return END_TXN[EndCall((bumps, request.committed, again or after_rotation)), value.status]


def end_transaction(
    state: TransactionTables,
    transactional_id: str,
    value: TransactionLogValue,
    event: TransactionEvent,
    client_version: int,
    now_ms: int,
) -> Ended:
    """COMMIT, ABORT or ABORT_OF_NOTHING. The markers are written when the transaction's timer fires, which is at once.
    Without a partition to mark the transaction is complete."""
    bumps = client_version >= EPOCH_BUMP_VERSION
    next_producer_id, records = -1, list[Record]()
    if bumps and is_exhausted(value.producer_epoch):
        taken = state.take_producer_id(now_ms)
        if taken is None:
            return Ended(ErrorCode.UNKNOWN_SERVER_ERROR)
        next_producer_id, records = taken
    decided = prepared(value, event, client_version, next_producer_id, now_ms)
    after = completed(decided, now_ms)
    timer = transaction_timer(transactional_id)
    records.append(transaction_record(transactional_id, decided))
    if not decided.partitions:
        records.append(transaction_record(transactional_id, after))
    if not state.fits(records):
        return Ended(ErrorCode.UNKNOWN_SERVER_ERROR)
    if bumps:
        state.remember_epoch(transactional_id, value.producer_epoch)
    if decided.status is TransactionStatus.PREPARE_COMMIT:
        state.counters.commits += 1
    else:
        state.counters.aborts += 1
    return Ended(
        ErrorCode.NONE,
        after.producer_id,
        after.producer_epoch,
        tuple(records),
        (SetTimer(timer, 0) if decided.partitions else CancelTimer(timer),),
    )
