"""Producer ids: each partition hands out those of a range that only its own log can have handed out (ADR 25).

The partition number decides the range, and the partition's log says up to where the range is used. A block of ids is
reserved by a record before the first of them is answered. So no two pods share an id: an answer leaves when the block
is committed, and a later leader begins after every committed block.

The record of a block is a TransactionLogValue of the empty transactional id, which no client can have: its producer id
is the end of the block. Kafka reads it as an id without a transaction.
"""

from __future__ import annotations

from muster_coordinator.records.transaction_log import (
    TransactionLogValue,
    TransactionRecord,
    TransactionStatus,
    encode_transaction_key,
    encode_transaction_value,
)
from muster_coordinator.state_machine import Record

BLOCK_SIZE = 1_000
"""Ids in a block (Kafka: ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE). A leader throws away what is left of one that it
finds."""

RANGE_BITS = 40
"""2^40 ids for each partition: a block for each second would last 34 years. The range below the first one is that of
Kafka brokers, whose logs may be loaded here."""

PARTITIONS_MAX = 2 ** (63 - RANGE_BITS) - 2
"""Partitions that have a range. The end of the last one still is an int64."""

BLOCK_ID = ""
"""The transactional id of the record. Kafka and Muster refuse it in requests."""


class ProducerIds:
    """`reserved_to`: ids from there on were never handed out. Only replay and `restore` change it."""

    def __init__(self, partition: int) -> None:
        """Raises ValueError for a partition number that has no range."""
        if not 0 <= partition < PARTITIONS_MAX:
            raise ValueError(f"partition {partition} has no range of producer ids: there are {PARTITIONS_MAX}")
        self._first = (partition + 1) << RANGE_BITS
        self._end = (partition + 2) << RANGE_BITS
        self.reserved_to = self._first
        self._next = self._first

    @property
    def is_used(self) -> bool:
        return self.reserved_to > self._first

    def replay(self, value: TransactionLogValue) -> None:
        """Apply the record of a block. One of another partition's log, which a re-shard carried here, says nothing."""
        self.restore(value.producer_id)

    def saw(self, producer_id: int) -> None:
        """A record has this id: it is handed out, also if a broker that ran on this log let the block's record
        expire."""
        if self._first <= producer_id < self._end:
            self.restore(producer_id + 1)

    def restore(self, reserved_to: int) -> None:
        if self._first < reserved_to <= self._end:
            self.reserved_to = max(self.reserved_to, reserved_to)

    def lead(self) -> None:
        """This pod leads now: what an earlier leadership has reserved may have been handed out."""
        self._next = self.reserved_to

    def take(self, now_ms: int) -> tuple[int, list[Record]] | None:
        """Returns an id that was never handed out, and the records that must come first; None: the range is used up.
        The caller appends the records, or this leadership ends."""
        producer_id = self._next
        if producer_id < self.reserved_to:
            self._next += 1
            return producer_id, []
        if producer_id >= self._end:
            return None
        self._next += 1
        return producer_id, [_block_record(min(producer_id + BLOCK_SIZE, self._end), now_ms)]


def _block_record(end: int, now_ms: int) -> Record:
    value = TransactionLogValue(end, -1, 0, TransactionStatus.EMPTY, (), now_ms, -1)
    return encode_transaction_key(BLOCK_ID), encode_transaction_value(value), TransactionRecord(BLOCK_ID, value)
