"""The pipeline's decoder on a log of transactions that a Kafka 4.3.1 broker wrote, against what Kafka's DumpLogSegments
says of it (the .dump file; capture_transactions.py made both).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from muster_pipeline.decode.decoder import decode_segment
from muster_pipeline.decode.schema import Kind
from muster_pipeline.tables.local import local_transactions

SEGMENT = Path(__file__).parent / "kafka-4.3.1-transactions.log"
RECORD = re.compile(r"\| offset: (\d+) CreateTime: (\d+) .* key: ({.*}) payload: (.*)")
STATES = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]
NOW = {
    "empty": "Empty",
    "ongoing-ä": "Ongoing",
    "old-ongoing": "Ongoing",
    "committed-1": "CompleteCommit",
    "committed-2": "CompleteCommit",
    "aborted-1": "CompleteAbort",
    "aborted-2": "CompleteAbort",
}
Row = dict[str, Any]


def dumped() -> list[Row]:
    """Rows that DumpLogSegments shows, in the columns that it has."""
    lines = SEGMENT.with_suffix(".dump").read_text().splitlines()
    found = [match for match in map(RECORD.fullmatch, lines) if match]
    assert len(found) == sum(line.startswith("|") for line in lines)
    return [_row(int(match[1]), int(match[2]), json.loads(match[3])["data"], match[4]) for match in found]


def _row(offset: int, timestamp_ms: int, key: Row, payload: str) -> Row:
    row = {"offset": offset, "timestamp_ms": timestamp_ms, "transactional_id": key["transactionalId"]}
    if payload == "<DELETE>":
        return row | {"kind": Kind.TRANSACTION_TOMBSTONE}
    value = json.loads(payload)["data"]
    return row | {
        "kind": Kind.TRANSACTION_STATE,
        "producer_id": value["producerId"],
        "producer_epoch": value["producerEpoch"],
        "transaction_state": STATES[value["transactionStatus"]],
        "transaction_timeout_ms": value["transactionTimeoutMs"],
        "transaction_update_ms": value["transactionLastUpdateTimestampMs"],
        "transaction_start_ms": value["transactionStartTimestampMs"],
        "transaction_version": value.get("clientTransactionVersion", 0),
        "transaction_partitions": [
            {"topic": each["topic"], "partition": partition}
            for each in value["transactionPartitions"] or ()
            for partition in each["partitionIds"]
        ],
    }


def test_rows_are_what_kafkas_own_tool_says() -> None:
    rows = decode_segment(SEGMENT.read_bytes(), transaction_partition=0).to_pylist()
    expected = dumped()
    columns = expected[-1].keys()
    assert [{name: row[name] for name in columns if row[name] is not None} for row in rows] == expected
    assert len(rows) == 29


def test_states_are_those_that_the_broker_had_in_the_end(tmp_path: Path) -> None:
    directory = tmp_path / "__transaction_state-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(SEGMENT.read_bytes())
    found = local_transactions([str(directory)]).to_pylist()
    assert {row["transactional_id"]: row["transaction_state"] for row in found} == NOW
    assert {len(row["transaction_partitions"]) for row in found if row["transaction_state"] == "Ongoing"} == {2}
