"""Records of consumer groups against bytes that Kafka 4.3.1 wrote (kafka-4.3.1-consumer-groups.txt)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.golden import kafka_bytes

from muster_coordinator.records import consumer_group as r
from muster_coordinator.records import consumer_group_codec as codec
from muster_coordinator.records.errors import RecordDecodeError, UnsupportedValueVersionError

GOLDEN = kafka_bytes("records/kafka-4.3.1-consumer-groups.txt")
GROUP, MEMBER = "group-ä", "member-1"
T, U = bytes(range(1, 17)), b"\xff" * 7 + b"\xfe" + bytes(7) + b"\x05"

KEYS = {
    "metadata": (r.METADATA_TYPE, ""),
    "partition-metadata": (r.PARTITION_METADATA_TYPE, ""),
    "member": (r.MEMBER_TYPE, MEMBER),
    "target-metadata": (r.TARGET_METADATA_TYPE, ""),
    "target-member": (r.TARGET_MEMBER_TYPE, MEMBER),
    "current": (r.CURRENT_TYPE, MEMBER),
    "regex": (r.REGEX_TYPE, "foo|bar.*"),
}
VALUES: dict[str, tuple[str, Any]] = {
    "metadata": ("metadata", r.ConsumerGroupMetadataValue(3, -7_000_000_000)),
    "metadata-plain": ("metadata", r.ConsumerGroupMetadataValue(3)),
    "member": (
        "member",
        r.ConsumerGroupMemberValue(
            "instance", "rack", "client", "/10.0.0.1", ("bar", "foo"), "foo.*", 300_000, "uniform"
        ),
    ),
    "member-classic": (
        "member",
        r.ConsumerGroupMemberValue(
            None,
            None,
            "client",
            "/10.0.0.1",
            ("bar", "foo"),
            "",
            300_000,
            None,
            r.ClassicMemberMetadata(45_000, (("range", b"\0\1\2"), ("cooperative-sticky", bytes(200)))),
        ),
    ),
    "member-bare": ("member", r.ConsumerGroupMemberValue(None, None, "", "", (), None, -1, None)),
    "target-metadata": ("target-metadata", r.ConsumerGroupTargetMetadataValue(3, 1700000000123)),
    "target-metadata-plain": ("target-metadata", r.ConsumerGroupTargetMetadataValue(3)),
    "target-member": ("target-member", r.ConsumerGroupTargetMemberValue(((U, (17, 1)), (T, (0,))))),
    "target-member-empty": ("target-member", r.ConsumerGroupTargetMemberValue(())),
    "current": (
        "current",
        r.ConsumerGroupCurrentValue(
            3, 2, 1, (r.OwnedPartitions(T, (0, 1), (2, 3)),), (r.OwnedPartitions(U, (5,), (1,)),)
        ),
    ),
    "current-before-4.3": (
        "current",
        r.ConsumerGroupCurrentValue(3, 2, 127, (r.OwnedPartitions(T, (0, 1)),), ()),
    ),
    "regex": ("regex", r.ConsumerGroupRegexValue(("bar", "foo"), 10, 1700000000123)),
    "regex-empty": ("regex", r.ConsumerGroupRegexValue((), 0, -1)),
}


@pytest.mark.parametrize("name", KEYS)
def test_key_is_written_and_read_as_kafka_does(name: str) -> None:
    record_type, own = KEYS[name]
    assert codec.encode_consumer_group_key(record_type, GROUP, own) == GOLDEN[f"{name}-key"]
    tombstone = codec.decode_consumer_group_record(GOLDEN[f"{name}-key"], None)
    assert tombstone == r.ConsumerGroupRecord(record_type, GROUP, own, None)


@pytest.mark.parametrize("name", VALUES)
def test_value_is_written_and_read_as_kafka_does(name: str) -> None:
    key, value = VALUES[name]
    assert codec.encode_consumer_group_value(value) == GOLDEN[f"{name}-value"]
    record = codec.decode_consumer_group_record(GOLDEN[f"{key}-key"], GOLDEN[f"{name}-value"])
    assert record == r.ConsumerGroupRecord(*_key(key), value)


def _key(name: str) -> tuple[int, str, str]:
    record_type, own = KEYS[name]
    return record_type, GROUP, own


def test_topics_of_a_broker_before_4_1_are_read_past() -> None:
    record = codec.decode_consumer_group_record(GOLDEN["partition-metadata-key"], GOLDEN["partition-metadata-value"])
    assert record == r.ConsumerGroupRecord(*_key("partition-metadata"), None)


@pytest.mark.parametrize(
    "name", ["metadata-plain", "target-metadata-plain", "target-member", "current", "current-before-4.3", "regex"]
)
def test_tagged_field_of_a_later_release_is_dropped(name: str) -> None:
    key, value = VALUES[name]
    later = GOLDEN[f"{name}-value"][:-1] + b"\x01\x05\x03new"
    assert codec.decode_consumer_group_record(GOLDEN[f"{key}-key"], later).value == value


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, value in GOLDEN.items() if key.endswith("value")])
def test_value_of_another_version_is_refused_and_a_cut_one_too(key: str, value: bytes) -> None:
    name = key.removesuffix("-value")
    own = GOLDEN[f"{VALUES[name][0] if name in VALUES else name}-key"]
    with pytest.raises(UnsupportedValueVersionError):
        codec.decode_consumer_group_record(own, b"\x00\x01" + value[2:])
    for end in range(2 if name == "partition-metadata" else len(value)):
        with pytest.raises(RecordDecodeError):
            codec.decode_consumer_group_record(own, value[:end])


def test_member_without_the_tagged_field_is_a_classic_one_as_kafka_reads_it() -> None:
    """ConsumerGroupMemberMetadataValue has an empty structure for a default, and not null."""
    golden = GOLDEN["member-bare-value"]
    assert golden.endswith(b"\x01\x00\x01\x00")
    without = golden[:-4] + b"\x00"
    value = codec.decode_consumer_group_record(GOLDEN["member-key"], without).value
    assert isinstance(value, r.ConsumerGroupMemberValue)
    assert value.classic == r.ClassicMemberMetadata(0, ())
    assert codec.encode_consumer_group_value(value) == without


def test_epochs_that_are_not_as_many_as_partitions_are_none() -> None:
    value = r.ConsumerGroupCurrentValue(3, 2, 0, (r.OwnedPartitions(T, (0, 1), (2,)),), ())
    read = codec.decode_consumer_group_record(GOLDEN["current-key"], codec.encode_consumer_group_value(value)).value
    assert read == r.ConsumerGroupCurrentValue(3, 2, 0, (r.OwnedPartitions(T, (0, 1)),), ())


@pytest.mark.parametrize("name", ["metadata", "target-metadata"])
def test_tagged_number_of_another_size_is_refused(name: str) -> None:
    damaged = GOLDEN[f"{name}-plain-value"][:-1] + b"\x01\x00\x07" + bytes(7)
    with pytest.raises(RecordDecodeError, match="of 7 bytes"):
        codec.decode_consumer_group_record(GOLDEN[f"{name}-key"], damaged)


WORD = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.lists(INT32, max_size=130).map(tuple)
TOPIC_ID = st.binary(min_size=16, max_size=16)
OWNED = PARTITIONS.flatmap(
    lambda partitions: st.builds(
        r.OwnedPartitions,
        TOPIC_ID,
        st.just(partitions),
        st.none() | st.lists(INT32, min_size=len(partitions), max_size=len(partitions)).map(tuple),
    )
)
WORDS = st.lists(WORD, max_size=3).map(tuple)
ANY_VALUE: dict[int, st.SearchStrategy[Any]] = {
    r.METADATA_TYPE: st.builds(r.ConsumerGroupMetadataValue, INT32, INT64),
    r.MEMBER_TYPE: st.builds(
        r.ConsumerGroupMemberValue,
        st.none() | WORD,
        st.none() | WORD,
        WORD,
        WORD,
        WORDS,
        st.none() | WORD,
        INT32,
        st.none() | WORD,
        st.none()
        | st.builds(r.ClassicMemberMetadata, INT32, st.lists(st.tuples(WORD, st.binary()), max_size=3).map(tuple)),
    ),
    r.TARGET_METADATA_TYPE: st.builds(r.ConsumerGroupTargetMetadataValue, INT32, INT64),
    r.TARGET_MEMBER_TYPE: st.builds(
        r.ConsumerGroupTargetMemberValue, st.lists(st.tuples(TOPIC_ID, PARTITIONS), max_size=3).map(tuple)
    ),
    r.CURRENT_TYPE: st.builds(
        r.ConsumerGroupCurrentValue,
        INT32,
        INT32,
        st.integers(-128, 127),
        st.lists(OWNED, max_size=3).map(tuple),
        st.lists(OWNED, max_size=3).map(tuple),
    ),
    r.REGEX_TYPE: st.builds(r.ConsumerGroupRegexValue, WORDS, INT64, INT64),
}


@pytest.mark.parametrize("record_type", ANY_VALUE)
@given(data=st.data())
def test_what_was_written_is_read(record_type: int, data: st.DataObject) -> None:
    value, group, name = data.draw(ANY_VALUE[record_type]), data.draw(WORD), data.draw(WORD)
    key = codec.encode_consumer_group_key(record_type, group, name)
    record = codec.decode_consumer_group_record(key, codec.encode_consumer_group_value(value))
    assert (record.type, record.group_id, record.value) == (record_type, group, value)
    assert record.name in (name, "")


@pytest.mark.parametrize("record_type", ANY_VALUE)
@given(damaged=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(record_type: int, damaged: bytes) -> None:
    try:
        codec.decode_consumer_group_record(codec.encode_consumer_group_key(record_type, "g", "m"), b"\0\0" + damaged)
    except RecordDecodeError:
        pass
