"""The tables in an Iceberg catalog: the same rows after every run, each of them once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.unit.pipeline.logs import commits_segment

from muster_cli.main import cli
from muster_pipeline.decode.decoder import decode_segment
from muster_pipeline.decode.schema import SCHEMA, select_schema
from muster_pipeline.tables import store as store_module
from muster_pipeline.tables.read import read_arrow
from muster_pipeline.tables.schemas import APPENDED, COLUMNS, DERIVED, HISTORY
from muster_pipeline.tables.store import Manifest, Store

pytest.importorskip("pyiceberg")
from pyiceberg.catalog.sql import SqlCatalog

from muster_pipeline.tables.iceberg import IcebergError, publish_iceberg

GROWING = ("commits", *APPENDED)


class Runs:
    """Tables as runs leave them: ten commits more with each, and current offsets of all."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root)
        self.manifest = Manifest()

    def run(self) -> None:
        number = self.manifest.run + 1
        tables = {name: list(self.manifest.tables.get(name, [])) for name in (*HISTORY, *DERIVED)}
        new = decode_segment(commits_segment(10, 3, base_offset=10 * number), offsets_partition=1)
        for name, directories in tables.items():
            if name in GROWING:
                directories.append(self._write(name, number, new.select(COLUMNS["commits"])))
            elif name == "current_offsets":
                tables[name] = [self._write(name, number, new.select(["group", "offset"]))]
            elif not directories:
                columns = COLUMNS.get(name, ["group", "offset"])
                directories.append(self._write(name, number, select_schema(columns).empty_table()))
        tables["commits"] = self.store.merged("commits", tables["commits"], number)
        self.manifest = replace(self.manifest, run=number, tables=tables)
        self.store.publish(self.manifest)
        with self.store.writing():
            pass  # removes what was merged

    def _write(self, name: str, number: int, rows: pa.Table) -> str:
        directory = self.store.directory(name, number)
        (self.store.root / directory).mkdir(parents=True)
        pq.write_table(rows, self.store.root / directory / "part.parquet")
        return directory


def offsets(rows: pa.Table) -> list[Any]:
    return sorted(rows["offset"].to_pylist())


def test_catalog_holds_the_rows_of_the_tables_after_every_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MERGE_FROM", 4)
    runs, warehouse = Runs(tmp_path / "tables"), tmp_path / "warehouse"
    warehouse.mkdir()
    catalog = SqlCatalog("muster", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=warehouse.as_uri())
    for count in (1, 2, 2, 1, 4):  # a merged directory with rows that are there already, and one without
        for _ in range(count):
            runs.run()
        added = publish_iceberg(runs.store, warehouse)
        assert added["memberships"] == 10 * count
        for name in (*HISTORY, *DERIVED):
            stored = catalog.load_table(f"muster.{name}").scan().to_arrow()
            expected = read_arrow(runs.store, runs.manifest, name)
            assert offsets(stored) == offsets(expected), name
            assert stored.column_names == expected.column_names
        assert set(publish_iceberg(runs.store, warehouse).values()) == {0}
    rows = catalog.load_table("muster.commits").scan(row_filter="group = 'group-1'").to_arrow()
    assert rows.num_rows == 20
    assert rows.schema.field("producer_epoch").type == pa.int32()  # Iceberg has no shorter numbers
    assert SCHEMA.field("producer_epoch").type == pa.int16()


def test_command_says_what_it_added(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "tables")
    runs.run()
    arguments = ["pipeline", "iceberg", str(tmp_path / "tables"), "--warehouse", str(tmp_path / "warehouse")]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    assert "          10  muster.commits\n" in result.output
    refused = CliRunner().invoke(cli, ["pipeline", "iceberg", str(tmp_path), "--warehouse", str(tmp_path / "w")])
    assert (refused.exit_code, "holds no tables" in refused.output) == (1, True)


def test_catalog_of_other_tables_is_refused(tmp_path: Path) -> None:
    for name in ("one", "other"):
        runs = Runs(tmp_path / name)
        runs.run()
        if name == "one":
            publish_iceberg(runs.store, tmp_path / "warehouse")
    with pytest.raises(IcebergError, match=r"is of .*/one, not of .*/other"):
        publish_iceberg(runs.store, tmp_path / "warehouse")
