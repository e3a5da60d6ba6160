"""Rows of the decoder in the shape of `plain_rows`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from muster_coordinator.records import consumer_group
from muster_coordinator.records.group_metadata import GroupMember, GroupMetadataValue
from muster_coordinator.records.structs import OffsetCommitValue

Row = dict[str, Any]
_SAME = {
    "position": "position",
    "offset": "offset",
    "timestamp_ms": "timestamp_ms",
    "leader_epoch": "epoch",
    "producer_id": "producer_id",
    "producer_epoch": "producer_epoch",
    "group": "group",
    "topic": "topic",
    "partition": "partition",
    "kind": "kind",
}


def comparable(table: pa.Table) -> list[Row]:
    return [_comparable(row) for row in table.to_pylist()]


def _comparable(row: Row) -> Row:
    kind = row["kind"]
    if kind == "damaged":
        zeros = row["problem"] == "zero_tail"
        return {"position": row["position"], "kind": kind, "bytes": row["problem_bytes"], "zeros": zeros}
    out = {name: row[column] for column, name in _SAME.items() if row[column] is not None}
    if kind == "unreadable":
        out["problem"] = row["problem"]
    elif kind == "unknown":
        out["record_type"] = row["record_type"]
    elif kind.startswith("consumer_group"):
        own = row["subscribed_regex"] if row["record_type"] == consumer_group.REGEX_TYPE else row["member_id"]
        out |= {"record_type": row["record_type"], "name": own or ""}
    elif kind == "offset_commit":
        out["offset_value"] = OffsetCommitValue(
            row["committed_offset"],
            row["committed_leader_epoch"],
            row["metadata"],
            row["commit_timestamp_ms"],
            row["expire_timestamp_ms"],
        )
    elif kind == "group_metadata":
        names = list(GroupMember.__struct_fields__)
        out["group_value"] = GroupMetadataValue(
            row["protocol_type"],
            row["generation"],
            row["protocol"],
            row["leader"],
            row["state_timestamp_ms"],
            tuple(GroupMember(*(member[name] for name in names)) for member in row["members"]),
        )
    return out
