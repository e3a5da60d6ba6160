"""`muster restore --volume`: done once, whatever it is killed at, and never on top of something else."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
from itertools import count
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner, Result

from muster_cli.backup.continuity import check_goes_on
from muster_cli.backup.cut import Ends, LedLog, OtherHistoryError
from muster_cli.backup.manifest import Backup, Layout, PartitionCut, SegmentFile, encode_manifest
from muster_cli.backup.restore import EPOCH_STEP
from muster_cli.backup.store import DirectoryStore
from muster_cli.main import cli
from muster_coordinator.log.disk import OsDisk
from muster_coordinator.podapi.client import PodClient
from muster_coordinator.podapi.segments import PartitionEntry
from muster_coordinator.records.batch import encode_batch
from muster_coordinator.replica.promise_file import PROMISE_NAME, PromiseFile
from muster_coordinator.replication.epochs import EPOCH_JUMP_MAX
from muster_coordinator.sites.origin import NAME, Origin, read_origin

ID = "20261128T091702Z-abcdef"
OTHER = "20261128T091702Z-abcdee"
TAKEN_MS = 1_795_857_422_000
KILLED = 9


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with two backups of two partitions."""
    files = DirectoryStore(tmp_path / "store")
    data = encode_batch([(b"key", b"value")], base_offset=0, leader_epoch=3, timestamp_ms=1)
    digest = hashlib.sha256(data).hexdigest()
    segment = SegmentFile(0, len(data), 1, digest, digest)
    cuts = tuple(PartitionCut(number, "a" * 32, 1, 3, ((3, 0),), (segment,)) for number in range(2))
    files.write(segment.name, data)
    for name in (ID, OTHER):
        backup = Backup(name, TAKEN_MS, "1", "kafka-id", 2, Layout(0, 2, 500_000, 0), cuts)
        files.write(backup.name, encode_manifest(backup))
    return tmp_path / "store"


def arguments(store: Path, volume: Path, *more: str, backup: str = ID, pod: int = 0) -> list[str]:
    common = ["restore", "--store", str(store), "--backup", backup]
    return [*common, "--volume", str(volume), "--pod", str(pod), "--pods", "2", *more]


def run(store: Path, volume: Path, *more: str, backup: str = ID, pod: int = 0) -> Result:
    return CliRunner().invoke(cli, arguments(store, volume, *more, backup=backup, pod=pod))


def contents(root: Path) -> dict[str, bytes]:
    return {str(each.relative_to(root)): each.read_bytes() for each in root.rglob("*") if each.is_file()}


def kill_at(step: int, root: Path, *given: str) -> int:
    """Run `muster` in a child process that dies at step `step` of its work on files below `root`. Its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = step

    def watch(event: str, args: tuple[object, ...]) -> None:
        nonlocal left
        if event in ("open", "os.rename", "os.mkdir", "os.remove") and str(args[0]).startswith(str(root)):
            left -= 1
            if not left:
                os._exit(KILLED)

    sys.addaudithook(watch)
    try:
        code = CliRunner().invoke(cli, list(given)).exit_code
    finally:
        os._exit(code)


def test_restore_that_is_killed_at_any_step_is_begun_again_and_ends_whole(store: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole" / "data"
    assert run(store, whole).exit_code == 0
    killed = 0
    for step in count(1):
        volume = tmp_path / f"killed-{step}" / "data"
        code = kill_at(step, volume.parent, *arguments(store, volume))
        if code != KILLED:
            break
        killed += 1
        assert not volume.exists() or contents(volume).keys() == contents(whole).keys()
        done = run(store, volume)
        assert done.exit_code == 0, done.output
        assert contents(volume).keys() == contents(whole).keys()
        assert not volume.with_name("data.partial").exists()
    assert (code, killed > 10) == (0, True)


def test_lost_cluster_with_many_elections_more_is_known_by_its_lower_epochs(store: Path, tmp_path: Path) -> None:
    assert run(store, tmp_path / "volume" / "data").exit_code == 0
    (promise,) = (tmp_path / "volume" / "data").rglob(PROMISE_NAME)
    epoch = PromiseFile.open(OsDisk(), promise.parent).epoch
    cuts = [PartitionCut(number, "b" * 32, 3, epoch, ((3, 0), (epoch, 1)), ()) for number in range(2)]
    successor = Backup(OTHER, TAKEN_MS, "1", "kafka-id", 2, Layout(0, 2, 500_000, 0), tuple(cuts))

    def lost(elections: int) -> Ends:
        entry = PartitionEntry(0, "a" * 32, 9, ((3, 0),), (), 3 + elections)
        return Ends(TAKEN_MS, "kafka-id", (LedLog(cast("PodClient", None), entry),))

    with pytest.raises(OtherHistoryError, match="another cluster has gone on from this one"):
        check_goes_on(successor, lost(999))
    assert EPOCH_STEP < EPOCH_JUMP_MAX, "no pod would take it"


def test_same_restore_again_does_nothing_and_needs_no_store(store: Path, tmp_path: Path) -> None:
    volume = tmp_path / "data"
    assert run(store, volume).exit_code == 0
    (volume / "written-since").write_bytes(b"by the pod")
    before = contents(volume)
    result = tmp_path / "result"
    again = run(tmp_path / "gone", volume, f"--result={result}")
    assert (again.exit_code, "already" in again.output) == (0, True)
    assert json.loads(result.read_text()) == {"backup": ID}
    assert contents(volume) == before


@pytest.mark.parametrize(("backup", "pod"), [(OTHER, 0), (ID, 1)])
def test_volume_of_another_backup_or_pod_is_refused_and_left(
    store: Path, tmp_path: Path, backup: str, pod: int
) -> None:
    volume, result = tmp_path / "data", tmp_path / "result"
    assert run(store, volume).exit_code == 0
    before = contents(volume)
    refused = run(store, volume, f"--result={result}", backup=backup, pod=pod)
    assert (refused.exit_code, "is not empty" in refused.output) == (1, True)
    assert "is not empty" in json.loads(result.read_text())["error"]
    assert contents(volume) == before


def test_two_runs_do_not_work_on_one_volume(store: Path, tmp_path: Path) -> None:
    volume = tmp_path / "data"
    with (tmp_path / ".restore.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = run(store, volume)
        assert (refused.exit_code, "another muster restore works on" in refused.output) == (1, True)
    assert not volume.exists()
    assert run(store, volume).exit_code == 0
    assert (volume / NAME).exists()


def test_data_directory_of_all_pods_is_noted_with_its_backup_too(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "new"
    arguments = ["restore", f"--store={store}", f"--data-dir={target}", "--pods=2", f"--backup={OTHER}"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    notes = [read_origin(target / "pods" / f"muster-{pod}") for pod in range(2)]
    assert all(isinstance(each, Origin) for each in notes)
    assert {(each.backup, each.pod, each.pods) for each in notes if each} == {(OTHER, 0, 2), (OTHER, 1, 2)}
    assert read_origin(tmp_path) is None


def test_dry_run_says_which_backup_is_the_newest_and_what_is_in_it(store: Path, tmp_path: Path) -> None:
    volume, result = tmp_path / "data", tmp_path / "result"
    done = run(store, volume, "--dry-run", f"--result={result}", backup="latest")
    assert done.exit_code == 0, done.output
    found = json.loads(result.read_text())
    assert found == {
        "backup": ID,
        "takenAtMs": TAKEN_MS,
        "clusterId": "kafka-id",
        "bytes": found["bytes"],
        "offsetsPartitions": 2,
        "transactionBase": 500_000,
    }
    assert not volume.exists()


def test_harmed_store_is_an_error_in_the_result(store: Path, tmp_path: Path) -> None:
    [segment] = (store / "segments").iterdir()
    segment.write_bytes(b"x" + segment.read_bytes()[1:])
    result = tmp_path / "result"
    assert run(store, tmp_path / "data", "--dry-run", f"--result={result}").exit_code == 1
    assert segment.name in json.loads(result.read_text())["error"]


def test_only_the_logs_of_the_pod_are_read(tmp_path: Path) -> None:
    files, cuts = DirectoryStore(tmp_path / "store"), []
    for number in (0, 1, 500_000):
        data = encode_batch([(b"key", b"%d" % number)], base_offset=0, leader_epoch=3, timestamp_ms=1)
        digest = hashlib.sha256(data).hexdigest()
        segment = SegmentFile(0, len(data), 1, digest, digest)
        files.write(segment.name, data)
        cuts.append(PartitionCut(number, "a" * 32, 1, 3, ((3, 0),), (segment,)))
    backup = Backup(ID, TAKEN_MS, "1", "kafka-id", 2, Layout(0, 2, 500_000, 1), tuple(cuts))
    files.write(backup.name, encode_manifest(backup))
    names = [cut.segments[0].name for cut in cuts]

    def works(pod: int, *more: str) -> bool:
        done = run(tmp_path / "store", tmp_path / f"pod-{pod}" / "data", *more, pod=pod)
        assert done.exit_code == 0 or "is not restored, because" in done.output, done.output
        return done.exit_code == 0

    whole = (tmp_path / "store" / names[2]).read_bytes()
    (tmp_path / "store" / names[2]).write_bytes(b"x")
    assert not works(1)  # all pods need the transactions
    (tmp_path / "store" / names[2]).write_bytes(whole)
    (tmp_path / "store" / names[0]).write_bytes(b"x")
    assert (works(0), works(0, "--dry-run"), works(1)) == (False, False, True)
