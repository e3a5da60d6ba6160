"""The state machine behind a simulated log: the real coordinator, over real record bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.simulation.members import SESSION_MS

from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.consumer.config import ConsumerGroupConfig
from muster_coordinator.groups.coordinator import DurableState, GroupCoordinator
from muster_coordinator.partition_numbers import TRANSACTIONS, index_of
from muster_coordinator.records.batch import encode_batch, read_batch
from muster_coordinator.records.control import (
    EndTxnMarker,
    LeaderChange,
    ReplicaSet,
    decode_control,
    encode_leader_change,
    encode_replica_set,
)
from muster_coordinator.records.decode import Change, decode_record
from muster_coordinator.records.transaction_log import KEY_VERSION, TransactionRecord, decode_transaction_record
from muster_coordinator.replication.messages import Batch
from muster_coordinator.replication.sets import Sets
from muster_coordinator.state_machine import Record, Token
from muster_coordinator.transactions import coordinator as transactions
from muster_coordinator.transactions.config import TransactionConfig

__all__ = [
    "CONFIG",
    "CONSUMER_CONFIG",
    "Decoded",
    "Machine",
    "State",
    "decode_batch",
    "leader_change",
    "make_batch",
    "replica_set",
]

State = DurableState | transactions.DurableState

CONFIG = GroupConfig(
    min_session_timeout_ms=1,
    initial_rebalance_delay_ms=30,
    offsets_retention_check_interval_ms=2_000,
    unpacked_groups=1,
)
CONSUMER_CONFIG = ConsumerGroupConfig(
    session_timeout_ms=SESSION_MS, assignment_interval_ms=50, regex_refresh_min_interval_ms=100
)
_PART_ENTRIES = 8
_TRANSACTION_KEY = KEY_VERSION.to_bytes(2, "big")
"""How keys of the transaction topic begin. Muster writes none of the other topic in that version."""


class _AllTopics:
    def has(self, topic: str, partition: int) -> bool:
        return True

    def id_of(self, topic: str) -> bytes:
        return b"the id of topics"


class _NoSurroundings:
    """Of a transaction coordinator that only replays."""

    holds_transactions = False

    def takes_markers(self, topic: str) -> bool:
        raise NotImplementedError

    def has(self, topic: str, partition: int) -> bool:
        raise NotImplementedError

    def partition_of_group(self, group_id: str) -> tuple[str, int] | None:
        raise NotImplementedError

    def attempt(self, request: object) -> Token:
        raise NotImplementedError


@dataclass(frozen=True)
class Decoded:
    """``changes``: (change, offset, timestamp in ms). ``marker``: of a transaction that ends here."""

    changes: list[tuple[Change | TransactionRecord, int, int]]
    producer_id: int
    producer_epoch: int
    marker: EndTxnMarker | None
    sets: Sets | None
    opens: bool = False  # an epoch


_decoded: dict[bytes, Decoded] = {}
_DECODED_MAX = 20_000


def decode_batch(data: bytes) -> Decoded:
    """Every replica decodes the same bytes, and after each restart again: kept, as decoding has no state."""
    found = _decoded.get(data)
    if found is None:
        if len(_decoded) >= _DECODED_MAX:
            _decoded.clear()
        found = _decoded[data] = _decode(data)
    return found


def _decode(data: bytes) -> Decoded:
    batch = read_batch(data)
    assert len(batch.data) == len(data), "more than one batch"
    producer = (batch.producer_id, batch.producer_epoch) if batch.is_transactional else (-1, -1)
    if not batch.is_control:
        changes = [(_decode_record(one.key, one.value), one.offset, one.timestamp_ms) for one in batch.records()]
        return Decoded(changes, *producer, None, None)
    marker: EndTxnMarker | None = None
    sets: Sets | None = None
    opens = False
    for record in batch.records():
        match decode_control(record.key, record.value):
            case EndTxnMarker() as found:
                marker = found
            case LeaderChange(replicas=replicas, previous_replicas=previous, loss_epoch=loss_epoch):
                sets = Sets(replicas, previous, loss_epoch)
                opens = True
            case ReplicaSet(replicas=replicas):
                sets = Sets(replicas)
    return Decoded([], *producer, marker, sets, opens)


def _decode_record(key: bytes | None, value: bytes | None) -> Change | TransactionRecord:
    if key is not None and key[:2] == _TRANSACTION_KEY:
        return decode_transaction_record(key, value)  # type: ignore[no-any-return]
    return decode_record(key, value)


def make_batch(
    records: list[Record],
    base_offset: int,
    epoch: int,
    wall_ms: int,
    producer: tuple[int, int] = (-1, -1),
    *,
    control: bool = False,
) -> Batch:
    data = encode_batch(
        records,
        base_offset=base_offset,
        leader_epoch=epoch,
        timestamp_ms=wall_ms,
        producer_id=producer[0],
        producer_epoch=producer[1],
        transactional=producer[0] >= 0,
        control=control,
    )
    return Batch(base_offset, base_offset + len(records), epoch, data, decode_batch(data).sets if control else None)


def leader_change(leader: str, sets: Sets) -> Record:
    return (*encode_leader_change(LeaderChange(leader, sets.replicas, sets.previous_replicas, sets.loss_epoch)), None)


def replica_set(replicas: tuple[str, ...]) -> Record:
    return (*encode_replica_set(ReplicaSet(replicas)), None)


class Machine:
    """``replayed``: offset up to which the log is in the state; 0 and an empty state at first. `number`: of the
    partition."""

    def __init__(self, random: Random, number: int = 0) -> None:
        self._random = random
        self._number = number
        self.reset()

    def reset(self) -> None:
        self.replayed = 0
        self.coordinator = self._new_coordinator()

    def _new_coordinator(self) -> Any:
        if self._number in TRANSACTIONS.numbers:
            none = _NoSurroundings()
            return transactions.TransactionCoordinator(TransactionConfig(), index_of(self._number), none, none)
        return GroupCoordinator(CONFIG, _AllTopics(), lambda: f"{self._random.getrandbits(64):016x}")

    def replay(self, batch: Batch) -> None:
        decoded = decode_batch(batch.data)
        coordinator = self.coordinator
        producer = decoded.producer_id, decoded.producer_epoch
        for change, offset, timestamp_ms in decoded.changes:
            coordinator.replay(change, offset, timestamp_ms, *producer)
        if decoded.marker is not None:
            marker = decoded.marker
            coordinator.replay_transaction_marker(
                *producer, marker.committed, batch.base_offset, marker.coordinator_epoch
            )
        self.replayed = batch.end_offset

    def replay_to(self, batches: Iterable[Batch], end: int) -> None:
        """``batches`` begin where the state ends; the last ones up to ``end`` may be missing in a cleaned log."""
        for batch in batches:
            if batch.end_offset > end:
                break
            self.replay(batch)
        self.replayed = max(self.replayed, end)

    def state(self) -> State:
        state: State = self.coordinator.durable_state()
        return state

    def snapshot(self) -> tuple[bytes, ...]:
        return tuple(self.coordinator.snapshot(_PART_ENTRIES))

    def restore(self, parts: tuple[bytes, ...], offset: int) -> None:
        self.reset()
        for part in parts:
            self.coordinator.restore(part)
        self.replayed = offset
