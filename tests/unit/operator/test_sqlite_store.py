"""The embedded store against the contract of every store, and what only a file does."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.operator.store_contract import KEY, StoreContract, Subject, cluster, topic

from muster_operator.api.models import LeadershipRecord
from muster_operator.store.port import ConflictError, StoreError
from muster_operator.store.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Subject]:
    store = SqliteStore(path)
    yield store, store.apply
    store.close()


class TestSqliteStore(StoreContract):
    async def test_records_survive_reopening(self, store: Subject, path: Path) -> None:
        after = await store[0].record_leadership(await self._topic(store), {"0": LeadershipRecord("c-0", 4).line})
        again = SqliteStore(path)
        assert (await again.observe(KEY)).topics == (after,)
        again.close()

    async def test_fencing_token_rises_with_every_operator(self, store: Subject, path: Path) -> None:
        first = await store[0].fencing_token(KEY)
        again = SqliteStore(path)
        assert await again.fencing_token(KEY) > first
        again.close()

    async def test_two_stores_on_one_file_compare_and_swap_against_each_other(self, store: Subject, path: Path) -> None:
        seen = await self._topic(store)
        other = SqliteStore(path)
        await other.record_leadership(seen, {"0": LeadershipRecord("c-1", 1).line})
        with pytest.raises(ConflictError):
            await store[0].record_leadership(seen, {"0": LeadershipRecord("c-0", 1).line})
        other.close()

    async def test_file_of_a_newer_program_is_refused_and_left_as_it_is(self, path: Path) -> None:
        SqliteStore(path).close()
        with closing(sqlite3.connect(path)) as file:
            assert file.execute("PRAGMA user_version").fetchone() == (1,)
            file.execute("PRAGMA user_version = 2")
        with pytest.raises(StoreError, match="schema version 2, and this program knows 1"):
            SqliteStore(path)
        with closing(sqlite3.connect(path)) as file:
            assert file.execute("PRAGMA user_version").fetchone() == (2,)

    async def test_file_from_before_there_were_schema_versions_is_opened(self, path: Path) -> None:
        store = SqliteStore(path)
        await store.apply(cluster())
        store.close()
        with closing(sqlite3.connect(path)) as file:
            file.execute("PRAGMA user_version = 0")
        again = SqliteStore(path)
        assert (await again.observe(KEY)).cluster is not None
        again.close()

    async def test_deleting_a_topic_deletes_its_partitions(self, store: Subject) -> None:
        await self._partitions(store, 0, 1)
        sqlite = store[0]
        assert isinstance(sqlite, SqliteStore)
        await sqlite.delete(topic())
        records = await sqlite.observe(KEY)
        assert (records.topics, records.partitions) == ((), ())

    async def test_file_that_is_no_database_is_a_store_error(self, path: Path) -> None:
        path.write_bytes(b"this is no database file at all" * 100)
        with pytest.raises(StoreError):
            SqliteStore(path)

    async def test_closed_store_answers_with_an_error(self, path: Path) -> None:
        store = SqliteStore(path)
        await store.apply(cluster())
        store.close()
        with pytest.raises(StoreError):
            await store.observe(KEY)
