"""Small files of many runs become one, with the same rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from muster_pipeline.tables import store as module
from muster_pipeline.tables.store import Manifest, Store


def add(store: Store, run: int, rows: int) -> str:
    directory = store.directory("commits", run)
    (store.root / directory).mkdir(parents=True)
    pq.write_table(pa.table({"offset": list(range(run, run + rows))}), store.root / directory / "part.parquet")
    return directory


def rows(store: Store, directories: list[str]) -> list[int]:
    found: list[int] = []
    for each in directories:
        for file in (store.root / each).glob("*.parquet"):
            found += pq.read_table(file)["offset"].to_pylist()
    return sorted(found)


def test_many_small_directories_become_one_and_large_ones_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MERGE_FROM", 4)
    monkeypatch.setattr(module, "SMALL_ROWS", 10)
    store = Store(tmp_path)
    directories = [add(store, 1, 50), store.directory("commits", 0)]
    store.write_empty(directories[1], pa.schema([pa.field("offset", pa.int64(), nullable=False)]))  # as a first run may
    for run in range(2, 30):
        before = rows(store, [*directories, add(store, run, 2)])
        directories = store.merged("commits", [*directories, store.directory("commits", run)], run)
        assert rows(store, directories) == before
        assert len(directories) <= 8
        assert directories[0] == store.directory("commits", 1)
        store.publish(Manifest(run=run, tables={"commits": directories}))
        with store.writing():
            pass
        assert {str(each.relative_to(tmp_path)) for each in tmp_path.glob("data/*/*")} == set(directories)
    assert sum(store.rows(each) for each in directories) == 50 + 28 * 2


def test_column_without_values_is_known_by_the_statistics(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for name, values, statistics in (
        ("none", [None, None], True),
        ("some", [None, 1], True),
        ("unknown", [None], False),
    ):
        (tmp_path / name).mkdir()
        table = pa.table({"other": values, "producer_id": pa.array(values, pa.int64())})
        pq.write_table(table, tmp_path / name / "part.parquet", write_statistics=statistics)
    store.write_empty("empty", table.schema)
    assert not store.has_values([], "producer_id")
    assert not store.has_values(["none", "empty"], "producer_id")
    assert store.has_values(["none", "some"], "producer_id")
    assert store.has_values(["unknown"], "producer_id")
