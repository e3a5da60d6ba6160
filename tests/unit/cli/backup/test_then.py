"""The offsets of a moment, out of logs of two backups."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from muster_cli.backup.catalog import Catalog, read_catalog
from muster_cli.backup.manifest import Backup, Layout, PartitionCut, SegmentFile, encode_manifest
from muster_cli.backup.store import DirectoryStore
from muster_cli.backup.then import Then, moment_of, offsets_then
from muster_cli.errors import CliError
from muster_coordinator.records.batch import encode_batch
from muster_coordinator.records.control import EndTxnMarker, encode_end_txn_marker
from muster_coordinator.records.offset_commit import encode_offset_commit_key, encode_offset_commit_value
from muster_coordinator.records.structs import OffsetCommitValue

BASE_MS = 1_800_000_000_000

Epochs = tuple[tuple[int, int], ...]


class Log:
    """One partition's, a batch for each commit."""

    def __init__(self) -> None:
        self.data, self.end = b"", 0
        self.cut = 0

    def batch(self, records: list[tuple[bytes, bytes | None]], at_ms: int, **fields: int) -> Log:
        self.data += encode_batch(
            records,
            base_offset=self.end,
            leader_epoch=1,
            timestamp_ms=BASE_MS + at_ms,
            **fields,  # type: ignore[arg-type]
        )
        self.end += len(records)
        return self

    def commit(self, at_ms: int, offset: int | None, group: str = "g", **fields: int) -> Log:
        value = None if offset is None else encode_offset_commit_value(OffsetCommitValue(offset, -1, "", BASE_MS, -1))
        return self.batch([(encode_offset_commit_key(group, "t", 0), value)], at_ms, **fields)

    def marker(self, at_ms: int, *, committed: bool) -> Log:
        record = encode_end_txn_marker(EndTxnMarker(committed=committed, coordinator_epoch=0))
        return self.batch([record], at_ms, producer_id=7, producer_epoch=0, transactional=True, control=True)

    def lose(self, count: int) -> Log:
        """Compaction has removed the next records."""
        self.end += count
        return self


def put(store: DirectoryStore, number: int, log: Log, at_ms: int, epochs: Epochs = ((1, 0),)) -> Backup:
    digest = hashlib.sha256(log.data).hexdigest()
    segment = SegmentFile(0, len(log.data), log.end, digest, digest)
    store.write(segment.name, log.data)
    cut = PartitionCut(0, "a" * 32, log.end, 1, epochs, (segment,))
    backup = Backup(
        f"20270115T08000{number}Z-00000{number}", BASE_MS + at_ms, "1", "c", 1, Layout(0, 1, 500_000, 0), (cut,)
    )
    store.write(backup.name, encode_manifest(backup))
    return backup


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "store")


def then(store: DirectoryStore, backup: str | None = None, at_ms: int | None = None) -> Then:
    moment = moment_of(read_catalog(store), backup, None if at_ms is None else BASE_MS + at_ms)
    return offsets_then(store, moment, lambda group: group != "unwanted", lambda *_: None)


def offsets(found: Then) -> dict[str, int]:
    return {group: of_group["t", 0].offset for group, of_group in found.offsets.items()}


def test_moment_between_two_backups_has_what_was_committed_by_then(store: DirectoryStore) -> None:
    log = Log().commit(10, 1).commit(20, 5, "unwanted")
    first = put(store, 1, log, 50)
    log.commit(60, 2).commit(70, 3).commit(80, 9, "later")
    put(store, 2, log, 100)
    assert offsets(then(store, first.id)) == {"g": 1}
    assert offsets(then(store)) == {"g": 3, "later": 9}
    for at_ms, offset in ((55, 1), (60, 2), (69, 2), (70, 3), (75, 3)):
        found = then(store, at_ms=at_ms)
        assert (offsets(found), found.removed) == ({"g": offset}, 0)


def test_moment_before_the_first_backup_is_read_from_it_alone(store: DirectoryStore) -> None:
    put(store, 1, Log().commit(10, 1).commit(20, 2), 50)
    assert offsets(then(store, at_ms=15)) == {"g": 1}
    assert offsets(then(store, at_ms=5)) == {}


def test_deleted_offset_was_there_before(store: DirectoryStore) -> None:
    put(store, 1, Log().commit(10, 1).commit(20, None), 50)
    assert offsets(then(store, at_ms=15)) == {"g": 1}
    assert offsets(then(store)) == {}


def test_offsets_of_a_transaction_count_from_its_marker_on(store: DirectoryStore) -> None:
    inside = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    log = Log().commit(10, 1).commit(20, 2, **inside).marker(30, committed=True)
    log.commit(40, 3, **inside).marker(50, committed=False)
    put(store, 1, log, 60)
    assert [offsets(then(store, at_ms=at_ms)) for at_ms in (25, 30, 45, 55)] == [{"g": 1}, {"g": 2}, {"g": 2}, {"g": 2}]


def test_clock_that_was_set_back_hides_nothing(store: DirectoryStore) -> None:
    put(store, 1, Log().commit(10, 1).commit(90, 2).commit(30, 3).commit(45, 4), 100)
    assert offsets(then(store, at_ms=40)) == {"g": 3}


def test_records_that_compaction_has_removed_are_counted(store: DirectoryStore) -> None:
    log = Log().commit(10, 1)
    put(store, 1, log, 20)
    put(store, 2, log.lose(2).commit(50, 4).commit(60, 5), 100)
    found = then(store, at_ms=55)
    assert (offsets(found), found.removed) == ({"g": 4}, 2)


def test_harmed_store_and_other_partitions_are_named(store: DirectoryStore, tmp_path: Path) -> None:
    log = Log().commit(10, 1)
    backup = put(store, 1, log, 20)
    put(store, 2, log.commit(30, 2), 100)
    file = tmp_path / "store" / backup.partitions[0].segments[0].name
    file.write_bytes(bytes(len(file.read_bytes())))
    with pytest.raises(CliError, match="its content has changed"):
        then(store, backup.id)
    with pytest.raises(CliError, match="no backup in the store is younger"):
        then(store, at_ms=500)


def test_resharding_between_two_backups_is_said() -> None:
    one, other = (Backup(str(number), number, "1", "c", 1, Layout(0, number, 500_000, 0), ()) for number in (1, 2))
    with pytest.raises(CliError, match="the partitions are others in 1 and 2"):
        moment_of(Catalog({}, (one, other), (), {}), None, 1)


@pytest.mark.parametrize(("commits", "epochs"), [(5, ((1, 0), (2, 1))), (1, ((1, 0),))])
def test_older_backup_that_was_restored_between_two_is_said(
    store: DirectoryStore, commits: int, epochs: Epochs
) -> None:
    """What the lost end of the log had would be mixed with what came in its place."""
    log = Log().commit(10, 1)
    first = put(store, 1, log, 15)
    lost = Log().commit(10, 1).commit(20, 2).commit(30, 3)
    put(store, 2, lost, 50)
    for number in range(commits):
        log.commit(60 + number, 100 + number)
    if commits == 1:
        log = Log().commit(60, 100)  # nothing was restored: the logs began anew
    put(store, 3, log, 100, epochs)
    with pytest.raises(CliError, match=r"offsets-0.*does not go on where 20270115T080002Z.*--backup"):
        then(store, at_ms=62)
    assert offsets(then(store, first.id)) == {"g": 1}


def test_leaders_that_changed_between_two_backups_are_no_fork(store: DirectoryStore) -> None:
    log = Log().commit(10, 1).commit(20, 2)
    put(store, 1, log, 50, ((1, 0), (2, 1)))
    put(store, 2, log.commit(60, 3), 100, ((1, 0), (5, 2)))  # a replica that copied a compacted log
    assert offsets(then(store, at_ms=70)) == {"g": 3}
