"""Transitions of a transactional id: pure functions from one state to the next.

Source: TransactionMetadata (prepareIncrementProducerEpoch, prepareProducerIdRotation, prepareAddPartitions,
prepareAbortOrCommit, prepareComplete).
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from muster_coordinator.records.transaction_log import Partitions, TransactionLogValue, TransactionStatus
from muster_coordinator.transactions.states import AT_REST, TransactionEvent, next_status

MAX_EPOCH = 0x7FFF
NO_EPOCH = -1
EPOCH_BUMP_VERSION = 2
"""The transaction version from which each transaction has an epoch of its own (KIP-890)."""


def is_exhausted(epoch: int) -> bool:
    """No client gets the last epoch, so that a producer can always be fenced."""
    return epoch >= MAX_EPOCH - 1


def created(producer_id: int, timeout_ms: int, now_ms: int) -> TransactionLogValue:
    """A transactional id that was unknown."""
    return TransactionLogValue(
        producer_id, 0, timeout_ms, TransactionStatus.EMPTY, (), now_ms, -1, previous_producer_id=producer_id
    )


def initialised(
    value: TransactionLogValue, producer_id: int, epoch: int, timeout_ms: int, now_ms: int
) -> TransactionLogValue:
    """A producer begins, with another epoch or another producer id."""
    return _follows(
        value,
        TransactionEvent.INITIALISED,
        now_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        partitions=(),
        start_ms=-1,
    )


def with_partitions(
    value: TransactionLogValue, partitions: Partitions, client_version: int, now_ms: int
) -> TransactionLogValue:
    """The transaction has `partitions` now."""
    start_ms = now_ms if value.status in AT_REST else value.start_ms
    return _follows(
        value,
        TransactionEvent.PARTITIONS_ADDED,
        now_ms,
        partitions=partitions,
        start_ms=start_ms,
        client_version=client_version,
    )


def prepared(
    value: TransactionLogValue, event: TransactionEvent, client_version: int, next_producer_id: int, now_ms: int
) -> TransactionLogValue:
    """The end is decided: COMMIT, ABORT or ABORT_OF_NOTHING. `next_producer_id` -1: the present one goes on."""
    bump = client_version >= EPOCH_BUMP_VERSION
    return _follows(
        value,
        event,
        now_ms,
        producer_epoch=min(value.producer_epoch + 1, MAX_EPOCH) if bump else value.producer_epoch,
        next_producer_id=next_producer_id,
        partitions=() if event is TransactionEvent.ABORT_OF_NOTHING else value.partitions,
        start_ms=now_ms if event is TransactionEvent.ABORT_OF_NOTHING else value.start_ms,
        client_version=client_version,
    )


def completed(value: TransactionLogValue, now_ms: int) -> TransactionLogValue:
    """Every partition has its marker."""
    rotate = value.next_producer_id != -1
    return _follows(
        value,
        TransactionEvent.MARKED,
        now_ms,
        producer_id=value.next_producer_id if rotate else value.producer_id,
        producer_epoch=0 if rotate else value.producer_epoch,
        next_producer_id=-1,
        partitions=(),
    )


def _follows(value: TransactionLogValue, event: TransactionEvent, now_ms: int, **fields: Any) -> TransactionLogValue:
    return replace(
        value,
        status=next_status(value.status, event),
        previous_producer_id=value.producer_id,
        last_update_ms=now_ms,
        **fields,
    )
