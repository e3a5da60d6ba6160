"""The transactions of `transaction_load` by the logs of both topics, and the cuts of the logs that tear one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from muster_cli.backup.manifest import Backup, PartitionCut
from muster_cli.backup.store import Store
from muster_coordinator.partition_numbers import TRANSACTIONS, topic_of
from muster_coordinator.records.batch import RecordBatch, iter_batches
from muster_coordinator.records.decode import decode_record
from muster_coordinator.records.structs import OffsetCommitRecord
from muster_coordinator.records.transaction_log import (
    TransactionRecord,
    TransactionStatus,
    decode_transaction_record,
)
from muster_coordinator.transactions.states import PREPARED

_COMPLETE = (TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)


@dataclass
class Told:
    """The places at which the logs tell of a transaction, as (partition number, offset)."""

    offsets: set[tuple[int, int]] = field(default_factory=set)
    markers: set[tuple[int, int]] = field(default_factory=set)
    decision: tuple[int, int] | None = None
    completion: tuple[int, int] | None = None

    def torn_by(self, cut: Mapping[int, int], before: Told | None) -> str:
        """ "" if the cut, by partition number, has with each record also those that came before it. `before`: what the
        logs tell of the transaction before of the same client (None: this is its first one)."""
        decided, completed = _in(cut, self.decision), _in(cut, self.completion)
        if decided and not all(_in(cut, each) for each in self.offsets):
            return "decided, and an offset is not there"
        if completed and not all(_in(cut, each) for each in self.markers):
            return "complete, and a marker is not there"
        if before is not None and not _in(cut, before.completion) and any(_in(cut, each) for each in self.offsets):
            return "an offset is there, and the transaction before is not complete"
        if not decided and any(_in(cut, each) for each in self.markers):
            return "not decided, and a marker is there"
        return ""


def _in(cut: Mapping[int, int], place: tuple[int, int] | None) -> bool:
    return place is not None and place[1] < cut[place[0]]


def history(store: Store, backup: Backup) -> dict[tuple[str, int], Told]:
    """The transactions, by the client's name and the number of its transaction, which is the offset that it commits.
    Logs have to be whole, not compacted."""
    found: dict[tuple[str, int], Told] = defaultdict(Told)
    decided: dict[str, int] = defaultdict(int)
    completed: dict[str, int] = defaultdict(int)
    for cut in backup.partitions:
        of_producer: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for batch in _batches(store, cut):
            if topic_of(cut.number) is TRANSACTIONS:
                _states(cut.number, batch, found, decided, completed)
            elif batch.is_control and batch.producer_id >= 0:
                for transaction in of_producer.pop(batch.producer_id, []):
                    found[transaction].markers.add((cut.number, batch.base_offset))
            elif batch.is_transactional:
                for record in batch.records():
                    change = decode_record(record.key, record.value)
                    assert isinstance(change, OffsetCommitRecord)
                    assert change.value is not None
                    transaction = ("tx-" + change.group_id.rpartition("-")[2], change.value.offset)
                    found[transaction].offsets.add((cut.number, record.offset))
                    of_producer[batch.producer_id].append(transaction)
    return found


def _states(
    number: int,
    batch: RecordBatch,
    found: dict[tuple[str, int], Told],
    decided: dict[str, int],
    completed: dict[str, int],
) -> None:
    for record in [] if batch.is_control else batch.records():
        change = decode_transaction_record(record.key, record.value)
        assert isinstance(change, TransactionRecord)
        assert change.value is not None
        name, place = change.transactional_id, (number, record.offset)
        if change.value.status in PREPARED:
            decided[name] += 1
            found[name, decided[name]].decision = place
        elif change.value.status in _COMPLETE:
            completed[name] += 1
            found[name, completed[name]].completion = place


def _batches(store: Store, cut: PartitionCut) -> Iterator[RecordBatch]:
    for segment in cut.segments:
        yield from iter_batches(b"".join(store.read(segment.name)))
