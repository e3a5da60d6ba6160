"""Random histories of an offsets partition, what replaying batches gives, and when compaction kept the meaning."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.groups.durable_state import DurableState
from muster_coordinator.records.batch import RecordBatch, encode_batch
from muster_coordinator.records.control import (
    EndTxnMarker,
    LeaderChange,
    decode_control,
    encode_end_txn_marker,
    encode_leader_change,
)
from muster_coordinator.records.decode import decode_record
from muster_coordinator.records.group_metadata import (
    GroupMetadataValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
)
from muster_coordinator.records.offset_commit import encode_offset_commit_key, encode_offset_commit_value
from muster_coordinator.records.structs import OffsetCommitValue

RETENTION_MS = 1000

GROUPS = st.sampled_from(["g1", "g2"])
PRODUCERS = st.integers(1, 2)
OFFSET = st.tuples(GROUPS, st.integers(0, 1), st.integers(0, 99), st.booleans())  # group, partition, value, old key

Step = tuple[object, ...]
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("put"), st.lists(OFFSET, min_size=1, max_size=3)),
    st.tuples(st.just("remove"), st.lists(OFFSET, min_size=1, max_size=2)),
    st.tuples(st.just("pending"), st.lists(OFFSET, min_size=1, max_size=2), PRODUCERS),
    st.tuples(st.just("pending"), st.lists(OFFSET, min_size=1, max_size=2), PRODUCERS),
    st.tuples(st.just("marker"), PRODUCERS, st.booleans()),
    st.tuples(st.just("group"), GROUPS, st.integers(1, 9)),
    st.tuples(st.just("delete group"), GROUPS),
    st.tuples(st.just("leader change")),
    st.tuples(st.just("wait"), st.integers(1, 2 * RETENTION_MS)),
)
HISTORIES = st.lists(STEPS, min_size=1, max_size=25)


class NoTopics:
    def has(self, topic: str, partition: int) -> bool:
        return True

    def id_of(self, topic: str) -> bytes:
        return b"the id of topics"


class History:
    """Turns steps into batches, one behind the other. `now_ms`: when the next one is written."""

    def __init__(self) -> None:
        self.now_ms = 10_000
        self.epoch = 1
        self.end_offset = 0

    def batch(self, step: Step) -> bytes | None:
        """None for a step that writes nothing."""
        kind, *rest = step
        self.now_ms += 1
        if kind == "wait":
            self.now_ms += int(str(rest[0]))
            return None
        if kind == "marker":
            return self._encode(
                [encode_end_txn_marker(EndTxnMarker(bool(rest[1]), 0))], int(str(rest[0])), control=True
            )
        if kind == "leader change":
            self.epoch += 1
            return self._encode([encode_leader_change(LeaderChange("a", ("a",)))], control=True)
        if kind == "group":
            value = GroupMetadataValue("consumer", int(str(rest[1])), None, None, self.now_ms, ())
            return self._encode([(encode_group_metadata_key(str(rest[0])), encode_group_metadata_value(value))])
        if kind == "delete group":  # as groups.deletion does: its offsets first
            offsets = [_offset_record((str(rest[0]), p, 0, False), self.now_ms, put=False) for p in (0, 1)]
            return self._encode([*offsets, (encode_group_metadata_key(str(rest[0])), None)])
        if kind == "remove group":
            return self._encode([(encode_group_metadata_key(str(rest[0])), None)])
        records = [_offset_record(each, self.now_ms, kind != "remove") for each in rest[0]]  # type: ignore[attr-defined] # a list of OFFSET
        return self._encode(records, int(str(rest[1])) if kind == "pending" else -1)

    def _encode(
        self,
        records: list[tuple[bytes, bytes]] | list[tuple[bytes, bytes | None]],
        producer: int = -1,
        *,
        control: bool = False,
    ) -> bytes:
        data = encode_batch(
            records,
            base_offset=self.end_offset,
            leader_epoch=self.epoch,
            timestamp_ms=self.now_ms,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            transactional=producer >= 0,
            control=control,
        )
        self.end_offset += len(records)
        return data


def _offset_record(offset: tuple[str, int, int, bool], now_ms: int, put: bool) -> tuple[bytes, bytes | None]:
    group, partition, value, old = offset
    key = encode_offset_commit_key(group, "t", partition)
    if old:
        key = b"\0\0" + key[2:]
    return key, encode_offset_commit_value(OffsetCommitValue(value, -1, "", now_ms)) if put else None


def state_of(batches: Iterable[RecordBatch], coordinator: GroupCoordinator | None = None) -> DurableState:
    """What `replica.loading` makes of them."""
    coordinator = coordinator or GroupCoordinator(GroupConfig(), NoTopics(), lambda: "")
    for batch in batches:
        producer = (batch.producer_id, batch.producer_epoch) if batch.is_transactional else (-1, -1)
        for record in batch.records():
            if batch.is_control:
                marker = decode_control(record.key, record.value)
                if isinstance(marker, EndTxnMarker):
                    coordinator.replay_transaction_marker(
                        *producer, marker.committed, record.offset, marker.coordinator_epoch
                    )
            else:
                coordinator.replay(
                    decode_record(record.key, record.value), record.offset, record.timestamp_ms, *producer
                )
    return coordinator.durable_state()


def assert_same(compacted: DurableState, original: DurableState) -> None:
    """Equal but for what `DurableState` lets compaction forget."""
    assert (compacted.groups, compacted.committed, compacted.pending) == (
        original.groups,
        original.committed,
        original.pending,
    )
    with_offsets = {key[0] for key in original.committed} | {key[1] for key in original.pending}
    assert compacted.implied_groups <= original.implied_groups
    assert original.implied_groups & with_offsets == compacted.implied_groups & with_offsets
    assert compacted.producer_epochs.items() <= original.producer_epochs.items()
    assert compacted.coordinator_epochs.items() <= original.coordinator_epochs.items()
