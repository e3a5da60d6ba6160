"""Offsets, groups, rebalances, transactions and problems without Spark: of tables, or straight from logs, in memory.

The rows are those of `transforms`, which a test holds them to. For inputs of some million commits; above that Spark
spills to disk where this would not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from muster_pipeline.decode.decoder import Decoder, Selection
from muster_pipeline.decode.schema import Kind, select_schema
from muster_pipeline.decode.slow_rows import to_batch
from muster_pipeline.source.files import find_segments
from muster_pipeline.source.locations import open_segment
from muster_pipeline.source.topics import BOTH_TOPICS, OFFSETS_TOPIC
from muster_pipeline.tables.read import read_arrow
from muster_pipeline.tables.schemas import COLUMNS, KINDS_OF, TOPICS_OF, ExtraProblems
from muster_pipeline.tables.store import Store, are_tables
from muster_pipeline.tables.transforms import CURRENT, KEY, RECORD, TRANSACTION

_REBALANCES = pa.schema(
    [
        pa.field("group", pa.string()),
        pa.field("previous_generation", pa.int32()),
        pa.field("generation", pa.int32()),
        pa.field("previous_timestamp_ms", pa.int64()),
        pa.field("timestamp_ms", pa.int64()),
        pa.field("protocol", pa.string()),
        pa.field("members_before", pa.int32()),
        pa.field("members_after", pa.int32()),
        pa.field("joined", pa.list_(pa.string())),
        pa.field("left", pa.list_(pa.string())),
        pa.field("offsets_partition", pa.int32()),
        pa.field("offset", pa.int64()),
    ]
)


def local_offsets(sources: Sequence[str], at_ms: int | None = None, groups: Sequence[str] = ()) -> pa.Table:
    """`transforms.current_offsets` of tables or logs. Raises PipelineError."""
    commits, tombstones, transactions = (
        _until(_history(sources, name, groups), at_ms) for name in ("commits", "tombstones", "transactions")
    )
    settled = commits.filter(_settled(commits, transactions))
    removed = tombstones.filter(pc.equal(tombstones["kind"], Kind.OFFSET_TOMBSTONE))
    both = pa.concat_tables([settled.select([*KEY, "offset"]), removed.select([*KEY, "offset"])])
    last = both.group_by(KEY).aggregate([("offset", "max")]).select(["offsets_partition", "offset_max"])
    last = last.rename_columns(RECORD)
    return settled.join(last, RECORD, join_type="left semi").select(CURRENT)


def local_rebalances(sources: Sequence[str], groups: Sequence[str] = ()) -> pa.Table:
    """`transforms.rebalances` of tables or logs. Raises PipelineError."""
    generations = _history(sources, "generations", groups).sort_by([(name, "ascending") for name in RECORD])
    return pa.Table.from_pylist(list(_changes(generations.to_pylist())), _REBALANCES)


def local_groups(sources: Sequence[str], at_ms: int | None = None, groups: Sequence[str] = ()) -> pa.Table:
    """`transforms.current_groups` of tables or logs. Raises PipelineError."""
    generations, tombstones = (
        _until(_history(sources, name, groups), at_ms).sort_by("offset") for name in ("generations", "tombstones")
    )
    last = {(row["offsets_partition"], row["group"]): row for row in generations.to_pylist()}
    removed = tombstones.filter(pc.equal(tombstones["kind"], Kind.GROUP_TOMBSTONE)).select([*RECORD, "group"])
    for row in removed.to_pylist():
        place = row["offsets_partition"], row["group"]
        if place in last and last[place]["offset"] < row["offset"]:
            del last[place]
    return pa.Table.from_pylist(list(last.values()), select_schema(COLUMNS["generations"]))


def local_transactions(sources: Sequence[str], at_ms: int | None = None) -> pa.Table:
    """`transforms.current_transactions` of tables or logs, in any order. Raises PipelineError."""
    states = _until(_history(sources, "transaction_states"), at_ms).sort_by("offset")
    columns = zip(*(states[name].to_pylist() for name in TRANSACTION), strict=True)
    last = {key: row for row, key in enumerate(columns)}
    found = states.take(pa.array(sorted(last.values()), pa.int64()))
    return found.filter(pc.equal(found["kind"], Kind.TRANSACTION_STATE)).drop_columns("kind")


def local_quality(sources: Sequence[str], extra_problems: ExtraProblems = lambda _: ()) -> pa.Table:
    """Return the table of problems of tables or logs, and the extra problems of logs. Raises PipelineError."""
    found = _history(sources, "quality")
    rows = [] if are_tables(sources) else list(extra_problems(find_segments(sources, BOTH_TOPICS)))
    return pa.concat_tables([found, pa.Table.from_batches([to_batch(rows, found.schema)])]) if rows else found


def _history(sources: Sequence[str], table: str, groups: Sequence[str] = ()) -> pa.Table:
    """A history table, of `groups` only where there are any. Transactions belong to no group."""
    wanted = () if table == "transactions" else groups
    if are_tables(sources):
        store = Store(Path(sources[0]))
        return read_arrow(store, store.published(), table, wanted)
    schema = select_schema(COLUMNS[table])
    decoder = Decoder(Selection(schema, frozenset(KINDS_OF[table]), frozenset(wanted) or None))
    batches: list[pa.RecordBatch] = []
    for segment in find_segments(sources, TOPICS_OF.get(table, (OFFSETS_TOPIC,))):
        with open_segment(segment.path) as source:
            batches += decoder.decode(source, segment.origin())
    return pa.Table.from_batches(batches, schema)


def _until(table: pa.Table, at_ms: int | None) -> pa.Table:
    return table if at_ms is None else table.filter(pc.less_equal(table["timestamp_ms"], at_ms))


def _settled(commits: pa.Table, transactions: pa.Table) -> pa.Array:
    """Return a mask of commits outside of transactions, or in one that its producer's next marker commits."""
    plain = pc.is_null(commits["producer_id"])
    order = ["offsets_partition", "producer_id"]
    pending = commits.select([*RECORD, "producer_id"]).append_column(
        "row", pa.array(range(commits.num_rows), pa.int64())
    )
    pending = pending.filter(pc.invert(plain)).to_pandas().sort_values("offset")
    marks = transactions.select([*RECORD, "producer_id", "kind"]).to_pandas().sort_values("offset")
    next_mark = pd.merge_asof(pending, marks, on="offset", by=order, direction="forward")
    committed = next_mark.loc[next_mark["kind"] == Kind.TXN_COMMIT, "row"]
    rows = pa.array(range(commits.num_rows), pa.int64())
    return pc.or_(plain, pc.is_in(rows, value_set=pa.array(committed, pa.int64())))


def _changes(generations: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Sort `generations` in the order of their logs."""
    before: dict[tuple[int, str], dict[str, Any]] = {}
    for record in generations:
        place = record["offsets_partition"], record["group"]
        previous = before.get(place)
        before[place] = record
        ids = [member["member_id"] for member in record["members"]]
        ids_before = [member["member_id"] for member in previous["members"]] if previous is not None else []
        joined = [each for each in dict.fromkeys(ids) if each not in ids_before]
        left = [each for each in dict.fromkeys(ids_before) if each not in ids]
        if previous is None or previous["generation"] != record["generation"] or joined or left:
            yield record | {
                "previous_generation": previous["generation"] if previous is not None else None,
                "previous_timestamp_ms": previous["timestamp_ms"] if previous is not None else None,
                "members_before": len(ids_before),
                "members_after": len(ids),
                "joined": joined,
                "left": left,
            }
