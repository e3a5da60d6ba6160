"""The tables of states. Kafka: TransactionStateTest, TransactionMetadataTest."""

from __future__ import annotations

import pytest

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.transaction_log import TransactionStatus
from muster_coordinator.transactions.states import (
    END_TXN,
    STATE_NAMES,
    TRANSITIONS,
    EndCall,
    IllegalTransitionError,
    TransactionEvent,
    next_status,
)

S = TransactionStatus

KAFKAS_VALID_PREVIOUS_STATES = {
    S.EMPTY: {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.ONGOING: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.PREPARE_COMMIT: {S.ONGOING},
    S.PREPARE_ABORT: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.COMPLETE_COMMIT: {S.PREPARE_COMMIT},
    S.COMPLETE_ABORT: {S.PREPARE_ABORT},
}
"""TransactionState.VALID_PREVIOUS_STATES without those of a broker's memory."""


def test_states_follow_each_other_as_in_kafka() -> None:
    ours: dict[S, set[S]] = {status: set() for status in S}
    for (status, _), target in TRANSITIONS.items():
        if target is not None:
            ours[target].add(status)
    assert ours == KAFKAS_VALID_PREVIOUS_STATES


def test_tables_are_complete() -> None:
    assert set(TRANSITIONS) == {(status, event) for status in S for event in TransactionEvent}
    assert set(END_TXN) == {(call, status) for status in S for call in EndCall}
    assert set(STATE_NAMES) == set(S)


@pytest.mark.parametrize(("call", "status"), END_TXN)
def test_end_txn_only_asks_for_transitions_that_exist(call: EndCall, status: S) -> None:
    outcome = END_TXN[call, status]
    if isinstance(outcome, ErrorCode):
        return
    _, committed, _ = call.value
    assert next_status(status, outcome) is (S.PREPARE_COMMIT if committed else S.PREPARE_ABORT)


def test_event_that_cannot_happen_is_a_defect() -> None:
    with pytest.raises(IllegalTransitionError, match="COMMIT in state Empty"):
        next_status(S.EMPTY, TransactionEvent.COMMIT)
