"""The tables once more as Iceberg tables, for engines that read a catalog: through pyiceberg, the catalog in SQLite.

A table grows by what runs added since the last call, in one transaction, and remembers as `muster.run` up to which
run it is; so an interrupted call is repeated, and nothing is added twice. Tables of which rows change are overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table

from muster_pipeline.decode.errors import PipelineError
from muster_pipeline.decode.schema import select_schema
from muster_pipeline.tables.schemas import APPENDED, COLUMNS, DERIVED, HISTORY
from muster_pipeline.tables.store import Manifest, Store, runs_of

RUN = "muster.run"
BATCH_ROWS = 1 << 20
_GROWING = (*HISTORY[:-1], *APPENDED)
TABLES = (*HISTORY, *DERIVED)


class IcebergError(PipelineError):
    """The catalog cannot be used, or holds tables of another directory."""


def publish_iceberg(
    store: Store, warehouse: Path, namespace: str = "muster", say: Callable[[str], None] = lambda _: None
) -> dict[str, int]:
    """Brings the tables of the catalog `warehouse/catalog.db` up to the last run; table -> rows. Raises IcebergError,
    StoreError, OSError.
    """
    manifest = store.published()
    warehouse.mkdir(parents=True, exist_ok=True)
    catalog = _catalog(warehouse)
    catalog.create_namespace_if_not_exists(namespace)
    rows = {}
    for name in TABLES:
        say(name)
        try:
            rows[name] = _bring_up(catalog, f"{namespace}.{name}", store, manifest, name)
        except CommitFailedException as exc:
            raise IcebergError(f"{namespace}.{name}: it was changed at the same time: {exc}") from exc
    return rows


def _catalog(warehouse: Path) -> SqlCatalog:
    place = warehouse.resolve()
    return SqlCatalog("muster", uri=f"sqlite:///{place}/catalog.db", warehouse=place.as_uri())


def _bring_up(catalog: SqlCatalog, identifier: str, store: Store, manifest: Manifest, name: str) -> int:
    """Add the rows that are missing; return how many."""
    directories = manifest.tables[name]
    schema = _schema(store, directories, name)
    table = catalog.create_table_if_not_exists(identifier, schema, properties={"muster.tables": str(store.root)})
    if table.properties["muster.tables"] != str(store.root):
        raise IcebergError(f"{identifier} is of {table.properties['muster.tables']}, not of {store.root}")
    done = int(table.properties.get(RUN, "0"))
    if done == manifest.run:
        return 0
    new = [each for each in directories if runs_of(each)[1] > done]
    anew = done > 0 and (name not in _GROWING or any(runs_of(each)[0] <= done for each in new))
    return _write(table, store, directories if anew else new, schema, manifest.run, anew=anew)


def _write(table: Table, store: Store, directories: list[str], schema: pa.Schema, run: int, *, anew: bool) -> int:
    rows = 0
    with table.transaction() as change:
        if anew and table.current_snapshot() is not None:
            change.delete(AlwaysTrue())
        for batch in _batches(store, directories, schema):
            change.append(batch)
            rows += batch.num_rows
        change.set_properties({RUN: str(run)})
    return rows


def _batches(store: Store, directories: list[str], schema: pa.Schema) -> Iterator[pa.Table]:
    for each in directories:
        for file in sorted((store.root / each).glob("*.parquet")):
            for batch in pq.ParquetFile(file).iter_batches(BATCH_ROWS):
                if batch.num_rows:
                    yield pa.Table.from_batches([batch]).cast(schema)


def _schema(store: Store, directories: list[str], name: str) -> pa.Schema:
    """Return the schema of a table. That of a derived table comes from its files, without Spark's own metadata."""
    if name in COLUMNS:
        return select_schema(COLUMNS[name])
    file = next(file for each in directories for file in sorted((store.root / each).glob("*.parquet")))
    return pq.read_schema(file).remove_metadata()
