"""Small queries on tables without Spark, for the command line."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.dataset as ds

from muster_pipeline.decode.schema import select_schema
from muster_pipeline.tables.schemas import COLUMNS
from muster_pipeline.tables.store import Manifest, Store


def read_arrow(store: Store, manifest: Manifest, table: str, groups: Sequence[str] = ()) -> pa.Table:
    """Read a table as of the manifest, of `groups` only if there are any."""
    files = [
        str(file)
        for directory in manifest.tables.get(table, [])
        for file in sorted((store.root / directory).glob("*.parquet"))
    ]
    if not files:
        return select_schema(COLUMNS[table]).empty_table()
    chosen = ds.field("group").isin(list(groups)) if groups else None
    return ds.dataset(files, format="parquet").to_table(filter=chosen)
