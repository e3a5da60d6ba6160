"""Decodes the rows that need the plain decoder: group metadata, records of consumer groups, states of transactions,
offsets with tagged fields that are not known yet, and damaged records.

It is the coordinator's own decoder, so what a load would refuse is refused here for the same reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from muster_coordinator.records import consumer_group
from muster_coordinator.records.consumer_group import (
    ConsumerGroupCurrentValue,
    ConsumerGroupMemberValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRecord,
    ConsumerGroupRegexValue,
    ConsumerGroupTargetMemberValue,
    ConsumerGroupTargetMetadataValue,
    OwnedPartitions,
)
from muster_coordinator.records.consumer_group_codec import decode_consumer_group_record
from muster_coordinator.records.control import decode_control
from muster_coordinator.records.decode import decode_record
from muster_coordinator.records.errors import RecordDecodeError, UnsupportedValueVersionError
from muster_coordinator.records.group_metadata import GroupMember, GroupMetadataRecord
from muster_coordinator.records.primitives import Cursor
from muster_coordinator.records.structs import OffsetCommitRecord, UnknownRecord
from muster_coordinator.records.transaction_log import TransactionRecord, decode_transaction_record
from muster_pipeline.decode.columns import Ints
from muster_pipeline.decode.fast_rows import Origin
from muster_pipeline.decode.scan import Damage
from muster_pipeline.decode.schema import Kind, Problem
from muster_pipeline.decode.structure import CONTROL, TRANSACTIONAL, Records, Window

Row = dict[str, Any]
MAX_DETAIL_CHARS = 300


def to_batch(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    """Convert rows to a batch. A column that a row does not have is null."""
    return pa.record_batch(
        [pa.array([row.get(field.name) for row in rows], field.type) for field in schema], schema=schema
    )


def damage_row(damage: Damage, origin: Origin) -> Row:
    return {
        **origin.place,
        "position": origin.position + damage.position,
        "kind": Kind.DAMAGED,
        "problem": damage.problem,
        "problem_detail": damage.detail[:MAX_DETAIL_CHARS],
        "problem_bytes": damage.size,
    }


def slow_rows(window: Window, records: Records, indexes: Ints, origin: Origin) -> list[Row]:
    """Decode one row for each of the records at `indexes`, with all columns that it has."""
    record_fields = _record_fields if origin.transaction_partition is None else _transaction_fields
    chosen = records[indexes]
    headers = window.headers[chosen.batch]
    data = window.source.data
    rows = []
    for number in range(len(indexes)):
        key_end, value_end = int(chosen.key_end[number]), int(chosen.value_end[number])
        key = None if key_end < 0 else data[int(chosen.key_start[number]) : key_end]
        value = None if value_end < 0 else data[int(chosen.value_start[number]) : value_end]
        header = headers[number]
        attributes = int(header["attributes"])
        row: dict[str, Any] = {
            **origin.place,
            "position": origin.position + int(window.positions[chosen.batch[number]]),
            "offset": int(chosen.offset[number]),
            "leader_epoch": int(header["leader_epoch"]),
            "timestamp_ms": int(chosen.timestamp_ms[number]),
        }
        if attributes & (TRANSACTIONAL | CONTROL):
            row |= {"producer_id": int(header["producer_id"]), "producer_epoch": int(header["producer_epoch"])}
        try:
            row |= _control_fields(key, value) if attributes & CONTROL else record_fields(key, value)
        except RecordDecodeError as exc:
            row |= _unreadable(key, value, exc)
        rows.append(row)
    return rows


def _unreadable(key: bytes | None, value: bytes | None, exc: RecordDecodeError) -> Row:
    unsupported = isinstance(exc, UnsupportedValueVersionError)
    return {
        "kind": Kind.UNREADABLE,
        "record_type": _leading_int16(key),
        "value_version": _leading_int16(value),
        "problem": Problem.UNSUPPORTED_VERSION if unsupported else Problem.BAD_RECORD,
        "problem_detail": str(exc)[:MAX_DETAIL_CHARS],
        "problem_bytes": len(key or b"") + len(value or b""),
    }


def _leading_int16(data: bytes | None) -> int | None:
    return int.from_bytes(data[:2], "big", signed=True) if data is not None and len(data) >= 2 else None


def _control_fields(key: bytes | None, value: bytes | None) -> Row:
    """Raise RecordDecodeError for a control record: numpy reads all valid ones, so this one is damaged."""
    decoded = decode_control(key, value)
    raise AssertionError(f"control record {decoded} was left to the slow path")


def _record_fields(key: bytes | None, value: bytes | None) -> Row:
    if key is not None and _leading_int16(key) in consumer_group.TYPES:
        return _consumer_group_fields(key, value)
    change = decode_record(key, value)
    assert not isinstance(change, ConsumerGroupRecord | UnknownRecord), "they are read by other ways"
    common: Row = {"record_type": _leading_int16(key), "value_version": _leading_int16(value)}
    if isinstance(change, OffsetCommitRecord):
        return common | _offset_fields(change)
    return common | _group_fields(change)


def _offset_fields(change: OffsetCommitRecord) -> Row:
    fields: dict[str, Any] = {"group": change.group_id, "topic": change.topic, "partition": change.partition}
    value = change.value
    if value is None:
        return fields | {"kind": Kind.OFFSET_TOMBSTONE, "value_version": None}
    return fields | {
        "kind": Kind.OFFSET_COMMIT,
        "committed_offset": value.offset,
        "committed_leader_epoch": value.leader_epoch,
        "metadata": value.metadata,
        "commit_timestamp_ms": value.commit_timestamp_ms,
        "expire_timestamp_ms": value.expire_timestamp_ms,
    }


def _consumer_group_fields(key: bytes, value: bytes | None) -> Row:
    record = decode_consumer_group_record(key, value)
    is_regex = record.type == consumer_group.REGEX_TYPE
    fields: Row = {
        "kind": Kind.CONSUMER_GROUP_TOMBSTONE if value is None else Kind.CONSUMER_GROUP,
        "record_type": record.type,
        "value_version": _leading_int16(value),
        "group": record.group_id,
        "member_id": None if is_regex or not record.name else record.name,
        "subscribed_regex": record.name if is_regex else None,
    }
    match record.value:
        case ConsumerGroupMetadataValue(epoch, _):
            return fields | {"epoch": epoch}
        case ConsumerGroupTargetMetadataValue(epoch, timestamp_ms):
            return fields | {"epoch": epoch, "assignment_ms": timestamp_ms}
        case ConsumerGroupTargetMemberValue(topics):
            return fields | {"owned": _owned([OwnedPartitions(*each) for each in topics])}
        case ConsumerGroupCurrentValue() as current:
            return fields | {
                "epoch": current.member_epoch,
                "previous_epoch": current.previous_member_epoch,
                "member_state": _MEMBER_STATES.get(current.state, "UNKNOWN"),
                "owned": _owned(current.assigned),
                "pending_revocation": _owned(current.pending_revocation),
            }
        case ConsumerGroupMemberValue() as member:
            return fields | _consumer_member_fields(member)
        case ConsumerGroupRegexValue(topics_found, _, _):
            return fields | {"subscribed_topics": list(topics_found)}
    return fields


_MEMBER_STATES = {0: "STABLE", 1: "UNREVOKED_PARTITIONS", 2: "UNRELEASED_PARTITIONS"}


def _owned(topics: Sequence[OwnedPartitions]) -> list[Row]:
    return [
        {"topic_id": topic.topic_id, "partition": partition, "assignment_epoch": epoch}
        for topic in topics
        for partition, epoch in zip(
            topic.partitions, topic.assignment_epochs or [None] * len(topic.partitions), strict=True
        )
    ]


def _consumer_member_fields(member: ConsumerGroupMemberValue) -> Row:
    classic = member.classic
    return {
        "group_instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topics": list(member.subscribed_topic_names),
        "subscribed_regex": member.subscribed_topic_regex,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "assignor": member.server_assignor,
        "classic_protocols": None if classic is None else [name for name, _ in classic.supported_protocols],
    }


def _group_fields(change: GroupMetadataRecord) -> Row:
    value = change.value
    if value is None:
        return {"kind": Kind.GROUP_TOMBSTONE, "group": change.group_id, "value_version": None}
    return {
        "kind": Kind.GROUP_METADATA,
        "group": change.group_id,
        "protocol_type": value.protocol_type,
        "generation": value.generation,
        "protocol": value.protocol,
        "leader": value.leader,
        "state_timestamp_ms": value.current_state_timestamp_ms,
        "members": [_member_fields(member) for member in value.members],
    }


def _transaction_fields(key: bytes | None, value: bytes | None) -> Row:
    record = decode_transaction_record(key, value)
    assert isinstance(record, TransactionRecord), "records of unknown types are read by numpy"
    fields: Row = {"record_type": _leading_int16(key), "transactional_id": record.transactional_id}
    state = record.value
    if state is None:
        return fields | {"kind": Kind.TRANSACTION_TOMBSTONE}
    fields |= {"value_version": _leading_int16(value), "producer_id": state.producer_id}
    if not record.transactional_id:
        return fields | {"kind": Kind.PRODUCER_IDS}
    return fields | {
        "kind": Kind.TRANSACTION_STATE,
        "producer_epoch": state.producer_epoch,
        "transaction_state": state.status.name.title().replace("_", ""),
        "transaction_partitions": [
            {"topic": topic, "partition": partition}
            for topic, partitions in state.partitions
            for partition in partitions
        ],
        "transaction_timeout_ms": state.timeout_ms,
        "transaction_start_ms": state.start_ms,
        "transaction_update_ms": state.last_update_ms,
        "transaction_version": state.client_version,
    }


def _member_fields(member: GroupMember) -> Row:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "session_timeout_ms": member.session_timeout_ms,
        "subscription": member.subscription,
        "assignment": member.assignment,
        "assigned": consumer_assignment(member.assignment),
    }


@lru_cache(maxsize=4096)
def consumer_assignment(data: bytes) -> list[dict[str, Any]] | None:
    """Return the partitions of a ConsumerProtocolAssignment; None for another protocol, [] if there are none.

    version i16 | array of: topic str, array of partition i32 | user data. Source: ConsumerProtocolAssignment.json.
    """
    if not data:
        return []
    try:
        cursor = Cursor(data, 0, "ConsumerProtocolAssignment")
        if cursor.int16() < 0:
            return None
        assigned: list[dict[str, Any]] = []
        for _ in range(cursor.array_length()):
            topic = cursor.string()
            assigned += [{"topic": topic, "partition": cursor.int32()} for _ in range(cursor.array_length())]
    except RecordDecodeError:
        return None
    return assigned
