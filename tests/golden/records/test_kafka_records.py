"""Our record codec against bytes that Kafka 4.3.1 wrote (kafka-4.3.1.txt)."""

from __future__ import annotations

import pytest
from tests.support.golden import kafka_bytes

from muster_coordinator.records import control
from muster_coordinator.records.batch import BatchRecord, CorruptBatchError, encode_batch, read_batch
from muster_coordinator.records.consumer_group import (
    ConsumerGroupCurrentValue,
    ConsumerGroupRecord,
    ConsumerGroupTargetMetadataValue,
)
from muster_coordinator.records.decode import RECORD_TYPE_NAMES, UnknownRecord, decode_record
from muster_coordinator.records.errors import RecordDecodeError
from muster_coordinator.records.group_metadata import (
    GroupMember,
    GroupMetadataRecord,
    GroupMetadataValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
)
from muster_coordinator.records.offset_commit import (
    decode_offset_commit_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from muster_coordinator.records.structs import NO_TOPIC_ID, OffsetCommitRecord, OffsetCommitValue

GOLDEN = kafka_bytes("records/kafka-4.3.1.txt")
TIMESTAMP_MS = 1700000000123
THREE_TIMES = [
    BatchRecord(42, TIMESTAMP_MS, b"a", b"1"),
    BatchRecord(43, 1700000000000, b"b", b"2"),
    BatchRecord(44, 1700000009999, b"c", b"3"),
]


TOPIC_ID = bytes(range(1, 17))


def offset_value(version: int, topic_id: bytes = NO_TOPIC_ID) -> OffsetCommitValue:
    return OffsetCommitValue(
        1234567890123,
        9 if version >= 3 else -1,
        "meta-ü",
        TIMESTAMP_MS,
        1700000099999 if version == 1 else -1,
        topic_id,
    )


def group_value(version: int) -> GroupMetadataValue:
    members = tuple(
        GroupMember(
            member_id=f"member-{i}",
            group_instance_id="instance-0" if version >= 3 and i == 0 else None,
            client_id="client",
            client_host="/10.0.0.1",
            rebalance_timeout_ms=300000 if version >= 1 else -1,
            session_timeout_ms=45000,
            subscription=b"\0\1\2",
            assignment=b"" if i == 0 else b"\3\4",
        )
        for i in range(2)
    )
    return GroupMetadataValue("consumer", 17, "range", "member-0", 1700000000456 if version >= 2 else -1, members)


@pytest.mark.parametrize("version", range(5))
def test_offset_commit_of_every_version_decodes(version: int) -> None:
    change = decode_record(GOLDEN["offset-commit-key"], GOLDEN[f"offset-commit-value-{version}"])
    assert change == OffsetCommitRecord("group-ä", "topic", 3, offset_value(version))


@pytest.mark.parametrize("version", [1, 4])
def test_offset_commit_value_is_written_as_kafka_writes_it(version: int) -> None:
    assert encode_offset_commit_value(offset_value(version)) == GOLDEN[f"offset-commit-value-{version}"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("topic-id", offset_value(4, TOPIC_ID)),
        ("long-metadata", OffsetCommitValue(5, -1, "m" * 200, 1, topic_id=TOPIC_ID)),
        ("empty-metadata", OffsetCommitValue(5, -1, "", 1)),
        ("empty-metadata-topic-id", OffsetCommitValue(5, -1, "", 1, topic_id=TOPIC_ID)),
    ],
)
def test_offset_commit_value_with_what_kafka_can_leave_out_is_written_and_read_as_kafka_does(
    name: str, value: OffsetCommitValue
) -> None:
    golden = GOLDEN[f"offset-commit-value-4-{name}"]
    assert encode_offset_commit_value(value) == golden
    assert decode_offset_commit_value(golden) == value


def test_offset_commit_key_is_written_as_kafka_writes_it() -> None:
    assert encode_offset_commit_key("group-ä", "topic", 3) == GOLDEN["offset-commit-key"]


def test_offset_commit_with_a_tagged_field_of_a_later_release_is_read_without_it() -> None:
    golden = GOLDEN["offset-commit-value-4-empty-metadata-topic-id"]
    later = golden[:23] + b"\x02\x00\x10" + TOPIC_ID + b"\x05\x03new"
    assert decode_offset_commit_value(later) == OffsetCommitValue(5, -1, "", 1, topic_id=TOPIC_ID)
    without_id = golden[:23] + b"\x01\x05\x03new"
    assert decode_offset_commit_value(without_id) == OffsetCommitValue(5, -1, "", 1)


@pytest.mark.parametrize("size", [15, 17])
def test_topic_id_of_another_size_is_refused(size: int) -> None:
    value = GOLDEN["offset-commit-value-4-empty-metadata"][:23] + b"\x01\x00" + bytes([size]) + bytes(size)
    with pytest.raises(RecordDecodeError, match=f"topic id of {size} bytes"):
        decode_offset_commit_value(value)


def test_legacy_offset_key_decodes_like_the_present_one() -> None:
    legacy = b"\0\0" + GOLDEN["offset-commit-key"][2:]
    assert decode_record(legacy, None) == OffsetCommitRecord("group-ä", "topic", 3, None)


@pytest.mark.parametrize("version", range(5))
def test_group_metadata_of_every_version_decodes(version: int) -> None:
    change = decode_record(GOLDEN["group-metadata-key"], GOLDEN[f"group-metadata-value-{version}"])
    assert change == GroupMetadataRecord("group-ä", group_value(version))


def test_group_metadata_is_written_as_kafka_writes_it() -> None:
    empty = GroupMetadataValue("", 0, None, None, 1, ())
    assert encode_group_metadata_key("group-ä") == GOLDEN["group-metadata-key"]
    assert encode_group_metadata_value(group_value(3)) == GOLDEN["group-metadata-value-3"]
    assert encode_group_metadata_value(empty) == GOLDEN["group-metadata-value-3-empty"]


def test_record_of_another_protocol_is_unknown_with_a_name() -> None:
    key = GOLDEN["streams-group-metadata-key"]
    change = decode_record(key, GOLDEN.get("streams-group-metadata-value", b"anything"))
    assert change == UnknownRecord(int.from_bytes(key[:2], "big"), "StreamsGroupMetadata")


@pytest.mark.parametrize(
    ("name", "value_type"),
    [
        ("consumer-group-target-assignment-metadata", ConsumerGroupTargetMetadataValue),
        ("consumer-group-current-member-assignment", ConsumerGroupCurrentValue),
    ],
)
def test_record_of_a_consumer_group_is_read_whatever_its_tagged_fields(name: str, value_type: type) -> None:
    change = decode_record(GOLDEN[f"{name}-key"], GOLDEN[f"{name}-value"])
    assert isinstance(change, ConsumerGroupRecord)
    assert isinstance(change.value, value_type)


def test_every_record_type_of_kafka_is_known_by_name() -> None:
    types = {
        int.from_bytes(value, "big"): "".join(word.capitalize() for word in name[len("record-type-") :].split("_"))
        for name, value in GOLDEN.items()
        if name.startswith("record-type-")
    }
    assert types == {number: name for number, name in RECORD_TYPE_NAMES.items() if number in types}
    assert set(types) == set(range(24)) - {9, 18}, "4.3.1 has 0 to 23, without two that are not used any more"


@pytest.mark.parametrize(
    ("name", "records"),
    [
        ("batch-one", [(b"key", b"value")]),
        ("batch-tombstone-and-large", [(b"key", b"value"), (b"k" * 100, None), (b"key3", b"v" * 9000)]),
    ],
)
def test_batch_is_written_as_kafka_writes_it(name: str, records: list[tuple[bytes, bytes | None]]) -> None:
    assert encode_batch(records, base_offset=42, leader_epoch=7, timestamp_ms=TIMESTAMP_MS) == GOLDEN[name]


def test_transactional_batch_is_written_as_kafka_writes_it() -> None:
    batch = encode_batch(
        [(b"key", b"value")],
        base_offset=42,
        leader_epoch=7,
        timestamp_ms=TIMESTAMP_MS,
        producer_id=1000,
        producer_epoch=5,
        transactional=True,
    )
    assert batch == GOLDEN["batch-transactional"]


@pytest.mark.parametrize("committed", [False, True])
def test_end_transaction_marker_is_written_as_kafka_writes_it(committed: bool) -> None:
    marker = control.EndTxnMarker(committed, 11)
    batch = encode_batch(
        [control.encode_end_txn_marker(marker)],
        base_offset=42,
        leader_epoch=7,
        timestamp_ms=TIMESTAMP_MS,
        producer_id=1000,
        producer_epoch=5,
        transactional=True,
        control=True,
    )
    assert batch == GOLDEN["batch-end-txn-commit" if committed else "batch-end-txn-abort"]
    [record] = read_batch(batch).records()
    assert control.decode_control(record.key, record.value) == marker


def test_leader_change_of_kafka_decodes_with_empty_sets() -> None:
    batch = read_batch(GOLDEN["batch-leader-change"])
    [record] = batch.records()
    assert batch.is_control
    assert not batch.is_transactional
    assert control.decode_control(record.key, record.value) == control.LeaderChange("", ())


@pytest.mark.parametrize("codec", ["timestamps", "gzip", "snappy", "lz4", "zstd"])
def test_batch_of_every_codec_decodes(codec: str) -> None:
    assert read_batch(GOLDEN[f"batch-{codec}"]).records() == THREE_TIMES


def test_batch_with_record_headers_decodes_without_them() -> None:
    assert read_batch(GOLDEN["batch-with-headers"]).records() == [BatchRecord(42, TIMESTAMP_MS, b"key", b"value")]


def test_batch_emptied_by_compaction_keeps_its_offsets() -> None:
    batch = read_batch(GOLDEN["batch-emptied-by-compaction"])
    assert (batch.base_offset, batch.end_offset, batch.records()) == (42, 50, [])


@pytest.mark.parametrize("name", sorted(n for n in GOLDEN if n.startswith("batch-") and len(GOLDEN[n]) < 1000))
def test_batch_with_any_byte_flipped_behind_the_epoch_is_corrupt(name: str) -> None:
    golden = GOLDEN[name]
    for position in range(16, len(golden)):
        damaged = bytearray(golden)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptBatchError):
            read_batch(bytes(damaged))


@pytest.mark.parametrize("name", sorted(n for n in GOLDEN if n.startswith("batch-")))
def test_batch_cut_anywhere_is_truncated(name: str) -> None:
    golden = GOLDEN[name]
    for size in {*range(min(len(golden), 120)), len(golden) - 1}:
        with pytest.raises(CorruptBatchError) as caught:
            read_batch(golden[:size])
        assert caught.value.truncated
