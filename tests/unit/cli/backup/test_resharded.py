"""A restore with other numbers of partitions: offsets are those of the cut, each in the partition of its group.

`MOMENTS=5000` draws more logs.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from random import Random
from typing import cast

import pytest
from click.testing import CliRunner, Result
from tests.unit.cli.backup.drawn_logs import LAYOUT, Drawn
from tests.unit.cli.backup.test_at_moment import batches, ends, found_at, moment_in, offsets_in, quiet

from muster_cli.backup.at_moment import at_moment
from muster_cli.backup.catalog import read_catalog
from muster_cli.backup.continuity import check_goes_on
from muster_cli.backup.cut import Ends, LedLog, OtherHistoryError
from muster_cli.backup.fencing import Transactions
from muster_cli.backup.manifest import Backup, Layout, PartitionCut, SegmentFile, encode_manifest
from muster_cli.backup.resharded import Resharded, resharded
from muster_cli.backup.restore import EPOCH_STEP, run_restore
from muster_cli.backup.store import DirectoryStore
from muster_cli.backup.then import batches_of
from muster_cli.local.data_dir import DataDir
from muster_cli.main import cli
from muster_coordinator.log.segments.partition_log import partition_directory
from muster_coordinator.partition_numbers import index_of
from muster_coordinator.podapi.client import PodClient
from muster_coordinator.podapi.segments import PartitionEntry
from muster_coordinator.records.batch import encode_batch
from muster_coordinator.records.mirror_position import MirrorPosition, encode_position
from muster_coordinator.records.partitioner import partition_for
from muster_coordinator.records.transaction_log import TransactionLogValue
from muster_coordinator.sites.origin import read_origin
from muster_coordinator.transactions.states import AT_REST

MOMENTS = int(os.environ.get("MOMENTS", "60"))
NUMBERS = [(5, 3), (1, 1), (3, 4), (2, 2)]
"""Partitions of groups and of transactions; there were 3 and 2."""


def layout_of(groups: int, transactions: int) -> Layout:
    """The numbers begin above those of the backup."""
    return Layout(3, groups, 500_002, transactions)


def transactions_in(data: DataDir, layout: Layout) -> dict[str, tuple[int, TransactionLogValue]]:
    """Transactional ids with the partition that they are in."""
    found: dict[str, tuple[int, TransactionLogValue]] = {}
    for index, number in enumerate(layout.transactions):
        of_partition = Transactions(index_of(number))
        for pod in data.root.glob("pods/*"):
            for batch in batches(partition_directory(pod, number)):
                of_partition.take(batch)
        assert not found.keys() & of_partition.values.keys()
        found |= {name: (index, value) for name, value in of_partition.values.items()}
    return found


def check_restored(data: DataDir, drawn: Drawn, cut: dict[int, int], before: Backup, store: DirectoryStore) -> None:
    """The offsets are those of the cut, and every producer is fenced."""
    made = read_origin(data.root / "pods" / "muster-0")
    assert made is not None
    layout = layout_of(made.partitions, made.transaction_partitions)
    found = offsets_in(data, layout)
    expected = drawn.offsets_at(cut)
    assert {group: set(values.values()) for group, values in found.items()} == {
        group: set(values.values()) for group, values in expected.items()
    }
    for group, values in found.items():
        assert [*values] == [layout.offsets_base + partition_for(group, made.partitions)]
    ids = transactions_in(data, layout)
    had: dict[str, TransactionLogValue] = {}
    for each in before.partitions:
        if each.number in LAYOUT.transactions:
            old = Transactions(index_of(each.number))
            for batch in batches_of(store, each):
                if batch.end_offset <= cut[each.number]:
                    old.take(batch)
            had |= old.values
    assert ids.keys() == had.keys()
    for name, (index, value) in ids.items():
        assert index == partition_for(name, made.transaction_partitions)
        assert (value.status in AT_REST, value.partitions) == (True, ())
        assert value.producer_id == had[name].producer_id
        assert value.producer_epoch > had[name].producer_epoch


def test_restored_logs_have_the_offsets_of_the_cut(tmp_path: Path) -> None:
    opened = later = 0
    for seed in range(max(8, MOMENTS // 10)):
        store, data = DirectoryStore(tmp_path / f"store-{seed}"), DataDir(tmp_path / f"new-{seed}")
        drawn = Drawn(seed, store)
        cut = {each.number: each.commit_point for each in drawn.later.partitions}
        with resharded(store, drawn.later, *NUMBERS[seed % len(NUMBERS)], quiet) as (made, source):
            run_restore(source, read_catalog(store), made.backup, data, 2, drawn.later.taken_at_ms + 1, quiet)
        opened += len(made.ends.open)
        later += made.ends.markers
        check_restored(data, drawn, cut, drawn.later, store)
    assert opened > 0
    assert later > 0


def test_moment_between_two_backups_is_resharded_too(tmp_path: Path) -> None:
    for seed in range(max(4, MOMENTS // 20)):
        store, data = DirectoryStore(tmp_path / f"store-{seed}"), DataDir(tmp_path / f"new-{seed}")
        drawn = Drawn(seed + 500, store, skew_ms=20)
        at_ms = moment_in(drawn, Random(seed))
        with (
            at_moment(store, read_catalog(store), "latest", at_ms, quiet) as (then, files, catalog),
            resharded(files, then.backup, *NUMBERS[seed % len(NUMBERS)], quiet) as (made, source),
        ):
            run_restore(source, catalog, made.backup, data, 2, at_ms + 1, quiet)
        check_restored(data, drawn, ends(found_at(store, at_ms)), drawn.later, store)


def test_every_run_makes_the_same_logs_above_all_epochs_and_leaves_the_store_alone(tmp_path: Path) -> None:
    """Each pod's volume is restored by itself."""
    store = DirectoryStore(tmp_path / "store")
    drawn = Drawn(7, store)
    before = store.files().keys()

    def made() -> Resharded:
        with resharded(store, drawn.later, 5, 0, quiet) as (found, source):
            for cut in found.backup.partitions:
                assert sum(batch.records_count for batch in batches_of(source, cut)) == cut.commit_point
        return found

    first = made()
    assert first == made()
    assert (first.backup.layout, first.before) == (layout_of(5, 2), LAYOUT)
    assert (first.backup.id, first.backup.taken_at_ms) == (drawn.later.id, drawn.later.taken_at_ms)
    assert {cut.leader_epoch for cut in first.backup.partitions} == {1}
    assert store.files().keys() == before


def invoke(store: Path, *more: str) -> Result:
    return CliRunner().invoke(cli, ["restore", "--store", str(store), *more])


def test_command_says_what_there_would_be_and_makes_it(tmp_path: Path) -> None:
    drawn, target = Drawn(3, DirectoryStore(tmp_path / "store")), tmp_path / "new"
    arguments = ("--data-dir", str(target), "--partitions", "5", "--transaction-partitions", "1")
    plan = invoke(tmp_path / "store", *arguments, "--dry-run", "--json")
    assert (plan.exit_code, target.exists()) == (0, False), plan.output
    told = json.loads(plan.stdout)
    assert told["groupPartitions"] == {"before": 3, "after": 5}
    assert told["transactionPartitions"] == {"before": 2, "after": 1}
    assert (told["partitions"], told["transactionalIds"]) == (6, 6)
    done = invoke(tmp_path / "store", *arguments, "--json")
    assert done.exit_code == 0, done.output
    made = json.loads(done.stdout)
    assert made["open_transactions"] == told["openTransactions"]
    assert made["size"] == told["bytes"]
    epochs = {batch.leader_epoch for log in target.glob("pods/*/__*") for batch in batches(log) if batch.is_control}
    assert epochs == {1 + EPOCH_STEP}
    assert not [each for each in tmp_path.iterdir() if each.name not in ("store", "new")]
    refused = invoke(tmp_path / "store", *arguments)
    assert (refused.exit_code, "is not empty" in refused.output) == (1, True)
    assert drawn.later.layout == LAYOUT


def test_numbers_that_the_backup_has_change_nothing(tmp_path: Path) -> None:
    Drawn(3, DirectoryStore(tmp_path / "store"))
    target = tmp_path / "new"
    done = invoke(tmp_path / "store", "--data-dir", str(target), "--partitions", "3", "--transaction-partitions", "2")
    assert (done.exit_code, "re-sharded" in done.output) == (0, False), done.output
    logs = {each.name for each in target.glob("pods/*/__*")}
    assert logs == {"__consumer_offsets-0", "__consumer_offsets-1", "__consumer_offsets-2"} | {
        "__transaction_state-0",
        "__transaction_state-1",
    }


def test_volume_with_other_numbers_is_another_one(tmp_path: Path) -> None:
    drawn, volume = Drawn(3, DirectoryStore(tmp_path / "store")), tmp_path / "pod" / "data"
    common = ("--backup", drawn.later.id, "--volume", str(volume), "--pod", "1", "--pods", "2")
    for said in ("re-sharded and verified", "already"):
        done = invoke(tmp_path / "store", *common, "--partitions", "4")
        assert (done.exit_code, said in done.output) == (0, True), done.output
    assert {each.name for each in volume.glob("__*")} == {
        "__consumer_offsets-3",
        "__consumer_offsets-5",
        "__transaction_state-3",
    }
    refused = invoke(tmp_path / "store", *common, "--partitions", "5")
    assert (refused.exit_code, "is not empty" in refused.output) == (1, True)


def test_harmed_store_is_said_as_without_a_reshard(tmp_path: Path) -> None:
    Drawn(3, DirectoryStore(tmp_path / "store"))
    arguments = ("--data-dir", str(tmp_path / "new"), "--partitions", "5")
    victim = max((tmp_path / "store" / "segments").iterdir(), key=lambda each: each.stat().st_size)
    whole = victim.read_bytes()
    double = victim.with_name("double")
    double.write_bytes(whole)
    assert f"segments/double: a double of segments/{victim.name}" in invoke(tmp_path / "store", *arguments).output
    double.unlink()
    victim.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert f"segments/{victim.name}: its content" in invoke(tmp_path / "store", *arguments).output
    victim.unlink()
    assert f"segments/{victim.name}: missing" in invoke(tmp_path / "store", *arguments, "--dry-run").output
    assert not (tmp_path / "new").exists()


def backup_of(store: DirectoryStore, record: tuple[bytes, bytes]) -> Backup:
    """One partition with one record, and no topic of transactions."""
    data = encode_batch([record], base_offset=0, leader_epoch=3, timestamp_ms=1)
    digest = hashlib.sha256(data).hexdigest()
    store.write(f"segments/{digest}", data)
    cut = PartitionCut(0, "a" * 32, 1, 3, ((3, 0),), (SegmentFile(0, len(data), 1, digest, digest),))
    backup = Backup("20261128T091702Z-abcdef", 1, "1", "c", 1, Layout(0, 1, 500_000, 0), (cut,))
    store.write(backup.name, encode_manifest(backup))
    return backup


def test_record_that_cannot_be_carried_over_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    """The position of a mirror is one in the partition of the same number."""
    backup_of(DirectoryStore(tmp_path / "store"), encode_position(MirrorPosition()))
    refused = invoke(tmp_path / "store", "--data-dir", str(tmp_path / "new"), "--partitions", "5")
    assert refused.exit_code == 1
    assert "20261128T091702Z-abcdef cannot be re-sharded: " in refused.output
    assert "1 unknown" in refused.output
    assert "Restore it with the numbers of partitions that it has" in refused.output
    refused = invoke(tmp_path / "store", "--data-dir", str(tmp_path / "new"), "--transaction-partitions", "5")
    assert (refused.exit_code, "leave --transaction-partitions out" in refused.output) == (1, True)
    assert not (tmp_path / "new").exists()


def test_command_without_the_pipeline_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Drawn(3, DirectoryStore(tmp_path / "store"))
    monkeypatch.delitem(sys.modules, "muster_cli.backup.resharded")
    monkeypatch.setitem(sys.modules, "muster_pipeline.decode.errors", None)
    result = tmp_path / "result"
    arguments = ("--data-dir", str(tmp_path / "new"), f"--result={result}")
    refused = invoke(tmp_path / "store", *arguments, "--partitions", "5")
    assert (refused.exit_code, "name the pipeline's image in spec.restoreFrom.image" in refused.output) == (1, True)
    assert "is missing" in json.loads(result.read_text())["error"]
    assert invoke(tmp_path / "store", *arguments, "--partitions", "3").exit_code == 0


def test_cluster_of_before_is_known_by_its_numbers(tmp_path: Path) -> None:
    """It may come back, and back up into the store that its successor goes on with."""
    store = DirectoryStore(tmp_path / "store")
    backup = backup_of(store, (b"key", b"value"))
    after = PartitionCut(1, "b" * 32, 3, 1003, ((3, 0),), ())
    successor = Backup("20261128T091703Z-abcdef", 2, "1", "c", 1, Layout(1, 1, 500_000, 0), (after,))

    def lost(number: int) -> Ends:
        entry = PartitionEntry(number, "a" * 32, 9, ((3, 0), (1003, 3)), (), 1003)
        return Ends(1, "c", (LedLog(cast("PodClient", None), entry),))

    check_goes_on(backup, lost(0))
    check_goes_on(backup, lost(1))
    check_goes_on(successor, lost(1))
    with pytest.raises(OtherHistoryError, match=r"__consumer_offsets-0 serves here, and .* has replaced it"):
        check_goes_on(successor, lost(0))
