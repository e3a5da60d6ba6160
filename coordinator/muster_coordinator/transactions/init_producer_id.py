"""InitProducerId: a producer gets its id and epoch, and the producer that had the transactional id before is fenced.

Source: TransactionCoordinator#handleInitProducerId, #prepareInitProducerIdTransit; KIP-360 for a producer that says
which id and epoch it has.
"""

from __future__ import annotations

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.transaction_log import TransactionLogValue, TransactionStatus
from muster_coordinator.requests.transactions import InitProducerIdRequest, InitProducerIdResponse
from muster_coordinator.state_machine import Record, Result, Token
from muster_coordinator.transactions.admission import refuse
from muster_coordinator.transactions.end_txn import end_transaction
from muster_coordinator.transactions.states import PREPARED, TransactionEvent
from muster_coordinator.transactions.tables import TransactionTables, transaction_record
from muster_coordinator.transactions.transitions import (
    EPOCH_BUMP_VERSION,
    NO_EPOCH,
    created,
    initialised,
    is_exhausted,
)

_NO_PRODUCER_ID = -1


def init_producer_id(state: TransactionTables, request: InitProducerIdRequest, _token: Token, now_ms: int) -> Result:
    refusal = refuse(request, state.config)
    if refusal is not None:
        return Result(response=refusal)
    transactional_id = request.transactional_id
    if transactional_id is None:
        return _idempotent(state, now_ms)
    value = state.value(transactional_id)
    if value is None:
        return _create(state, transactional_id, request.transaction_timeout_ms, now_ms)
    if value.status in PREPARED:
        return _refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if not _has_valid_producer_id(value, request):
        return _refused(ErrorCode.PRODUCER_FENCED)
    if value.status is TransactionStatus.ONGOING:
        return _fence(state, transactional_id, value, now_ms)
    if is_exhausted(value.producer_epoch) and request.producer_epoch in (NO_EPOCH, value.producer_epoch):
        return _rotate(state, transactional_id, value, request, now_ms)
    return _bump(state, transactional_id, value, request, now_ms)


def _idempotent(state: TransactionTables, now_ms: int) -> Result:
    """A producer without a transactional id: a new producer id, and nothing to remember."""
    taken = state.take_producer_id(now_ms)
    if taken is None:
        return _refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    producer_id, records = taken
    return Result(records, InitProducerIdResponse(ErrorCode.NONE, producer_id, 0))


def _create(state: TransactionTables, transactional_id: str, timeout_ms: int, now_ms: int) -> Result:
    """Creates a producer id. The id and epoch of the request do not count, since a producer may outlive them."""
    if len(state.ids) >= state.config.max_transactional_ids:
        return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    taken = state.take_producer_id(now_ms)
    if taken is None:
        return _refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    producer_id, records = taken
    return _answer(state, transactional_id, created(producer_id, timeout_ms, now_ms), records, NO_EPOCH)


def _has_valid_producer_id(value: TransactionLogValue, request: InitProducerIdRequest) -> bool:
    """The producer has said nothing, or the present id, or the one before whose last epoch it had: then the answer with
    the new id may have been lost."""
    asked = request.producer_id
    return asked in (_NO_PRODUCER_ID, value.producer_id) or (
        asked == value.previous_producer_id and is_exhausted(request.producer_epoch)
    )


def _fence(state: TransactionTables, transactional_id: str, value: TransactionLogValue, now_ms: int) -> Result:
    """Abort the last owner's transaction in a higher epoch. The producer waits, and asks again."""
    ended = end_transaction(state, transactional_id, value, TransactionEvent.ABORT, EPOCH_BUMP_VERSION, now_ms)
    code = ErrorCode.CONCURRENT_TRANSACTIONS if ended.code is ErrorCode.NONE else ended.code
    return Result(ended.records, InitProducerIdResponse(code), timers=ended.timers)


def _rotate(
    state: TransactionTables,
    transactional_id: str,
    value: TransactionLogValue,
    request: InitProducerIdRequest,
    now_ms: int,
) -> Result:
    """The epochs of the producer id are used up: another id, from epoch 0."""
    taken = state.take_producer_id(now_ms)
    if taken is None:
        return _refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    producer_id, records = taken
    last_epoch = NO_EPOCH if request.producer_epoch == NO_EPOCH else value.producer_epoch
    new = initialised(value, producer_id, 0, request.transaction_timeout_ms, now_ms)
    return _answer(state, transactional_id, new, records, last_epoch)


def _bump(
    state: TransactionTables,
    transactional_id: str,
    value: TransactionLogValue,
    request: InitProducerIdRequest,
    now_ms: int,
) -> Result:
    """The next epoch. A producer whose last answer was lost gets that epoch again."""
    epoch, last_epoch = value.producer_epoch, state.last_epochs.get(transactional_id, NO_EPOCH)
    if request.producer_epoch == NO_EPOCH:
        epoch, last_epoch = epoch + 1, NO_EPOCH
    elif request.producer_epoch == epoch:
        epoch, last_epoch = epoch + 1, epoch
    elif request.producer_epoch != last_epoch:
        return _refused(ErrorCode.PRODUCER_FENCED)
    new = initialised(value, value.producer_id, epoch, request.transaction_timeout_ms, now_ms)
    return _answer(state, transactional_id, new, [], last_epoch)


def _answer(
    state: TransactionTables,
    transactional_id: str,
    value: TransactionLogValue,
    records: list[Record],
    last_epoch: int,
) -> Result:
    records = [*records, transaction_record(transactional_id, value)]
    if not state.fits(records):
        return _refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    state.remember_epoch(transactional_id, last_epoch)
    return Result(records, InitProducerIdResponse(ErrorCode.NONE, value.producer_id, value.producer_epoch))


def _refused(code: ErrorCode) -> Result:
    return Result(response=InitProducerIdResponse(code))
