"""States of a shard and the steps between them (Kafka: CoordinatorRuntime.CoordinatorState)."""

from __future__ import annotations

from enum import StrEnum


class ShardState(StrEnum):
    INITIAL = "INITIAL"  # a replica is here, this pod does not lead it
    LOADING = "LOADING"  # elected: replays its log, then waits until its leader-change record is committed
    ACTIVE = "ACTIVE"  # serves
    FENCED = "FENCED"  # leads, and answers no client: a re-shard is under way
    FAILED = "FAILED"  # could not load, or could not write: says why, waits for a higher epoch
    CLOSED = "CLOSED"  # resigned or superseded


OPEN_STATES = frozenset({ShardState.ACTIVE, ShardState.FENCED})
"""Its epoch is open: the shard appends to the log."""
LEADING_STATES = OPEN_STATES | {ShardState.LOADING}


class FailureReason(StrEnum):
    """Why a shard FAILED. The names are part of the pod API (``podapi.models.PartitionReason``)."""

    LOG_DAMAGED = "LogDamaged"  # only a person can help
    CANNOT_WRITE = "CannotWrite"  # disk full or I/O error; comes back by itself
    LOAD_FAILED = "LoadFailed"  # the log could not be replayed; a higher epoch tries again
    OPERATION_FAILED = "OperationFailed"  # a record of its own could not be replayed; a higher epoch reloads


LEGAL_PREDECESSORS: dict[ShardState, frozenset[ShardState]] = {
    ShardState.INITIAL: frozenset(),
    ShardState.LOADING: frozenset({ShardState.INITIAL, ShardState.FAILED}),
    ShardState.ACTIVE: frozenset({ShardState.LOADING, ShardState.FENCED}),
    ShardState.FENCED: frozenset({ShardState.LOADING, ShardState.ACTIVE}),
    ShardState.FAILED: frozenset({ShardState.LOADING, ShardState.ACTIVE, ShardState.FENCED}),
    ShardState.CLOSED: frozenset(set(ShardState) - {ShardState.CLOSED}),
}
"""Which states may come before a state. A shard that is CLOSED ends; a later election makes a new one."""
