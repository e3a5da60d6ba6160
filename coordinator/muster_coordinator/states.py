"""States of a replica and of the shard that leads it: shared by the shard runtime, the pod API and the operator."""

from __future__ import annotations

from enum import StrEnum


class ShardState(StrEnum):
    """Kafka: CoordinatorRuntime.CoordinatorState. The values are part of the pod API."""

    INITIAL = "INITIAL"  # a replica is here, this pod does not lead it
    LOADING = "LOADING"  # elected: replays its log, then waits until its leader-change record is committed
    ACTIVE = "ACTIVE"  # serves
    FENCED = "FENCED"  # leads, and answers no client: a re-shard is under way
    FAILED = "FAILED"  # could not load, or could not write: says why, waits for a higher epoch
    CLOSED = "CLOSED"  # resigned or superseded


OPEN_STATES = frozenset({ShardState.ACTIVE, ShardState.FENCED})
"""The epoch is open: the shard appends to the log."""
LEADING_STATES = OPEN_STATES | {ShardState.LOADING}

LEGAL_PREDECESSORS: dict[ShardState, frozenset[ShardState]] = {
    ShardState.INITIAL: frozenset(),
    ShardState.LOADING: frozenset({ShardState.INITIAL, ShardState.FAILED}),
    ShardState.ACTIVE: frozenset({ShardState.LOADING, ShardState.FENCED}),
    ShardState.FENCED: frozenset({ShardState.LOADING, ShardState.ACTIVE}),
    ShardState.FAILED: frozenset({ShardState.LOADING, ShardState.ACTIVE, ShardState.FENCED}),
    ShardState.CLOSED: frozenset(set(ShardState) - {ShardState.CLOSED}),
}
"""The states that may come before each state. A shard that is CLOSED ends; a later election makes a new one."""


class FailureReason(StrEnum):
    """The reason why a shard FAILED; LOG_SET_ASIDE is the only reason that a replica without a failure can show.

    The values are part of the pod API. Its reader must expect values that are not listed here.
    """

    LOG_DAMAGED = "LogDamaged"  # only a person can help; the replica is never elected while it lasts
    CANNOT_WRITE = "CannotWrite"  # disk full or I/O error; ends by itself when writes succeed again
    LOAD_FAILED = "LoadFailed"  # the log could not be replayed; a higher epoch tries again
    OPERATION_FAILED = "OperationFailed"  # a record of its own could not be replayed; a higher epoch reloads
    PROTOCOL_VIOLATION = "ProtocolViolation"  # a committed record would have been cut; people have to look at it
    DUPLICATE_LOG = "DuplicateLog"  # another pod has the same log; ends by itself when only one of them has it
    LOG_SET_ASIDE = "LogSetAside"  # the log was damaged and began anew since the pod started; the message says what


class ReplicaRole(StrEnum):
    """Part of a replica in its partition, as its pod sees it."""

    LEADER = "leader"  # from LOADING on until the leadership ends
    FOLLOWER = "follower"  # it hears a leader
    NONE = "none"
