"""Logs made by hand, record by record, and the history tables of them as DataFrames."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from muster_coordinator.records.batch import encode_batch
from muster_coordinator.records.control import EndTxnMarker, encode_end_txn_marker
from muster_coordinator.records.group_metadata import (
    GroupMember,
    GroupMetadataValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
)
from muster_coordinator.records.offset_commit import encode_offset_commit_key, encode_offset_commit_value
from muster_coordinator.records.structs import OffsetCommitValue
from muster_pipeline.analytics.history import group_history
from muster_pipeline.analytics.spans import spans
from muster_pipeline.decode.decoder import decode_segment
from muster_pipeline.tables.schemas import COLUMNS, HISTORY, KINDS_OF

START_MS = 1_700_000_000_000
SESSION_TIMEOUT_MS = 45_000


def at(seconds: float) -> int:
    return START_MS + int(seconds * 1000)


class HandMadeLog:
    """One offsets partition; times are seconds after START_MS. `topic` is "orders" throughout."""

    def __init__(self, partition: int = 0) -> None:
        self.partition = partition
        self.offset = 0
        self.data = b""

    def commit(
        self, second: float, group: str, partition: int, offset: int, *, epoch: int = -1, producer: int = -1
    ) -> None:
        value = OffsetCommitValue(offset, epoch, "", at(second))
        record = (encode_offset_commit_key(group, "orders", partition), encode_offset_commit_value(value))
        self._append(second, record, producer)

    def remove(self, second: float, group: str, partition: int) -> None:
        self._append(second, (encode_offset_commit_key(group, "orders", partition), None))

    def remove_group(self, second: float, group: str) -> None:
        self._append(second, (encode_group_metadata_key(group), None))

    def end_transaction(self, second: float, producer: int, *, committed: bool) -> None:
        self._append(second, encode_end_txn_marker(EndTxnMarker(committed, 0)), producer, control=True)

    def generation(
        self,
        second: float,
        group: str,
        number: int,
        members: Mapping[str, Sequence[int]],
        *,
        joined: float | None = None,
    ) -> None:
        """`members`: partitions of each. `joined`: when the join ended, by default at once."""
        value = GroupMetadataValue(
            "consumer",
            number,
            "range" if members else None,
            next(iter(members), None),
            at(second if joined is None else joined),
            tuple(
                GroupMember(
                    name, None, f"client-{name}", "/h", 300_000, SESSION_TIMEOUT_MS, b"", assignment(partitions)
                )
                for name, partitions in members.items()
            ),
        )
        self._append(second, (encode_group_metadata_key(group), encode_group_metadata_value(value)))

    def write(self, root: Path) -> None:
        directory = root / f"__consumer_offsets-{self.partition}"
        directory.mkdir(parents=True)
        (directory / f"{0:020d}.log").write_bytes(self.data)

    def table(self) -> pa.Table:
        return decode_segment(self.data, offsets_partition=self.partition)

    def _append(
        self, second: float, record: tuple[bytes, bytes | None], producer: int = -1, *, control: bool = False
    ) -> None:
        self.data += encode_batch(
            [record],
            base_offset=self.offset,
            leader_epoch=1,
            timestamp_ms=at(second),
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            transactional=producer >= 0,
            control=control,
        )
        self.offset += 1


def assignment(partitions: Sequence[int]) -> bytes:
    """ConsumerProtocolAssignment, version 0, of the topic "orders"."""
    if not partitions:
        return b""
    numbers = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hih", 0, 1, 6) + b"orders" + numbers + struct.pack(">i", -1)


class Frames:
    """The history tables of logs, and what analytics make of them first."""

    def __init__(self, spark: SparkSession, *logs: HandMadeLog | pa.Table) -> None:
        rows = pa.concat_tables(each.table() if isinstance(each, HandMadeLog) else each for each in logs)
        tables = {}
        for name in HISTORY:
            chosen = rows.filter(pc.is_in(rows["kind"], pa.array(KINDS_OF[name]))).select(COLUMNS[name])
            tables[name] = (
                spark.createDataFrame(chosen)
                if chosen.num_rows
                else spark.createDataFrame([], from_arrow_schema(chosen.schema))
            )
        self.commits: DataFrame = tables["commits"]
        self.tombstones: DataFrame = tables["tombstones"]
        self.transactions: DataFrame = tables["transactions"]
        self.generations: DataFrame = tables["generations"]
        self.history = group_history(self.generations, self.tombstones)
        self.spans = spans(self.commits, self.tombstones, self.transactions, self.history)
