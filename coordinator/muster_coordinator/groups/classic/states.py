"""The classic group's state machine as data: states, transitions, and what each API answers in each state.

Every (state, event) and every (API, state) pair is present, so that absence is never a decision. Source: Kafka's
ClassicGroupState and the checks spread over GroupMetadataManager and ClassicGroup; reference, sections 4.2, 4.4 and
4.8.
"""

from __future__ import annotations

from enum import Enum

from muster_coordinator.errors import ErrorCode


class GroupState(Enum):
    """The value is Kafka's name on the wire."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupEvent(Enum):
    PREPARE_REBALANCE = "a member joined, left, changed or failed: everybody is to join again"
    JOINS_COMPLETED = "the join phase ended with members"
    EMPTIED = "the join phase ended without members, and the record that says so is replayed"
    ASSIGNMENT_STORED = "the record with the leader's assignment is replayed"
    REMOVED = "the group is deleted, or its partition is unloaded"


class IllegalTransitionError(Exception):
    """A defect of ours: an event that cannot happen in that state."""


_E, _P, _C, _S, _D = GroupState

# Columns: Empty, PreparingRebalance, CompletingRebalance, Stable, Dead. None: the event cannot happen there.
_TRANSITIONS: dict[GroupEvent, tuple[GroupState | None, ...]] = {
    GroupEvent.PREPARE_REBALANCE: (_P, None, _P, _P, None),
    GroupEvent.JOINS_COMPLETED: (None, _C, None, None, None),
    GroupEvent.EMPTIED: (None, _E, None, None, None),
    GroupEvent.ASSIGNMENT_STORED: (None, None, _S, None, None),
    GroupEvent.REMOVED: (_D, _D, _D, _D, _D),
}

TRANSITIONS: dict[tuple[GroupState, GroupEvent], GroupState | None] = {
    (state, event): targets[column]
    for event, targets in _TRANSITIONS.items()
    for column, state in enumerate(GroupState)
}


def next_state(state: GroupState, event: GroupEvent) -> GroupState:
    """The state after `event`; raises IllegalTransitionError for a pair that cannot happen."""
    target = TRANSITIONS[state, event]
    if target is None:
        raise IllegalTransitionError(f"{event.name} in state {state.value}")
    return target


class GroupApi(Enum):
    """The APIs whose answer depends on the state of one existing group."""

    JOIN_GROUP_NEW_MEMBER = "JoinGroup without member id"
    JOIN_GROUP_KNOWN_MEMBER = "JoinGroup with member id"
    SYNC_GROUP = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    LEAVE_GROUP = "LeaveGroup"
    OFFSET_COMMIT = "OffsetCommit"
    TXN_OFFSET_COMMIT = "TxnOffsetCommit"
    OFFSET_FETCH = "OffsetFetch"
    DESCRIBE_GROUPS = "DescribeGroups"
    DELETE_GROUPS = "DeleteGroups"
    OFFSET_DELETE = "OffsetDelete"


_OK = ErrorCode.NONE
_AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE
_UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
_REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
_BUSY = ErrorCode.NON_EMPTY_GROUP
_GONE = ErrorCode.GROUP_ID_NOT_FOUND

# Columns as above. These hold for a request whose member, instance and generation are in order; those are checked
# first, except in Dead (and in Empty for SyncGroup), where the state alone decides. NONE means "go on".
_STATE_ERRORS: dict[GroupApi, tuple[ErrorCode, ...]] = {
    GroupApi.JOIN_GROUP_NEW_MEMBER: (_OK, _OK, _OK, _OK, _AWAY),
    GroupApi.JOIN_GROUP_KNOWN_MEMBER: (_UNKNOWN, _OK, _OK, _OK, _AWAY),
    GroupApi.SYNC_GROUP: (_UNKNOWN, _REBALANCE, _OK, _OK, _AWAY),
    GroupApi.HEARTBEAT: (_UNKNOWN, _REBALANCE, _OK, _OK, _AWAY),  # Completing is OK since KAFKA-10134
    GroupApi.LEAVE_GROUP: (_OK, _OK, _OK, _OK, _AWAY),
    GroupApi.OFFSET_COMMIT: (_OK, _OK, _REBALANCE, _OK, _AWAY),
    GroupApi.TXN_OFFSET_COMMIT: (_OK, _OK, _OK, _OK, _AWAY),
    GroupApi.OFFSET_FETCH: (_OK, _OK, _OK, _OK, _GONE),  # Dead is answered as an unknown group: offset -1, no error
    GroupApi.DESCRIBE_GROUPS: (_OK, _OK, _OK, _OK, _GONE),
    GroupApi.DELETE_GROUPS: (_OK, _BUSY, _BUSY, _BUSY, _GONE),
    GroupApi.OFFSET_DELETE: (
        _OK,
        _BUSY,
        _BUSY,
        _BUSY,
        _GONE,
    ),  # a "consumer" group: 86 per topic
}

STATE_ERRORS: dict[tuple[GroupApi, GroupState], ErrorCode] = {
    (api, state): codes[column] for api, codes in _STATE_ERRORS.items() for column, state in enumerate(GroupState)
}
