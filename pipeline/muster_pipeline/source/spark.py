"""`spark.read.format("muster_offsets").load(path)`: the rows of segments as a Spark DataFrame.

    spark.dataSource.register(MusterOffsets)
    frame = spark.read.format("muster_offsets").load("/var/lib/muster")

Columns are those of `decode.schema`; `.schema("group string, committed_offset bigint")` reads only some, which
saves their decoding. Filters of equality on `kind`, `group` and `offsets_partition` are applied while decoding,
the last by not opening the other files (`spark.sql.python.filterPushdown.enabled`, which `session` sets).

With the option `keep` LAST a task leaves out the commits and removals that others in it replace (`decode.latest`).

`spark.readStream` follows logs that grow. When a log was truncated below what was read, wiped or re-sharded, what was
given out is not true any more: it fails with LogRewrittenError, or with `onRewrittenLog` RESTART gives a row of the
problem `rewritten` and that log from its start.

A task is one or several whole segments, or a split of a large one, of about `splitBytes`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    In,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from muster_pipeline.decode.decoder import Decoder, Selection
from muster_pipeline.decode.latest import last_only
from muster_pipeline.decode.schema import KINDS, SCHEMA, Kind, Problem, select_schema
from muster_pipeline.decode.slow_rows import Row, to_batch
from muster_pipeline.source.files import InputError, SegmentFile, Split, find_segments, log_origin, pack, splits
from muster_pipeline.source.follow import (
    LogRewrittenError,
    Positions,
    Restart,
    advance,
    covers,
    decode_positions,
    encode_positions,
    ranges,
    restarts,
)
from muster_pipeline.source.http_ranges import UNREACHABLE_FOR_S
from muster_pipeline.source.locations import is_pod, open_segment
from muster_pipeline.source.options import SourceOptions
from muster_pipeline.source.topics import BOTH_TOPICS

_ON_REWRITTEN = (
    "Follow the pod (http://POD:PORT) instead of its files, which may hold what a failover takes back; or begin a new "
    "query, with a new checkpoint; or set onRewrittenLog to RESTART: a row that says so, and the log from its start"
)


class MusterOffsets(DataSource):
    @classmethod
    def name(cls) -> str:
        return "muster_offsets"

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> OffsetsReader:
        return OffsetsReader(SourceOptions.parse(self.options), chosen_schema(schema))

    def streamReader(self, schema: StructType) -> OffsetsStreamReader:
        options = SourceOptions.parse(self.options)
        if options.last_only:
            raise InputError("a stream gives all records: keep is for batch reads")
        return OffsetsStreamReader(options, chosen_schema(schema))


def chosen_schema(schema: StructType) -> pa.Schema:
    """Return the columns of a user's schema. Raises InputError: a column that does not exist, or of another type."""
    try:
        chosen = select_schema(schema.names)
    except ValueError as exc:
        raise InputError(str(exc)) from exc
    for field in to_arrow_schema(schema):
        expected = chosen.field(field.name).type
        if field.type != expected:
            raise InputError(f"column {field.name} is {expected}, not {field.type}")
    return chosen


@dataclass
class Task(InputPartition):
    """The splits of one task. `restarted`: logs that a stream starts again."""

    splits: list[Split]
    restarted: tuple[Restart, ...] = ()


class OffsetsReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._kinds: frozenset[str] | None = None
        self._groups: frozenset[str] | None = None
        self._offsets_partitions: frozenset[int] | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes column = value and column IN (values); several on one column narrow each other. Yields the rest."""
        for each in filters:
            values = _wanted_values(each)
            if values is None:
                yield each
            elif each.attribute == ("kind",):  # type: ignore[attr-defined]  # EqualTo and In have it
                self._kinds = _narrow(self._kinds, values & KINDS)
            elif each.attribute == ("group",):  # type: ignore[attr-defined]
                self._groups = _narrow(self._groups, values)
            elif each.attribute == ("offsets_partition",):  # type: ignore[attr-defined]
                self._offsets_partitions = _narrow(self._offsets_partitions, values)
            else:
                yield each

    def partitions(self) -> Sequence[InputPartition]:
        wanted, size = self._offsets_partitions, self._options.split_bytes
        segments = find_segments(self._options.paths, BOTH_TOPICS)
        chosen: Iterator[Split]
        if self._options.between is not None:
            between = ranges(segments, *self._options.between, size)
            chosen = (each for each in between if wanted is None or each.segment.offsets_partition in wanted)
        else:
            chosen = splits((each for each in segments if wanted is None or each.offsets_partition in wanted), size)
        return [Task(each) for each in pack(chosen, size)] or [Task([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        selection = Selection(self._schema, self._kinds, self._groups)
        if self._options.last_only:
            return last_only(lambda wide: _decode(partition, wide, self._options), selection)
        return _decode(partition, selection, self._options)


class OffsetsStreamReader(DataSourceStreamReader):
    """Follows logs from their start. A micro-batch has the records appended since the last one; positions: `follow`."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def initialOffset(self) -> dict[str, Any]:
        return encode_positions({})

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        try:
            return encode_positions(advance(self._segments(), decode_positions(start), restart=self._options.restart))
        except LogRewrittenError as exc:
            raise LogRewrittenError(f"{exc}. {_ON_REWRITTEN}") from exc

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        since, until, size = decode_positions(start), decode_positions(end), self._options.split_bytes
        appended = ranges(self._segments_up_to(until), since, until, size)
        tasks = [Task(each) for each in pack(appended, size)] or [Task([])]
        tasks[0].restarted = tuple(restarts(since, until))
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        return _decode(partition, Selection(self._schema), self._options)

    def _segments(self) -> list[SegmentFile]:
        return find_segments(self._options.paths, BOTH_TOPICS, may_be_none=True)

    def _segments_up_to(self, end: Positions) -> list[SegmentFile]:
        """Wait for a pod that has restarted until it serves the same range again."""
        deadline = time.monotonic() + UNREACHABLE_FOR_S
        while True:
            segments = self._segments()
            late = not covers(segments, end) and any(map(is_pod, end))
            if not late or time.monotonic() > deadline:
                return segments
            time.sleep(1)


def _decode(task: Task, selection: Selection, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    decoder = Decoder(selection, options.fail_fast, options.max_batch_bytes)
    told = [row for row in map(_restart_row, task.restarted) if selection.has(row)]
    if told:
        yield to_batch(told, selection.schema)
    for split in task.splits:
        with open_segment(split.segment.path, split.start + split.size) as source:
            yield from decoder.decode(source, split.segment.origin(split.start), split.end)


def _restart_row(restart: Restart) -> Row:
    return {
        **log_origin(restart.home).place,
        "kind": Kind.DAMAGED,
        "problem": Problem.REWRITTEN,
        "problem_detail": restart.reason,
    }


def _wanted_values(each: Filter) -> frozenset | None:  # type: ignore[type-arg]  # of the column's type
    """Return the values that a filter selects; None if it is not applied here. Null selects nothing, as in SQL."""
    if isinstance(each, EqualTo):
        return frozenset(() if each.value is None else (each.value,))
    if isinstance(each, In):
        return frozenset(value for value in each.value if value is not None)
    return None


def _narrow(so_far: frozenset | None, values: frozenset) -> frozenset:  # type: ignore[type-arg]
    return values if so_far is None else so_far & values
