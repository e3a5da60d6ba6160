"""A directory of tables: Parquet files, and a manifest that names those that count.

    manifest.json                   replaced in one step at the end of a run
    data/<table>/<run, 6 digits>/   files of one run; not in the manifest: a run that did not end, removed by the next
    data/<table>/<run>-<run>/       files of several runs

A reader opens the manifest first and then only what it names, so it sees the state between two runs, never half of one.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from muster_pipeline.decode.errors import PipelineError

FORMAT = 1
MANIFEST = "manifest.json"
DATA = "data"
MERGE_FROM = 32
SMALL_ROWS = 1_000_000


class StoreError(PipelineError):
    """The directory holds no tables, or another run is writing them."""


@dataclass(frozen=True)
class Manifest:
    """`tables`: directories of each table, relative, oldest first. `positions`: up to where the logs were read.

    `kinds`: rows by kind over all runs, the unknown ones included.
    """

    run: int = 0
    positions: dict[str, Any] = field(default_factory=lambda: {"logs": {}})
    tables: dict[str, list[str]] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)


def runs_of(directory: str) -> tuple[int, int]:
    """Return the first and the last run whose rows are in a directory."""
    first, _, last = directory.rpartition("/")[2].partition("-")
    return int(first), int(last or first)


def are_tables(sources: Sequence[str]) -> bool:
    """True if the sources are one directory of tables and not logs. Raises StoreError if they are both."""
    found = [each for each in sources if (Path(each) / MANIFEST).is_file()]
    if found and len(sources) > 1:
        raise StoreError(f"{found[0]} holds tables: name it alone, or logs")
    return bool(found)


def _has_values(file: pq.FileMetaData, column: str) -> bool:
    index = [file.schema.column(number).path for number in range(file.num_columns)].index(column)
    for number in range(file.num_row_groups):
        found = file.row_group(number).column(index)
        known = found.statistics is not None and found.statistics.has_null_count
        if found.num_values and not (known and found.statistics.null_count == found.num_values):
            return True
    return False


class Store:
    def __init__(self, root: Path) -> None:
        self.root = root

    def manifest(self) -> Manifest:
        """Return the manifest, empty before the first run. Raises StoreError if the file is not ours."""
        try:
            content = json.loads((self.root / MANIFEST).read_bytes())
        except FileNotFoundError:
            return Manifest()
        except ValueError as exc:
            raise StoreError(f"{self.root / MANIFEST} is no manifest: {exc}") from exc
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise StoreError(f"{self.root / MANIFEST} is of another format than {FORMAT}")
        try:
            return Manifest(**content)
        except TypeError as exc:
            raise StoreError(f"{self.root / MANIFEST} is no manifest: {exc}") from exc

    def published(self) -> Manifest:
        """Return the manifest of a finished run. Raises StoreError if there was none."""
        manifest = self.manifest()
        if not manifest.run:
            raise StoreError(f"{self.root} holds no tables: `muster pipeline tables` makes them")
        return manifest

    @contextmanager
    def writing(self) -> Iterator[Manifest]:
        """Lock the directory and yield the manifest. Removes the files of a run that did not end."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise StoreError(f"another run is writing {self.root}") from exc
            manifest = self.manifest()
            self._remove_unnamed(manifest)
            yield manifest

    def directory(self, table: str, run: int) -> str:
        """Return where a run puts a table's files, relative to the root."""
        return f"{DATA}/{table}/{run:06d}"

    def rows(self, directory: str) -> int:
        """Return the number of rows of a directory, from the footers of its Parquet files."""
        return sum(pq.read_metadata(each).num_rows for each in (self.root / directory).glob("*.parquet"))

    def has_values(self, directories: list[str], column: str) -> bool:
        """True if any row has a value in it, by the statistics of the files; True where they say nothing."""
        files = [file for each in directories for file in (self.root / each).glob("*.parquet")]
        return any(_has_values(pq.read_metadata(each), column) for each in files)

    def write_empty(self, directory: str, schema: pa.Schema) -> None:
        """Write a table without rows, for its columns."""
        (self.root / directory).mkdir(parents=True)
        pq.write_table(schema.empty_table(), self.root / directory / "empty.parquet")

    def merged(self, table: str, directories: list[str], run: int) -> list[str]:
        """The same rows: the small ones among MERGE_FROM or more directories as one, so that many runs leave few files.
        One that has grown to SMALL_ROWS is not copied again.
        """
        small = [each for each in directories if self.rows(each) < SMALL_ROWS]
        if len(small) < MERGE_FROM:
            return directories
        relative = f"{DATA}/{table}/{min(runs_of(each)[0] for each in small):06d}-{run:06d}"
        (self.root / relative).mkdir()
        files = [file for each in small for file in sorted((self.root / each).glob("*.parquet"))]
        full = [file for file in files if pq.read_metadata(file).num_rows] or files[:1]
        schema = pq.read_schema(full[0])
        with pq.ParquetWriter(self.root / relative / "merged.parquet", schema) as writer:
            for file in full:
                for batch in pq.ParquetFile(file).iter_batches():
                    writer.write_table(pa.Table.from_batches([batch]).cast(schema))
        return [*(each for each in directories if each not in small), relative]

    def publish(self, manifest: Manifest) -> None:
        """Write the manifest: from here on its files count, and no others."""
        text = json.dumps({"format": FORMAT, **manifest.__dict__}, indent=1, sort_keys=True)
        new = self.root / f"{MANIFEST}.new"
        with new.open("w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.root / MANIFEST)
        directory = os.open(self.root, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _remove_unnamed(self, manifest: Manifest) -> None:
        named = {each for directories in manifest.tables.values() for each in directories}
        for directory in self.root.glob(f"{DATA}/*/*"):
            if str(directory.relative_to(self.root)) not in named:
                shutil.rmtree(directory)
