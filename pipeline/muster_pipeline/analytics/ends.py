"""Where end offsets come from: a file, or a Kafka cluster. Each says where a partition's log ended at a moment; several
of one partition are its history, which lag in time needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from muster_pipeline.decode.errors import PipelineError

__all__ = ["ENDS_SCHEMA", "EndOffsetsError", "ends_from_file", "ends_from_kafka"]

ENDS_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("timestamp_ms", pa.int64()),
        pa.field("end_offset", pa.int64()),
    ]
)
ANSWER_TIMEOUT_S = 30.0
_MINUTE_MS = 60_000
LOOK_BACK_MS = tuple(minutes * _MINUTE_MS for minutes in (1, 5, 15, 60, 6 * 60, 24 * 60, 7 * 24 * 60))
"""At which ages a cluster is asked where its logs ended then."""
_READERS = {".parquet": pa.parquet.read_table, ".csv": pa.csv.read_csv, ".json": pa.json.read_json}


class EndOffsetsError(PipelineError):
    """The file holds no end offsets, or the cluster does not answer."""


def ends_from_file(path: Path) -> pa.Table:
    """Columns topic, partition, timestamp_ms, end_offset of a .csv (with a header), .json (an object on each line) or
    .parquet file. Raises EndOffsetsError.
    """
    reader = _READERS.get(path.suffix.replace(".jsonl", ".json"))
    if reader is None:
        raise EndOffsetsError(f"{path}: end offsets are a .csv, .json (one object per line) or .parquet file")
    try:
        table = reader(path).select(ENDS_SCHEMA.names).cast(ENDS_SCHEMA)
    except (OSError, KeyError, ValueError, pa.ArrowException) as exc:
        columns = ", ".join(ENDS_SCHEMA.names)
        raise EndOffsetsError(f"{path}: needs the columns {columns}: {exc}") from exc
    for name in ENDS_SCHEMA.names:
        if table[name].null_count:
            raise EndOffsetsError(f"{path}: {table[name].null_count} rows have no {name}")
    if table.num_rows and pc.min(table["end_offset"]).as_py() < 0:
        raise EndOffsetsError(f"{path}: an end offset is negative")
    return table


def ends_from_kafka(bootstrap: str, partitions: Iterable[tuple[str, int]], now_ms: int) -> pa.Table:
    """Where the logs of ``partitions`` (topic, number) end in a Kafka cluster, now and at ``LOOK_BACK_MS`` before.

    Partitions that the cluster does not have any more are left out. Raises EndOffsetsError. ListOffsets by timestamp
    gives the first record at or after it, so that was the end just before.
    """
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        topics = admin.list_topics(timeout=ANSWER_TIMEOUT_S).topics
    except KafkaException as exc:
        raise EndOffsetsError(f"{bootstrap} does not answer: {exc.args[0].str()}") from exc
    there = [
        TopicPartition(topic, partition)
        for topic, partition in sorted(set(partitions))
        if topic in topics and partition in topics[topic].partitions
    ]
    rows: list[dict[str, Any]] = []
    for age_ms in (0, *LOOK_BACK_MS):
        at_ms = now_ms - age_ms
        spec = OffsetSpec.for_timestamp(at_ms) if age_ms else OffsetSpec.latest()  # type: ignore[no-untyped-call]
        rows += _ask(admin, there, spec, at_ms, bootstrap) if there else []
    return pa.Table.from_pylist(rows, ENDS_SCHEMA)


def _ask(admin: Any, there: Sequence[Any], spec: Any, at_ms: int, bootstrap: str) -> list[dict[str, Any]]:
    from confluent_kafka import KafkaException

    answers = admin.list_offsets(dict.fromkeys(there, spec), request_timeout=ANSWER_TIMEOUT_S)
    rows = []
    for place, answer in answers.items():
        try:
            offset = answer.result().offset
        except KafkaException as exc:
            text = exc.args[0].str()
            raise EndOffsetsError(f"{bootstrap}: end offset of {place.topic}-{place.partition}: {text}") from exc
        if offset >= 0:  # -1: no record is as young as that, so the end was where it is now
            rows.append(
                {"topic": place.topic, "partition": place.partition, "timestamp_ms": at_ms, "end_offset": offset}
            )
    return rows
