"""The pipeline's decoder on segments that a Kafka 4.1.0 broker wrote, against what Kafka's DumpLogSegments says of them
(the .dump files; capture.py made both).
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import Any

import pytest

from muster_pipeline.decode.decoder import decode_segment

SEGMENTS = sorted(Path(__file__).parent.glob("kafka-4.1.0-*.log"))
RECORD = re.compile(
    r"\| offset: (\d+) CreateTime: (\d+) keySize: -?\d+ valueSize: -?\d+ sequence: -?\d+ headerKeys: \[\] (.*)"
)
BATCH = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) .* producerId: (-?\d+) .* isTransactional: (\w+) .* position: (\d+) "
)
Row = dict[str, Any]


def dumped(path: Path) -> list[Row]:
    """Rows that DumpLogSegments shows, in the columns that it has."""
    rows = []
    batch: tuple[int, int] = (0, -1)
    for line in path.with_suffix(".dump").read_text().splitlines():
        header = BATCH.match(line)
        if header:
            batch = (int(header[5]), int(header[3]))
            continue
        record = RECORD.fullmatch(line)
        assert record, line
        row = {"position": batch[0], "offset": int(record[1]), "timestamp_ms": int(record[2])}
        row["producer_id"] = None if batch[1] < 0 else batch[1]
        rows.append(row | _content(record[3]))
    return rows


def _content(text: str) -> Row:
    marker = re.fullmatch(r"endTxnMarker: (\w+) coordinatorEpoch: \d+", text)
    if marker:
        return {"kind": f"txn_{marker[1].lower()}"}
    parts = re.fullmatch(r"key: (\{.*\}) payload: (.*)", text)
    assert parts, text
    key = json.loads(parts[1])
    payload = None if parts[2] == "<DELETE>" else json.loads(parts[2])
    record_type = int(key["type"])
    if record_type > 2:
        return {"record_type": record_type} | _consumer_group(record_type, key["data"], payload)
    group = {"group": key["data"]["group"]}
    if record_type == 2:
        return group | ({"kind": "group_tombstone"} if payload is None else _group(payload["data"]))
    place = group | {"topic": key["data"]["topic"], "partition": key["data"]["partition"]}
    if payload is None:
        return place | {"kind": "offset_tombstone"}
    data = payload["data"]
    return place | {
        "kind": "offset_commit",
        "value_version": int(payload["version"]),
        "committed_offset": data["offset"],
        "committed_leader_epoch": data["leaderEpoch"],
        "metadata": data["metadata"],
        "commit_timestamp_ms": data["commitTimestamp"],
    }


def _consumer_group(record_type: int, key: Row, payload: Row | None) -> Row:
    row = {"group": key["groupId"], "member_id": key.get("memberId")}
    if payload is None:
        return row | {"kind": "consumer_group_tombstone", "value_version": None}
    data = payload["data"]
    row |= {"kind": "consumer_group", "value_version": int(payload["version"])}
    match record_type:
        case 3:
            return row | {"epoch": data["epoch"]}
        case 5:
            return row | {
                "group_instance_id": data["instanceId"],
                "rack_id": data["rackId"],
                "client_id": data["clientId"],
                "client_host": data["clientHost"],
                "subscribed_topics": data["subscribedTopicNames"],
                "subscribed_regex": data["subscribedTopicRegex"],
                "rebalance_timeout_ms": data["rebalanceTimeoutMs"],
                "assignor": data["serverAssignor"],
                "classic_protocols": None,
            }
        case 6:
            return row | {"epoch": data["assignmentEpoch"], "assignment_ms": 0}
        case 7:
            return row | {"owned": _owned(data["topicPartitions"])}
        case 8:
            return row | {
                "epoch": data["memberEpoch"],
                "previous_epoch": data["previousMemberEpoch"],
                "member_state": {0: "STABLE"}[data["state"]],
                "owned": _owned(data["assignedPartitions"]),
                "pending_revocation": _owned(data["partitionsPendingRevocation"]),
            }
    raise AssertionError(f"a record of type {record_type}")


def _owned(topics: list[Row]) -> list[Row]:
    return [
        {"topic_id": urlsafe_b64decode(topic["topicId"] + "=="), "partition": partition, "assignment_epoch": None}
        for topic in topics
        for partition in topic["partitions"]
    ]


def _group(data: Row) -> Row:
    return {
        "kind": "group_metadata",
        "protocol_type": data["protocolType"],
        "generation": data["generation"],
        "protocol": data["protocol"],
        "leader": data["leader"],
        "state_timestamp_ms": data["currentStateTimestamp"],
        "members": [
            {
                "member_id": member["memberId"],
                "client_id": member["clientId"],
                "client_host": member["clientHost"],
                "session_timeout_ms": member["sessionTimeout"],
                "assigned": [
                    {"topic": each["topic"], "partition": partition}
                    for each in member["assignment"]["assignedPartitions"]
                    for partition in each["partitions"]
                ],
            }
            for member in data["members"]
        ],
    }


def pick(row: Row, like: Row) -> Row:
    """The columns of `row` that `like` has."""
    picked = {name: row[name] for name in like}
    if like.get("members"):
        picked["members"] = [{name: each[name] for name in like["members"][0]} for each in row["members"]]
    return picked


@pytest.mark.parametrize("path", SEGMENTS, ids=lambda path: path.stem)
def test_segment_of_kafka_decodes_as_dump_log_segments_shows_it(path: Path) -> None:
    expected = dumped(path)
    rows = sorted(decode_segment(path.read_bytes()).to_pylist(), key=lambda row: row["offset"])
    assert len(rows) == len(expected) > 5
    assert [pick(row, like) for row, like in zip(rows, expected, strict=True)] == expected


def test_golden_segments_hold_every_kind_that_a_broker_writes() -> None:
    kinds = {row["kind"] for path in SEGMENTS for row in dumped(path)}
    assert kinds == {
        *("offset_commit", "offset_tombstone", "group_metadata", "group_tombstone"),
        *("txn_commit", "txn_abort", "consumer_group", "consumer_group_tombstone"),
    }
