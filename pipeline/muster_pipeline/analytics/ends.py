"""The sources of end offsets: a file, a Kafka cluster, or a mirror of one. Each says where a partition's log ended at
a moment; several of one partition are its history, which lag in time needs.

A mirror is a directory with what a cluster's Metadata and ListOffsets said, a Parquet file for each time it was asked:
for reports where the cluster cannot be reached, and of moments that it has no records of any more.
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
"""The ages at which a cluster is asked where its logs ended then."""
_READERS = {".parquet": pa.parquet.read_table, ".csv": pa.csv.read_csv, ".json": pa.json.read_json}


class EndOffsetsError(PipelineError):
    """The file holds no end offsets, or the cluster does not answer."""


def ends_from_file(path: Path) -> pa.Table:
    """Columns topic, partition, timestamp_ms, end_offset of a .csv (with a header), .json (an object on each line) or
    .parquet file, or of the .parquet files of a directory. Raises EndOffsetsError.
    """
    if path.is_dir():
        files = sorted(path.glob("*.parquet"))
        if not files:
            raise EndOffsetsError(f"{path}: no .parquet files of end offsets: `muster pipeline mirror` makes them")
        return pa.concat_tables([ends_from_file(each) for each in files])
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


def ends_from_kafka(bootstrap: str, partitions: Iterable[tuple[str, int]], at_ms: int) -> pa.Table:
    """The ends of the logs of `partitions` (topic, number) in a Kafka cluster at `at_ms`, and at
    `LOOK_BACK_MS` before.

    Partitions that the cluster does not have any more are left out. Raises EndOffsetsError. ListOffsets by timestamp
    gives the first record at or after it, so that was the end just before; without such a record it is today's end.
    """
    admin = _admin(bootstrap)
    there = set(_partitions(admin, bootstrap))
    places = sorted(each for each in set(partitions) if each in there)
    return _ask(admin, bootstrap, places, [at_ms - age_ms for age_ms in (0, *LOOK_BACK_MS)])


def mirror(bootstrap: str, directory: Path, now_ms: int, topics: Iterable[str] = ()) -> tuple[Path, int]:
    """Adds where the logs of all topics but internal ones, or of `topics`, end now; the first time also where they
    ended at `LOOK_BACK_MS` before. Returns the new file and its number of rows. Raises EndOffsetsError, OSError.
    """
    admin = _admin(bootstrap)
    wanted = set(topics)
    places = [
        each
        for each in _partitions(admin, bootstrap)
        if (each[0] in wanted if wanted else not each[0].startswith("__"))
    ]
    missing = wanted - {topic for topic, _ in places}
    if missing:
        raise EndOffsetsError(f"{bootstrap} has no topic {', '.join(sorted(missing))}")
    directory.mkdir(parents=True, exist_ok=True)
    first = not any(directory.glob("*.parquet"))
    found = _ask(admin, bootstrap, places, [now_ms - age_ms for age_ms in (0, *(LOOK_BACK_MS if first else ()))])
    file = directory / f"{now_ms:013d}.parquet"
    new = file.with_suffix(".new")
    pa.parquet.write_table(found, new)
    new.replace(file)
    return file, found.num_rows


def _admin(bootstrap: str) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def _partitions(admin: Any, bootstrap: str) -> list[tuple[str, int]]:
    from confluent_kafka import KafkaException

    try:
        topics = admin.list_topics(timeout=ANSWER_TIMEOUT_S).topics
    except KafkaException as exc:
        raise EndOffsetsError(f"{bootstrap} does not answer: {exc.args[0].str()}") from exc
    return sorted((topic, partition) for topic, found in topics.items() for partition in found.partitions)


def _ask(admin: Any, bootstrap: str, places: Sequence[tuple[str, int]], moments_ms: Sequence[int]) -> pa.Table:
    from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

    newest = _list_offsets(admin, bootstrap, places, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    rows: list[dict[str, Any]] = []
    for at_ms in moments_ms:
        found = _list_offsets(admin, bootstrap, places, OffsetSpec.for_timestamp(at_ms))
        for (topic, partition), offset in found.items():
            end = newest[topic, partition] if offset < 0 else offset
            rows.append({"topic": topic, "partition": partition, "timestamp_ms": at_ms, "end_offset": end})
    return pa.Table.from_pylist(rows, ENDS_SCHEMA)


def _list_offsets(
    admin: Any, bootstrap: str, places: Sequence[tuple[str, int]], spec: Any
) -> dict[tuple[str, int], int]:
    """Ask for the offset at a moment; -1 if no record is that young."""
    from confluent_kafka import KafkaException, TopicPartition

    if not places:
        return {}
    asked = {TopicPartition(*each): spec for each in places}
    found = {}
    for place, answer in admin.list_offsets(asked, request_timeout=ANSWER_TIMEOUT_S).items():
        try:
            found[place.topic, place.partition] = int(answer.result().offset)
        except KafkaException as exc:
            text = exc.args[0].str()
            raise EndOffsetsError(f"{bootstrap}: end offset of {place.topic}-{place.partition}: {text}") from exc
    return found
