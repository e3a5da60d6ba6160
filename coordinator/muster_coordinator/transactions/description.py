"""DescribeTransactions and ListTransactions (Kafka: TransactionCoordinator#handleDescribeTransactions,
TransactionStateManager#listTransactionStates)."""

from __future__ import annotations

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.transaction_log import TransactionLogValue
from muster_coordinator.requests.transactions import (
    DescribedTransaction,
    DescribeTransactionRequest,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from muster_coordinator.state_machine import Result, Token
from muster_coordinator.transactions.admission import refuse
from muster_coordinator.transactions.states import MEMORY_STATE_NAMES, STATE_NAMES
from muster_coordinator.transactions.tables import TransactionTables

_KNOWN_STATES = MEMORY_STATE_NAMES | frozenset(STATE_NAMES.values())


def describe_transaction(
    state: TransactionTables, request: DescribeTransactionRequest, _token: Token, _now_ms: int
) -> Result:
    refusal = refuse(request, state.config)
    if refusal is not None:
        return Result(response=refusal)
    transactional_id = request.transactional_id
    value = state.value(transactional_id)
    if value is None:
        return Result(response=DescribedTransaction(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id))
    return Result(
        response=DescribedTransaction(
            ErrorCode.NONE,
            transactional_id,
            STATE_NAMES[value.status],
            value.timeout_ms,
            value.start_ms,
            value.producer_id,
            value.producer_epoch,
            value.partitions,
        )
    )


def list_transactions(state: TransactionTables, request: ListTransactionsRequest, _token: Token, now_ms: int) -> Result:
    """State names must be exact, unlike those of ListGroups."""
    found = [
        ListedTransaction(transactional_id, value.producer_id, STATE_NAMES[value.status])
        for transactional_id, (_, value) in state.ids.items()
        if _is_asked_for(value, request, now_ms)
    ]
    return Result(response=ListTransactionsResponse(ErrorCode.NONE, unknown_states(request.states), tuple(found)))


def unknown_states(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names that are no state of Kafka, each once."""
    return tuple([name for name in dict.fromkeys(names) if name not in _KNOWN_STATES])


def _is_asked_for(value: TransactionLogValue, request: ListTransactionsRequest, now_ms: int) -> bool:
    return (
        (not request.producer_ids or value.producer_id in request.producer_ids)
        and (not request.states or STATE_NAMES[value.status] in request.states)
        and (request.duration_ms < 0 or now_ms - value.start_ms > request.duration_ms)
    )
