"""Record keys and values: round trips, versions, and bytes that are no record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.records.control import (
    LeaderChange,
    ReplicaSet,
    UnknownControl,
    decode_control,
    encode_leader_change,
    encode_replica_set,
)
from muster_coordinator.records.decode import (
    RECORD_TYPE_NAMES,
    LogDecoder,
    RecordDecodeError,
    UnknownRecord,
    decode_record,
)
from muster_coordinator.records.errors import UnsupportedValueVersionError
from muster_coordinator.records.group_metadata import (
    GroupMember,
    GroupMetadataRecord,
    GroupMetadataValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
)
from muster_coordinator.records.offset_commit import encode_offset_commit_key, encode_offset_commit_value
from muster_coordinator.records.structs import NO_TOPIC_ID, OffsetCommitRecord, OffsetCommitValue

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
MEMBERS = st.builds(
    GroupMember, TEXT, st.none() | TEXT, TEXT, TEXT, INT32, INT32, st.binary(max_size=60), st.binary(max_size=60)
)
GROUP_VALUES = st.builds(
    GroupMetadataValue, TEXT, INT32, st.none() | TEXT, st.none() | TEXT, INT64, st.lists(MEMBERS).map(tuple)
)
OFFSET_KEY = encode_offset_commit_key("g", "t", 0)
GROUP_KEY = encode_group_metadata_key("g")


TOPIC_IDS = st.just(NO_TOPIC_ID) | st.binary(min_size=16, max_size=16)


@given(TEXT, TEXT, INT32, st.builds(OffsetCommitValue, INT64, INT32, TEXT, INT64, topic_id=TOPIC_IDS))
def test_offset_commit_decodes_to_the_change_that_was_encoded(
    group_id: str, topic: str, partition: int, value: OffsetCommitValue
) -> None:
    key = encode_offset_commit_key(group_id, topic, partition)
    assert decode_record(key, encode_offset_commit_value(value)) == OffsetCommitRecord(
        group_id, topic, partition, value
    )
    assert decode_record(key, None) == OffsetCommitRecord(group_id, topic, partition, None)


@given(TEXT, INT64, INT64, st.integers(0, 2**62))
def test_offset_commit_with_an_expire_timestamp_loses_only_the_leader_epoch(
    metadata: str, offset: int, commit_ms: int, expire_ms: int
) -> None:
    value = OffsetCommitValue(offset, 5, metadata, commit_ms, expire_ms)
    change = decode_record(OFFSET_KEY, encode_offset_commit_value(value))
    assert change == OffsetCommitRecord("g", "t", 0, OffsetCommitValue(offset, -1, metadata, commit_ms, expire_ms))


@given(TEXT, GROUP_VALUES)
def test_group_metadata_decodes_to_the_change_that_was_encoded(group_id: str, value: GroupMetadataValue) -> None:
    key = encode_group_metadata_key(group_id)
    assert decode_record(key, encode_group_metadata_value(value)) == GroupMetadataRecord(group_id, value)
    assert decode_record(key, None) == GroupMetadataRecord(group_id, None)


@pytest.mark.parametrize("key", [OFFSET_KEY, GROUP_KEY], ids=["offset", "group"])
@pytest.mark.parametrize("version", [b"\0\5", b"\x7f\xff", b"\xff\xff"], ids=["5", "32767", "-1"])
def test_unknown_value_version_is_unsupported(key: bytes, version: bytes) -> None:
    with pytest.raises(UnsupportedValueVersionError):
        decode_record(key, version + bytes(100))


@pytest.mark.parametrize("record_type", [*range(9, 16), *range(17, 25), 25, 32767, -1])
def test_other_record_type_is_unknown_with_kafkas_name(record_type: int) -> None:
    change = decode_record(record_type.to_bytes(2, "big", signed=True) + b"?", None)
    assert change == UnknownRecord(record_type, RECORD_TYPE_NAMES.get(record_type, ""))


@pytest.mark.parametrize("key", [None, b"", b"\0"], ids=["null", "empty", "one byte"])
def test_record_without_a_key_is_refused(key: bytes | None) -> None:
    with pytest.raises(RecordDecodeError):
        decode_record(key, b"")


def cut_everywhere(data: bytes) -> list[bytes]:
    return [data[:size] for size in range(len(data))]


def test_key_or_value_cut_anywhere_is_refused() -> None:
    member = GroupMember("m", "i", "c", "h", 1, 2, b"s", b"a")
    values = [
        (OFFSET_KEY, encode_offset_commit_value(OffsetCommitValue(1, 2, "metadata", 3))),
        (OFFSET_KEY, encode_offset_commit_value(OffsetCommitValue(1, 2, "", 3, topic_id=b"the id of topics"))),
        (GROUP_KEY, encode_group_metadata_value(GroupMetadataValue("consumer", 1, "range", "m", 5, (member,)))),
    ]
    for key, value in values:
        for damaged in cut_everywhere(value):
            with pytest.raises(RecordDecodeError):
                decode_record(key, damaged)
        for damaged in cut_everywhere(key):
            with pytest.raises(RecordDecodeError):
                decode_record(damaged, value)


@given(st.sampled_from([OFFSET_KEY, GROUP_KEY]), st.integers(0, 4), st.binary(max_size=120))
def test_any_value_decodes_or_is_refused(key: bytes, version: int, body: bytes) -> None:
    try:
        decode_record(key, version.to_bytes(2, "big") + body)
    except RecordDecodeError:
        pass


def test_array_length_beyond_the_value_allocates_nothing_and_is_refused() -> None:
    value = bytearray(encode_group_metadata_value(GroupMetadataValue("", 0, None, None, 0, ())))
    value[-4:] = b"\x7f\xff\xff\xff"
    with pytest.raises(RecordDecodeError, match="array of 2147483647"):
        decode_record(GROUP_KEY, bytes(value))


@pytest.mark.parametrize("length", [32768, 100000])
def test_string_that_its_length_field_cannot_hold_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="32767"):
        encode_offset_commit_value(OffsetCommitValue(1, 1, "x" * length, 1))
    with pytest.raises(ValueError, match="32767"):
        encode_offset_commit_key("x" * length, "t", 0)


LOG_IDS = st.lists(st.text("0123456789abcdef", min_size=32, max_size=32), max_size=9).map(tuple)


@given(st.text("0123456789abcdef", min_size=32, max_size=32), LOG_IDS, LOG_IDS, st.integers(-1, 2**31 - 1))
def test_leader_change_reads_back(
    leader: str, replicas: tuple[str, ...], previous: tuple[str, ...], loss_epoch: int
) -> None:
    change = LeaderChange(leader, replicas, previous, loss_epoch)
    assert decode_control(*encode_leader_change(change)) == change


@given(LOG_IDS)
def test_replica_set_reads_back(replicas: tuple[str, ...]) -> None:
    assert decode_control(*encode_replica_set(ReplicaSet(replicas))) == ReplicaSet(replicas)


@pytest.mark.parametrize(
    "encoded",
    [
        encode_leader_change(LeaderChange("a" * 32, ("a" * 32,))),
        encode_leader_change(LeaderChange("a" * 32, ("a" * 32,), (), 12)),
        encode_replica_set(ReplicaSet(("a" * 32,))),
    ],
    ids=["leader change", "leader change after a loss", "replica set"],
)
def test_control_record_cut_anywhere_is_refused(encoded: tuple[bytes, bytes]) -> None:
    key, value = encoded
    for damaged in cut_everywhere(value):
        with pytest.raises(RecordDecodeError):
            decode_control(key, damaged)


def test_control_record_of_another_type_is_unknown() -> None:
    assert decode_control(b"\0\0\0\7", None) == UnknownControl(7)


def test_control_value_of_a_later_version_is_unsupported() -> None:
    key, value = encode_replica_set(ReplicaSet(()))
    with pytest.raises(UnsupportedValueVersionError):
        decode_control(key, b"\0\1" + value[2:])


@pytest.mark.parametrize("names_max", [LogDecoder.NAMES_MAX, 4])
def test_log_decoder_gives_what_decode_record_gives_beyond_its_bound_too(
    monkeypatch: pytest.MonkeyPatch, names_max: int
) -> None:
    monkeypatch.setattr(LogDecoder, "NAMES_MAX", names_max)
    decoder = LogDecoder()
    value = encode_offset_commit_value(OffsetCommitValue(1, -1, "", 0))
    names = [("g", "t"), ("", "gt"), ("gt", ""), ("g", "tt"), ("é", "t"), ("g\0", "t")]
    keys = [encode_offset_commit_key(*each, partition) for partition in (0, 7, -1) for each in names]
    for _ in range(3):
        for key in [GROUP_KEY, *keys]:
            for each in (None, value) if key != GROUP_KEY else (None,):
                assert decoder.decode(key, each) == decode_record(key, each)


def test_log_decoder_is_not_misled_by_bytes_behind_the_partition() -> None:
    decoder = LogDecoder()
    longer = [encode_offset_commit_key("g", "t", 7) + bytes([0, 0, 0, last]) for last in (1, 2)]
    for key in (*longer, OFFSET_KEY, *longer):
        assert decoder.decode(key, None) == decode_record(key, None)


def test_log_decoder_refuses_a_key_cut_anywhere() -> None:
    decoder = LogDecoder()
    decoder.decode(OFFSET_KEY, None)
    for damaged in cut_everywhere(OFFSET_KEY)[2:]:
        with pytest.raises(RecordDecodeError):
            decoder.decode(damaged, None)
