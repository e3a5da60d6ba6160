"""The states of a transactional id as data: transitions, and what EndTxn does in each state.

Every pair is present, so that absence is never a decision. Kafka has two states more, PrepareEpochFence and Dead, for
the time between a decision and its record. Here a record is replayed as soon as it is appended, and no answer leaves
before it is committed: there is no such time.

Source: TransactionState.VALID_PREVIOUS_STATES; TransactionCoordinator#endTransaction and #endTransactionWithTV1.
"""

from __future__ import annotations

from enum import Enum

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.transaction_log import TransactionStatus

STATE_NAMES: dict[TransactionStatus, str] = {
    TransactionStatus.EMPTY: "Empty",
    TransactionStatus.ONGOING: "Ongoing",
    TransactionStatus.PREPARE_COMMIT: "PrepareCommit",
    TransactionStatus.PREPARE_ABORT: "PrepareAbort",
    TransactionStatus.COMPLETE_COMMIT: "CompleteCommit",
    TransactionStatus.COMPLETE_ABORT: "CompleteAbort",
}
"""Kafka's names on the wire."""

MEMORY_STATE_NAMES = frozenset({"Dead", "PrepareEpochFence"})
"""Names that ListTransactions may be asked for, and under which it finds nothing."""

PREPARED = frozenset({TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT})
"""The end is decided, and markers are missing."""

AT_REST = frozenset({TransactionStatus.EMPTY, TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT})
"""No transaction is under way: the id may expire (Kafka: isExpirationAllowed)."""


class TransactionEvent(Enum):
    INITIALISED = "a producer got its id and epoch"
    PARTITIONS_ADDED = "a transaction began, or got more partitions"
    COMMIT = "the producer commits"
    ABORT = "the producer aborts, another one fences it, or its time is over"
    ABORT_OF_NOTHING = "a producer of transaction version 2 aborts before it has added a partition (KIP-890)"
    MARKED = "every partition has its marker"


class IllegalTransitionError(Exception):
    """A defect of ours: an event that cannot happen in that state."""


_E, _O, _PC, _PA, _CC, _CA = TransactionStatus

# Columns: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort. None: it cannot happen there.
_TRANSITIONS: dict[TransactionEvent, tuple[TransactionStatus | None, ...]] = {
    TransactionEvent.INITIALISED: (_E, None, None, None, _E, _E),
    TransactionEvent.PARTITIONS_ADDED: (_O, _O, None, None, _O, _O),
    TransactionEvent.COMMIT: (None, _PC, None, None, None, None),
    TransactionEvent.ABORT: (None, _PA, None, None, None, None),
    TransactionEvent.ABORT_OF_NOTHING: (_PA, None, None, None, _PA, _PA),
    TransactionEvent.MARKED: (None, None, _CC, _CA, None, None),
}

TRANSITIONS: dict[tuple[TransactionStatus, TransactionEvent], TransactionStatus | None] = {
    (status, event): targets[column]
    for event, targets in _TRANSITIONS.items()
    for column, status in enumerate(TransactionStatus)
}


def next_status(status: TransactionStatus, event: TransactionEvent) -> TransactionStatus:
    """Returns the state after `event`. Raises IllegalTransitionError for a pair that cannot happen."""
    target = TRANSITIONS[status, event]
    if target is None:
        raise IllegalTransitionError(f"{event.name} in state {STATE_NAMES[status]}")
    return target


class EndCall(Enum):
    """EndTxn by the client's transaction version and by its epoch. AGAIN: the epoch is the one before, so the call was
    carried out already, and its answer was lost (KIP-890)."""

    V1_COMMIT = (False, True, False)
    V1_ABORT = (False, False, False)
    V2_COMMIT = (True, True, False)
    V2_ABORT = (True, False, False)
    V2_COMMIT_AGAIN = (True, True, True)
    V2_ABORT_AGAIN = (True, False, True)


_DONE = ErrorCode.NONE
_WAIT = ErrorCode.CONCURRENT_TRANSACTIONS
_WRONG = ErrorCode.INVALID_TXN_STATE
_FENCED = ErrorCode.PRODUCER_FENCED
_COMMIT, _ABORT, _EMPTY_ABORT = TransactionEvent.COMMIT, TransactionEvent.ABORT, TransactionEvent.ABORT_OF_NOTHING

# Columns as above. An event: the transaction ends so. A code: the answer; NONE: it has ended so already. In the two
# PREPARE states Kafka always has a pending transition to COMPLETE, and says so before it looks at anything else.
_END_TXN: dict[EndCall, tuple[TransactionEvent | ErrorCode, ...]] = {
    EndCall.V1_COMMIT: (_WRONG, _COMMIT, _WAIT, _WAIT, _DONE, _WRONG),
    EndCall.V1_ABORT: (_WRONG, _ABORT, _WAIT, _WAIT, _WRONG, _DONE),
    EndCall.V2_COMMIT: (_WRONG, _COMMIT, _WAIT, _WAIT, _WRONG, _WRONG),
    EndCall.V2_ABORT: (_EMPTY_ABORT, _ABORT, _WAIT, _WAIT, _EMPTY_ABORT, _EMPTY_ABORT),
    EndCall.V2_COMMIT_AGAIN: (_FENCED, _FENCED, _WAIT, _WAIT, _DONE, _WRONG),
    EndCall.V2_ABORT_AGAIN: (_FENCED, _FENCED, _WAIT, _WAIT, _WRONG, _DONE),
}

END_TXN: dict[tuple[EndCall, TransactionStatus], TransactionEvent | ErrorCode] = {
    (call, status): outcomes[column]
    for call, outcomes in _END_TXN.items()
    for column, status in enumerate(TransactionStatus)
}
