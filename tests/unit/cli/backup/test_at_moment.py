"""A restore of the moment between two backups: no transaction is torn, and offsets are those of the logs then.

`MOMENTS=5000` draws more logs.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner, Result
from tests.unit.cli.backup.drawn_logs import BASE_MS, LAYOUT, Drawn
from tests.unit.cli.backup.test_then import Log, put

from muster_cli.backup.at_moment import AtMoment, at_moment
from muster_cli.backup.catalog import read_catalog
from muster_cli.backup.fencing import Transactions
from muster_cli.backup.manifest import Layout
from muster_cli.backup.restore import run_restore
from muster_cli.backup.store import DirectoryStore
from muster_cli.errors import CliError
from muster_cli.local.data_dir import DataDir
from muster_cli.main import cli
from muster_coordinator.groups.offset_store import OffsetStore
from muster_coordinator.log.segments.partition_log import partition_directory
from muster_coordinator.partition_numbers import index_of
from muster_coordinator.records.batch import RecordBatch, encode_batch, iter_batches
from muster_coordinator.records.control import EndTxnMarker, decode_control
from muster_coordinator.records.decode import decode_record
from muster_coordinator.records.structs import OffsetCommitRecord
from muster_coordinator.records.transaction_log import TransactionStatus
from muster_coordinator.transactions.states import PREPARED

MOMENTS = int(os.environ.get("MOMENTS", "60"))


def quiet(_what: str, _done: int, _total: int) -> None:
    """Progress that nobody sees."""


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "store")


def found_at(store: DirectoryStore, at_ms: int) -> AtMoment:
    with at_moment(store, read_catalog(store), "latest", at_ms, quiet) as (made, _, _):
        return made


def ends(made: AtMoment) -> dict[int, int]:
    return {each.number: each.commit_point for each in made.backup.partitions}


def moment_in(drawn: Drawn, rng: Random) -> int:
    return rng.randint(drawn.base.taken_at_ms, drawn.later.taken_at_ms - 1)


@pytest.mark.parametrize(("skew_ms", "repeats"), [(0, False), (40, False), (300, True)])
def test_no_moment_between_two_backups_tears_a_transaction(tmp_path: Path, skew_ms: int, repeats: bool) -> None:
    left_out = exact = 0
    for seed in range(MOMENTS):
        store = DirectoryStore(tmp_path / str(seed))
        drawn = Drawn(seed, store, skew_ms=skew_ms, repeats=repeats)
        at_ms = moment_in(drawn, Random(seed))
        made = found_at(store, at_ms)
        cut, base = ends(made), {each.number: each.commit_point for each in drawn.base.partitions}
        assert drawn.torn_by(base, cut) == [], seed
        assert all(base[number] <= cut[number] for number in cut), seed
        left_out += made.torn
        at_least = drawn.logs.real_cut(at_ms - BASE_MS - skew_ms)
        exact += all(cut[number] >= at_least[number] for number in cut)
    assert left_out > 0 or not skew_ms
    assert repeats or exact > MOMENTS * 0.7  # where counting leaves two answers, the cut is an earlier one


def batches(partition: Path) -> list[RecordBatch]:
    return [each for file in sorted(partition.glob("*.log")) for each in iter_batches(file.read_bytes())]


def offsets_in(data: DataDir, layout: Layout = LAYOUT) -> dict[str, dict[int, int]]:
    """The offsets by group and its partition in restored logs, after their coordinators have written due markers."""
    pods = sorted(data.root.glob("pods/*"))

    def log(number: int) -> list[RecordBatch]:
        (found,) = [
            batches(partition_directory(pod, number)) for pod in pods if partition_directory(pod, number).exists()
        ]
        return found

    due: list[tuple[int, int, bool, tuple[int, ...]]] = []
    for number in layout.transactions:
        transactions = Transactions(index_of(number))
        for batch in log(number):
            transactions.take(batch)
        assert transactions.open == []
        due += [
            (
                each.producer_id,
                each.producer_epoch,
                each.status is TransactionStatus.PREPARE_COMMIT,
                each.partitions[0][1],
            )
            for each in transactions.values.values()
            if each.status in PREPARED and each.partitions
        ]
    found: dict[str, dict[int, int]] = {}
    for number in layout.offsets:
        offsets = OffsetStore(1000, 1000)
        for batch in log(number):
            for record in batch.records():
                if batch.is_control:
                    control = decode_control(record.key, record.value)
                    if isinstance(control, EndTxnMarker):
                        offsets.end_transaction(
                            batch.producer_id, batch.producer_epoch, control.committed, 0, record.offset
                        )
                    continue
                change = decode_record(record.key, record.value)
                assert isinstance(change, OffsetCommitRecord)
                assert change.value is not None
                place, stored = (change.group_id, change.topic, change.partition), (record.offset, change.value)
                if batch.is_transactional:
                    offsets.put_pending(batch.producer_id, batch.producer_epoch, *place, stored)
                else:
                    offsets.put(*place, stored)
        for producer_id, epoch, committed, partitions in due:
            if number - layout.offsets_base in partitions:
                offsets.end_transaction(producer_id, epoch, committed, 1, 1 << 40)
        assert offsets.pending == {}
        for group in offsets.committed:
            found.setdefault(group, {})[number] = offsets.of_group(group)["t"][0][1].offset
    return found


def test_restored_logs_have_the_offsets_of_the_moment(tmp_path: Path) -> None:
    for seed in range(max(3, MOMENTS // 40)):
        root = tmp_path / str(seed)
        store = DirectoryStore(root / "store")
        drawn = Drawn(seed + 1000, store, skew_ms=20)
        at_ms = moment_in(drawn, Random(seed))
        data = DataDir(root / "new")
        with at_moment(store, read_catalog(store), "latest", at_ms, quiet) as (made, source, catalog):
            run_restore(source, catalog, made.backup, data, 2, at_ms + 1, quiet)
        assert offsets_in(data) == drawn.offsets_at(ends(made)), seed
        assert made.records == sum(ends(made).values()) - sum(each.commit_point for each in drawn.base.partitions)
        assert read_catalog(store).backups == (drawn.base, drawn.later)


def invoke(store: Path, at_ms: int, *more: str) -> Result:
    at = datetime.fromtimestamp((BASE_MS + at_ms) / 1000, UTC).isoformat()
    return CliRunner().invoke(cli, ["restore", "--store", str(store), "--at", at, *more])


def test_commits_between_two_backups_are_restored_up_to_the_moment(store: DirectoryStore, tmp_path: Path) -> None:
    log = Log().commit(10, 1)
    first = put(store, 1, log, 50)
    put(store, 2, log.commit(60, 2).commit(70, 3).commit(80, 4), 100)
    target = tmp_path / "new"
    arguments = ("--data-dir", str(target), "--json")
    done = invoke(tmp_path / "store", 70, *arguments, "--dry-run")
    assert (done.exit_code, target.exists()) == (0, False), done.output
    plan = json.loads(done.stdout)
    assert (plan["base"], plan["records"], plan["torn"], plan["after"]) == (first.id, 2, 0, 1)
    assert invoke(tmp_path / "store", 70, *arguments).exit_code == 0
    (partition,) = target.glob("pods/*/__consumer_offsets-0")
    assert [each.base_timestamp_ms - BASE_MS for each in batches(partition) if not each.is_control] == [10, 60, 70]

    volume = tmp_path / "pods" / "data"
    one = ("--volume", str(volume), "--pod", "0", "--pods", "1")
    refused = invoke(tmp_path / "store", 70, *one, "--backup", first.id)
    assert (refused.exit_code, f"is {plan['id']}" in refused.output) == (1, True)
    for said in ("", "already"):
        done = invoke(tmp_path / "store", 70, *one, "--backup", plan["id"])
        assert (done.exit_code, said in done.output) == (0, True), done.output


def test_moment_that_no_two_backups_are_around_is_refused_with_those_there_are(
    store: DirectoryStore, tmp_path: Path
) -> None:
    log = Log().commit(10, 1)
    first = put(store, 1, log, 50)
    second = put(store, 2, log.commit(60, 2), 100)
    for at_ms in (49, 100, 5000):
        refused = invoke(tmp_path / "store", at_ms, "--data-dir", str(tmp_path / "new"))
        assert refused.exit_code == 1
        assert f"({first.id}) to" in refused.output
        assert second.id in refused.output
    assert not (tmp_path / "new").exists()


def test_moment_is_refused_if_compaction_took_records_of_that_time(store: DirectoryStore) -> None:
    log = Log().commit(10, 1)
    put(store, 1, log, 50)
    put(store, 2, log.commit(60, 2).lose(1).commit(80, 4), 100)
    with pytest.raises(CliError, match="__consumer_offsets-0: compaction had removed records after offset 2"):
        found_at(store, BASE_MS + 70)


def test_moment_is_refused_if_the_cluster_was_restored_in_between(store: DirectoryStore) -> None:
    log = Log().commit(10, 1)
    put(store, 1, log, 50)
    log.data += encode_batch([(b"k", b"v")], base_offset=1, leader_epoch=1001, timestamp_ms=BASE_MS + 60)
    log.end += 1
    put(store, 2, log, 100)
    with pytest.raises(CliError, match="__consumer_offsets-0: the cluster was restored between"):
        found_at(store, BASE_MS + 70)


def test_clocks_that_differ_by_more_than_a_minute_are_said(tmp_path: Path) -> None:
    said = set()
    for seed in range(20):
        store = DirectoryStore(tmp_path / str(seed))
        drawn = Drawn(seed, store, skew_ms=200_000)
        cut = {each.number: each.commit_point for each in drawn.base.partitions}
        try:
            made = found_at(store, (drawn.base.taken_at_ms + drawn.later.taken_at_ms) // 2)
        except CliError as error:
            said.add(str(error).partition("as if ")[2].partition(":")[0])
        else:
            assert drawn.torn_by(cut, ends(made)) == []
    assert said == {"clocks of pods differed by more"}
