"""Segments for tests: batches of any records, right or wrong, as hypothesis strategies and as plain functions."""

from __future__ import annotations

import struct
from typing import Any

import cramjam
from crc32c import crc32c
from hypothesis import strategies as st

from muster_coordinator.records.batch import HEADER_BYTES, encode_batch
from muster_coordinator.records.consumer_group import (
    TYPES,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegexValue,
    ConsumerGroupTargetMemberValue,
)
from muster_coordinator.records.consumer_group_codec import encode_consumer_group_key, encode_consumer_group_value
from muster_coordinator.records.control import (
    EndTxnMarker,
    LeaderChange,
    ReplicaSet,
    encode_end_txn_marker,
    encode_leader_change,
    encode_replica_set,
)
from muster_coordinator.records.group_metadata import (
    GroupMember,
    GroupMetadataValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
)
from muster_coordinator.records.offset_commit import encode_offset_commit_key, encode_offset_commit_value
from muster_coordinator.records.structs import NO_TOPIC_ID, OffsetCommitValue
from muster_coordinator.records.varint import encode_varint

KeyValue = tuple[bytes | None, bytes | None]

names = st.text(max_size=12) | st.sampled_from(["group", "orders", "ä" * 40])
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
offset_keys = st.builds(encode_offset_commit_key, names, names, int32s) | st.builds(
    lambda key: b"\0\0" + key[2:], st.builds(encode_offset_commit_key, names, names, int32s)
)
group_keys = st.builds(encode_group_metadata_key, names)
values_written = st.builds(
    encode_offset_commit_value,
    st.builds(
        OffsetCommitValue,
        int64s,
        int32s,
        names | st.just("m" * 130),
        int64s,
        int64s | st.just(-1),
        st.sampled_from([NO_TOPIC_ID, b"the id of topics"]),
    ),
)


@st.composite
def old_and_new_values(draw: st.DrawFn) -> bytes:
    """Value versions that are not written any more, or not yet."""
    version = draw(st.sampled_from([0, 2, 3, 4, 5, -1]))
    metadata = draw(names).encode()
    offset, commit = struct.pack(">q", draw(int64s)), struct.pack(">q", draw(int64s))
    if version == 4:
        tagged = draw(
            st.sampled_from([b"\0", b"\0more", b"\1\5\2ab", b"\1\0\x10" + bytes(15), b"\1\0\x11" + bytes(17)])
        )
        body = offset + struct.pack(">i", draw(int32s)) + bytes([len(metadata) + 1]) + metadata + commit + tagged
    else:
        body = offset + struct.pack(">h", len(metadata)) + metadata + commit
    return struct.pack(">h", version) + body


members = st.builds(
    GroupMember,
    names,
    st.none() | names,
    names,
    names,
    int32s,
    int32s,
    st.binary(max_size=9),
    st.binary(max_size=9),
)
group_values = st.builds(
    encode_group_metadata_value,
    st.builds(
        GroupMetadataValue,
        names,
        int32s,
        st.none() | names,
        st.none() | names,
        int64s,
        st.lists(members, max_size=3).map(tuple),
    ),
)


@st.composite
def mangled(draw: st.DrawFn, source: st.SearchStrategy[bytes]) -> bytes:
    """Bytes cut short, with something behind, or with one byte changed."""
    data = draw(source)
    cut = draw(st.integers(0, len(data)))
    replaced = data[:cut] + bytes([draw(st.integers(0, 255))]) + data[cut + 1 :]
    return draw(st.sampled_from([data[:cut], data + b"\x07", replaced]))


consumer_group_keys = st.builds(encode_consumer_group_key, st.sampled_from(sorted(TYPES)), names, names)
consumer_group_values = st.builds(
    encode_consumer_group_value,
    st.builds(ConsumerGroupMetadataValue, int32s, int64s)
    | st.builds(ConsumerGroupTargetMemberValue, st.just(((bytes(16), (1, 2)), (b"i" * 16, (0,)))))
    | st.builds(ConsumerGroupRegexValue, st.lists(names, max_size=2).map(tuple), int64s, int64s),
)  # most are values of other types than their keys'

right_records = (
    st.tuples(offset_keys, values_written | st.none())
    | st.tuples(group_keys, group_values | st.none())
    | st.tuples(st.just(b"\0\x0b\0\x01g"), st.binary(max_size=5))
    | st.tuples(consumer_group_keys, st.none())
)
any_records = (
    right_records
    | st.tuples(offset_keys, old_and_new_values())
    | st.tuples(consumer_group_keys | mangled(consumer_group_keys), consumer_group_values)
    | st.tuples(mangled(offset_keys | group_keys), mangled(values_written | group_values | old_and_new_values()))
    | st.tuples(st.none() | st.binary(max_size=12), st.none() | st.binary(max_size=12))
)
control_records = (
    st.builds(encode_end_txn_marker, st.builds(EndTxnMarker, st.booleans(), int32s))
    | st.just(encode_leader_change(LeaderChange("a", ("a", "b"))))
    | st.just(encode_replica_set(ReplicaSet(("a",))))
    | st.tuples(st.binary(max_size=6), st.none() | st.binary(max_size=8))
)


def record_bytes(key: bytes | None, value: bytes | None, offset_delta: int, delta_ms: int = 0) -> bytes:
    parts = [b"\0", encode_varint(delta_ms), encode_varint(offset_delta)]
    for one in (key, value):
        parts.append(encode_varint(-1) if one is None else encode_varint(len(one)) + one)
    body = b"".join([*parts, b"\0"])
    return encode_varint(len(body)) + body


def compress(codec: int, body: bytes) -> bytes:
    module = {1: cramjam.gzip, 2: cramjam.snappy, 3: cramjam.lz4, 4: cramjam.zstd}[codec]
    return bytes(module.compress_raw(body) if codec == 2 else module.compress(body))


def raw_batch(body: bytes, count: int, **header: Any) -> bytes:
    """A batch of `body` with a right CRC. Header fields: base_offset, epoch, attributes, last_delta, base_ms, max_ms,
    producer_id, producer_epoch.
    """
    checked = struct.pack(
        ">hiqqqhii",
        header.get("attributes", 0),
        header.get("last_delta", max(count - 1, 0)),
        header.get("base_ms", 1_700_000_000_000),
        header.get("max_ms", 1_700_000_000_500),
        header.get("producer_id", -1),
        header.get("producer_epoch", -1),
        0,
        count,
    )
    checked += body
    prefix = struct.pack(
        ">qiibI", header.get("base_offset", 0), len(checked) + 9, header.get("epoch", 0), 2, crc32c(checked)
    )
    return prefix + checked


@st.composite
def batches(draw: st.DrawFn, records: st.SearchStrategy[KeyValue] = any_records) -> bytes:
    control = draw(st.sampled_from([False, False, False, True]))
    content = draw(st.lists(control_records if control else records, max_size=1 if control else 6))
    body = b"".join(
        record_bytes(key, value, index, draw(st.sampled_from([0, 0, 5, -1, 2**40])))
        for index, (key, value) in enumerate(content)
    )
    codec = draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4]))
    damage = draw(st.sampled_from(["none"] * 6 + ["body", "count"]))
    if damage == "body" and body:
        at = draw(st.integers(0, len(body) - 1))
        body = body[:at] + bytes([draw(st.integers(0, 255))]) + body[at + 1 :]
    count = len(content) + (draw(st.integers(-1, 2)) if damage == "count" else 0)
    attributes = codec | draw(st.sampled_from([0, 8, 16])) | (0x30 if control else 0)
    return raw_batch(
        compress(codec, body) if codec else body,
        count,
        attributes=attributes,
        base_offset=draw(st.integers(0, 2**40)),
        epoch=draw(st.integers(0, 9)),
        producer_id=draw(st.sampled_from([-1, 7])),
        producer_epoch=3,
    )


@st.composite
def segments(draw: st.DrawFn) -> bytes:
    """Batches, some of them damaged, and any tail."""
    parts = []
    for batch in draw(st.lists(batches(), max_size=8)):
        if draw(st.integers(0, 9)) == 0:
            at = draw(st.integers(0, len(batch) - 1))
            batch = batch[:at] + bytes([batch[at] ^ 1 << draw(st.integers(0, 7))]) + batch[at + 1 :]
        parts.append(batch)
    whole = b"".join(parts)
    cut = draw(st.none() | st.integers(0, len(whole)))
    tail = draw(st.sampled_from([b"", b"", bytes(5), bytes(300), b"\x01garbage"]))
    return whole[:cut] + tail


def commit(group: str, topic: str, partition: int, offset: int, metadata: str = "") -> tuple[bytes, bytes]:
    value = OffsetCommitValue(offset, 3, metadata, 1_700_000_000_000 + offset)
    return encode_offset_commit_key(group, topic, partition), encode_offset_commit_value(value)


def commits_segment(count: int, per_batch: int, groups: int = 5, base_offset: int = 0, epoch: int = 4) -> bytes:
    """Right commits, `per_batch` in a batch."""
    out = []
    for first in range(0, count, per_batch):
        records = [
            commit(f"group-{number % groups}", "orders", number % 3, base_offset + number)
            for number in range(first, min(first + per_batch, count))
        ]
        out.append(
            encode_batch(records, base_offset=base_offset + first, leader_epoch=epoch, timestamp_ms=1_700_000_000_000)
        )
    return b"".join(out)


assert len(raw_batch(b"", 0)) == HEADER_BYTES
