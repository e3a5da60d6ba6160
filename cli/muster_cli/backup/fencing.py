"""The records that a restore adds to the logs, so that nothing that was open at the cut can commit (ADR 45).

The offsets that a transaction committed after the cut are lost, so its producer must not go on with it. In the
transaction topic every producer is fenced, as if a newer one had called InitProducerId: an open transaction is decided
as aborted, which the restored coordinator carries out, and every other id gets the next epoch. Decisions stay. In the
groups' topic, offsets of a transaction that the transaction topic does not have get an ABORT marker. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster_coordinator.partition_numbers import OFFSETS
from muster_coordinator.records.batch import RecordBatch
from muster_coordinator.records.transaction_log import (
    TransactionLogValue,
    TransactionRecord,
    TransactionStatus,
    decode_transaction_record,
    encode_transaction_key,
    encode_transaction_value,
)
from muster_coordinator.transactions.producer_ids import BLOCK_ID, ProducerIds
from muster_coordinator.transactions.states import AT_REST, PREPARED, TransactionEvent
from muster_coordinator.transactions.transitions import (
    EPOCH_BUMP_VERSION,
    completed,
    initialised,
    is_exhausted,
    prepared,
)

SKIPPED_IDS = 1 << 20
"""Producer ids that the lost cluster may have handed out after the cut, and that nobody gets again."""


class Transactions:
    """The transactional ids of one partition, by its index in the topic."""

    def __init__(self, index: int) -> None:
        self.values: dict[str, TransactionLogValue] = {}
        self._ids = ProducerIds(index)

    def take(self, batch: RecordBatch) -> None:
        """Raises RecordDecodeError, UnsupportedValueVersionError, CorruptBatchError."""
        if batch.is_control:
            return
        for record in batch.records():
            change = decode_transaction_record(record.key, record.value)
            if not isinstance(change, TransactionRecord):
                continue
            if change.value is None:
                self.values.pop(change.transactional_id, None)
            elif change.transactional_id == BLOCK_ID:
                self._ids.replay(change.value)
            else:
                self._ids.saw(change.value.producer_id)
                self.values[change.transactional_id] = change.value

    def fenced(self, now_ms: int) -> list[tuple[bytes, bytes]]:
        """The records to append, as (key, value)."""
        self._ids.restore(self._ids.reserved_to + SKIPPED_IDS)
        self._ids.lead()
        taken = self._ids.take(now_ms)
        records = [(key, value) for key, value, _ in taken[1] if value is not None] if taken is not None else []
        for transactional_id, value in sorted(self.values.items()):
            after = _fenced(value, now_ms)
            if after is not value:
                records.append((encode_transaction_key(transactional_id), encode_transaction_value(after)))
        return records

    def ended(self, now_ms: int) -> list[tuple[bytes, bytes]]:
        """The records, as (key, value), after which no transaction is under way: what is open is aborted, what is
        decided is complete. Markers of all of them have to be in the logs of groups."""
        records = []
        for transactional_id, value in sorted(self.values.items()):
            decided = _fenced(value, now_ms) if value.status is TransactionStatus.ONGOING else value
            if decided.status in PREPARED:
                after = completed(decided, now_ms)
                records.append((encode_transaction_key(transactional_id), encode_transaction_value(after)))
        return records

    @property
    def open(self) -> list[str]:
        """Ids whose transaction is open."""
        return sorted(name for name, each in self.values.items() if each.status is TransactionStatus.ONGOING)


def _fenced(value: TransactionLogValue, now_ms: int) -> TransactionLogValue:
    if value.status is TransactionStatus.ONGOING:
        return prepared(value, TransactionEvent.ABORT, EPOCH_BUMP_VERSION, -1, now_ms)
    if value.status in AT_REST and not is_exhausted(value.producer_epoch):
        return initialised(value, value.producer_id, value.producer_epoch + 1, value.timeout_ms, now_ms)
    return value


class OpenOffsets:
    """Producers with offsets of a transaction without a marker in one partition of groups, with their epochs."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}

    def take(self, batch: RecordBatch) -> None:
        if batch.producer_id < 0:
            return
        if batch.is_control:
            self.epochs.pop(batch.producer_id, None)
        elif batch.is_transactional:
            self.epochs[batch.producer_id] = batch.producer_epoch


def marked_later(values: Iterable[TransactionLogValue]) -> set[tuple[int, int]]:
    """(producer id, index of the groups' partition) to which the restored coordinator writes markers by itself."""
    return {
        (value.producer_id, index)
        for value in values
        if value.status in PREPARED or value.status is TransactionStatus.ONGOING
        for topic, indexes in value.partitions
        if topic == OFFSETS.name
        for index in indexes
    }
