"""The tables of one partition of the transaction topic, and what the operations need besides."""

from __future__ import annotations

from muster_coordinator.records.batch import batch_bytes
from muster_coordinator.records.transaction_log import (
    TransactionLogValue,
    TransactionRecord,
    TransactionStatus,
    encode_transaction_key,
    encode_transaction_value,
)
from muster_coordinator.state_machine import Record, TimerKey
from muster_coordinator.transactions.config import TransactionConfig
from muster_coordinator.transactions.ports import MarkedTopics, MarkerWriter
from muster_coordinator.transactions.producer_ids import ProducerIds
from muster_coordinator.transactions.transitions import NO_EPOCH

Stored = tuple[int, TransactionLogValue]
"""(offset of the record in the log, value). The offset of a PREPARE record names the end of one transaction."""

EXPIRE_TIMER: TimerKey = ("expire", "")
"""Search for expired transactional ids."""

START_TIMER: TimerKey = ("start", "")
"""Timer after a load, for the transactional ids that were not looked at yet."""


def transaction_timer(transactional_id: str) -> TimerKey:
    """The timer of a transactional id: in Ongoing the end of its time, in PrepareCommit and PrepareAbort the
    next attempt to write markers."""
    return ("transaction", transactional_id)


class Counters:
    """Events since the tables were created."""

    __slots__ = ("aborts", "commits", "expired_ids", "producer_ids", "refused_markers", "timed_out")

    def __init__(self) -> None:
        self.aborts = 0
        self.commits = 0
        self.expired_ids = 0
        self.producer_ids = 0
        self.refused_markers = 0
        self.timed_out = 0


class Unmarked:
    """Partitions, as (topic, partition), of a prepared transaction: `missing` have no marker yet, as far as this
    leadership knows; `asked` are those of them for which an attempt is under way."""

    __slots__ = ("asked", "missing")

    def __init__(self, value: TransactionLogValue) -> None:
        self.missing = {(topic, partition) for topic, partitions in value.partitions for partition in partitions}
        self.asked: set[tuple[str, int]] = set()


class TransactionTables:
    """Data of one partition.

    Durable: `ids` and `producer_ids`. Live, from the load to the end of a leadership: `last_epochs`, the epoch before
    the present one where a producer may still repeat the call that ended it, which Kafka does not write to the log
    either; `unmarked`, what is known of the markers of prepared transactions.
    """

    __slots__ = (
        "config",
        "counters",
        "ids",
        "last_epochs",
        "marker_writer",
        "producer_ids",
        "status_counts",
        "topics",
        "unmarked",
    )

    def __init__(
        self, config: TransactionConfig, partition: int, topics: MarkedTopics, marker_writer: MarkerWriter
    ) -> None:
        self.config = config
        self.topics = topics
        self.marker_writer = marker_writer
        self.ids: dict[str, Stored] = {}  # changes in `store` only
        self.status_counts = dict.fromkeys(TransactionStatus, 0)
        self.producer_ids = ProducerIds(partition)
        self.last_epochs: dict[str, int] = {}
        self.unmarked: dict[str, Unmarked] = {}
        self.counters = Counters()

    def store(self, transactional_id: str, stored: Stored | None) -> None:
        """None: the id is forgotten."""
        before = self.ids.pop(transactional_id, None)
        if before is not None:
            self.status_counts[before[1].status] -= 1
        if stored is not None:
            self.ids[transactional_id] = stored
            self.status_counts[stored[1].status] += 1

    def value(self, transactional_id: str) -> TransactionLogValue | None:
        stored = self.ids.get(transactional_id)
        return None if stored is None else stored[1]

    def take_producer_id(self, now_ms: int) -> tuple[int, list[Record]] | None:
        """Like `ProducerIds.take`."""
        taken = self.producer_ids.take(now_ms)
        self.counters.producer_ids += taken is not None
        return taken

    def fits(self, records: list[Record]) -> bool:
        """True if the records of one operation fit into one batch."""
        return batch_bytes(records) <= self.config.max_record_bytes

    def remember_epoch(self, transactional_id: str, last_epoch: int) -> None:
        """The producer may repeat, with `last_epoch`, the call that gave it the present epoch. NO_EPOCH: it may not."""
        if last_epoch == NO_EPOCH:
            self.last_epochs.pop(transactional_id, None)
        else:
            self.last_epochs[transactional_id] = last_epoch

    def forget_live(self) -> None:
        self.last_epochs.clear()
        self.unmarked.clear()


def transaction_record(transactional_id: str, value: TransactionLogValue | None) -> Record:
    """Returns the record of a transactional id; its tombstone if `value` is None."""
    return (
        encode_transaction_key(transactional_id),
        None if value is None else encode_transaction_value(value),
        TransactionRecord(transactional_id, value),
    )
