"""Backups of a running cluster under commits and transactions, and what is in the restored one, as clients know it."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from tests.support.local_cluster import LocalCluster, muster, wait_until
from tests.support.s3_server import WHY_NONE, S3Server, compiled, s3_server
from tests.support.transaction_history import history
from tests.support.transaction_load import NO_OFFSET, Known, Load, committed

from muster_cli.backup.catalog import read_catalog
from muster_cli.backup.cut import take_cut
from muster_cli.backup.run import GivenPods
from muster_cli.backup.site import open_pods
from muster_cli.backup.store import DirectoryStore
from muster_cli.errors import CliError
from muster_cli.local.data_dir import DataDir
from muster_coordinator.podapi.client import new_session
from muster_operator.api.backup_result import MADE_BUT, BackupResult

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

CUTS = 60
SHAPE = ("--pods", "3", "--partitions", "6", "--transaction-partitions", "3", "--topic", "orders:3")
TRANSACTIONS, PLAIN = 6, 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "data", *SHAPE) as cluster:
        yield cluster


@pytest.fixture
def load(cluster: LocalCluster) -> Iterator[Load]:
    load = Load(cluster.wait_ready(), TRANSACTIONS, PLAIN)
    try:
        wait_until(lambda: len(load.known()) == TRANSACTIONS + PLAIN and load.done > 100, "clients commit")
        yield load
    finally:
        load.stop()
    assert load.failures == []


def create(cluster: LocalCluster, store: str) -> str:
    done = muster("backup", "create", "--data-dir", str(cluster.data), "--store", store, "--json")
    assert done.returncode == 0, done.stderr
    backup_id: str = json.loads(done.stdout)["id"]
    return backup_id


def restored(store: str, backup_id: str, target: Path) -> None:
    done = muster("restore", "--store", store, "--backup", backup_id, "--data-dir", str(target))
    assert done.returncode == 0, done.stderr


def verified(store: str) -> None:
    done = muster("backup", "verify", "--store", store)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "all of it is as it was written"), done.stdout


def check(bootstrap: str, before: dict[str, Known], after: dict[str, Known], aborted: set[tuple[str, int]]) -> None:
    """Each client finds an offset that it had committed by the end of the cut, and no older one than at its begin."""
    for name, known in after.items():
        groups = [name] if name.startswith("plain") else [name.replace("tx", kind) for kind in ("first", "second")]
        found = [committed(bootstrap, group) for group in groups]
        assert len(set(found)) == 1, f"torn: {name} has {found}, known {before.get(name)} and {known}"
        at_least = before[name].acked if name in before else NO_OFFSET
        assert at_least <= found[0] <= known.begun, (name, found, before.get(name), known)
        assert (name, found[0]) not in aborted


def test_restore_at_a_moment_has_what_clients_had_committed_then(
    cluster: LocalCluster, load: Load, tmp_path: Path
) -> None:
    """The clock of this machine is that of all pods."""
    store = str(tmp_path / "store")
    create(cluster, store)
    reached = load.done
    wait_until(lambda: load.done > reached + 300, "clients go on")
    before = load.known()
    at = datetime.now(UTC)
    # A commit in the rest of this millisecond counts to the moment: records carry no finer time.
    while datetime.now(UTC) < at + timedelta(milliseconds=1):
        pass
    after, reached = load.known(), load.done
    wait_until(lambda: load.done > reached + 300, "clients go on")
    create(cluster, store)
    load.stop()
    cluster.__exit__()
    target = tmp_path / "then"
    done = muster("restore", "--store", store, "--at", at.isoformat(), "--data-dir", str(target), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["after"] > 300
    with LocalCluster(target, "--topic", "orders:3") as then:
        check(then.wait_ready(), before, after, load.aborted)


def test_no_cut_tears_a_transaction(cluster: LocalCluster, load: Load, tmp_path: Path) -> None:
    """Looks at many cuts in the logs themselves, where every record of a transaction has its place."""

    async def cuts() -> list[dict[int, int]]:
        found = []
        async with open_pods(cluster.data, "", "") as site, new_session() as http:
            while len(found) < CUTS:
                cut = await take_cut(site, http)
                found.append({log.entry.partition: log.entry.commit_point for log in cut.logs})
        return found

    taken = asyncio.run(cuts())
    load.stop()
    store = DirectoryStore(tmp_path / "store")
    create(cluster, str(tmp_path / "store"))
    found = history(store, read_catalog(store).backups[0])
    assert len(found) > CUTS
    assert all(len(told.offsets) == 2 and told.decision and told.completion for told in found.values())
    with_before = [(name, told, found.get((name[0], name[1] - 1))) for name, told in found.items()]
    torn = [(name, cut, why) for cut in taken for name, told, last in with_before if (why := told.torn_by(cut, last))]
    assert torn == []


def test_full_disk_is_said_and_leaves_nothing_that_counts(cluster: LocalCluster, load: Load, tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: the write of a segment fails half-way."""
    store = tmp_path / "store"
    command = [sys.executable, "-m", "muster_cli", "backup", "create", "--data-dir", str(cluster.data)]
    for kibibytes in (1, 4):
        code = f'ulimit -f {kibibytes}; exec "$@"'
        done = subprocess.run(
            ["bash", "-c", code, "-", *command, "--store", str(store)], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 1, done.stderr
        assert done.stderr.splitlines()[-1].startswith("Error: ")
        assert "File too large" in done.stderr
    assert muster("backup", "list", "--store", str(store)).stdout == "no backup\n"
    create(cluster, str(store))
    verified(str(store))
    assert not list(store.rglob("*.part"))


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    if compiled() is None:
        pytest.skip(WHY_NONE)
    with s3_server(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


def test_object_store_keeps_backups_also_when_it_is_slow_or_away_for_a_while(
    cluster: LocalCluster, load: Load, tmp_path: Path, s3: S3Server
) -> None:
    store = "s3://backups/orders"
    first = create(cluster, store)
    s3.process.send_signal(signal.SIGSTOP)
    command = [sys.executable, "-m", "muster_cli", "backup", "create", "--store", store]
    child = subprocess.Popen([*command, "--data-dir", str(cluster.data)], stdout=subprocess.PIPE, text=True)
    reached = load.done
    wait_until(lambda: load.done > reached + 200, "clients do not wait for a store that hangs")
    s3.process.send_signal(signal.SIGCONT)
    assert child.wait(60) == 0
    before = load.known()
    last = create(cluster, store)
    after = load.known()
    s3.stop()
    away = muster("backup", "verify", "--store", "s3://backups/nowhere")
    assert away.returncode == 1
    assert "cannot list s3://backups/nowhere" in away.stderr
    s3.start()
    load.stop()
    verified(store)
    listed = muster("backup", "list", "--store", store).stdout.splitlines()
    assert [len(listed), listed[0].split()[0], listed[-1].split()[0]] == [3, first, last]
    restored(store, last, tmp_path / "again")
    with LocalCluster(tmp_path / "again", "--topic", "orders:3") as again:
        check(again.wait_ready(), before, after, load.aborted)

    victim = next(iter(sorted((s3.bucket / "orders" / "segments").iterdir())))
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(bytes(data))
    found = muster("backup", "verify", "--store", store)
    assert found.returncode == 1
    assert f"segments/{victim.name}: its content has changed" in found.stdout


@pytest.mark.parametrize(
    ("store", "wrong", "said"),
    [
        ("s3://backups/orders", {"AWS_SECRET_ACCESS_KEY": "wrong"}, "SignatureDoesNotMatch"),
        ("s3://backups/orders", {"AWS_ACCESS_KEY_ID": "nobody"}, "No user exists"),
        ("s3://nowhere/orders", {}, "NoSuchBucket"),
    ],
)
def test_refusal_of_the_object_store_is_told_in_its_own_words(
    store: str, wrong: dict[str, str], said: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in wrong.items():
        monkeypatch.setenv(name, value)
    refused = muster("backup", "list", "--store", store)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"cannot list {store}: the object store answers" in refused.stderr
    assert said in refused.stderr


def test_harmed_store_is_not_restored_and_nothing_is_overwritten(
    cluster: LocalCluster, load: Load, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    create(cluster, str(store))
    sent = json.loads(muster("backup", "list", "--store", str(store), "--json").stdout)["backups"][0]["bytes"]
    assert sent > 0
    load.stop()
    target = tmp_path / "new"
    arguments = ("restore", "--store", str(store), "--data-dir", str(target))
    victim = max((store / "segments").iterdir(), key=lambda path: path.stat().st_size)
    whole = victim.read_bytes()

    double = victim.with_name("double")
    double.write_bytes(whole)
    refused = muster(*arguments)
    assert (refused.returncode, f"segments/double: a double of segments/{victim.name}" in refused.stderr) == (1, True)
    double.unlink()
    victim.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    refused = muster(*arguments)
    assert (refused.returncode, f"segments/{victim.name}: its content" in refused.stderr) == (1, True)
    victim.unlink()
    refused = muster(*arguments, "--dry-run")
    assert (refused.returncode, f"segments/{victim.name}: missing" in refused.stderr) == (1, True)
    victim.write_bytes(whole)
    assert not target.exists()

    plan = muster(*arguments, "--dry-run", "--json")
    assert (plan.returncode, json.loads(plan.stdout)["pods"], target.exists()) == (0, 3, False)
    refused = muster("restore", "--store", str(store), "--data-dir", str(cluster.data))
    assert (refused.returncode, "is not empty" in refused.stderr) == (1, True)
    assert muster(*arguments, "--pods", "1").returncode == 0


def test_restored_cluster_is_resharded_backed_up_and_restored_again(
    cluster: LocalCluster, load: Load, tmp_path: Path
) -> None:
    """The numbers of its partitions are others then than those that clients know."""
    store, second = str(tmp_path / "store"), tmp_path / "second"
    before = load.known()
    create(cluster, store)
    after = load.known()
    load.stop()
    restored(store, "latest", second)
    with LocalCluster(second, "--topic", "orders:3") as again:
        again.wait_ready()
        for topic, partitions in (("__consumer_offsets", "4"), ("__transaction_state", "2")):
            work = ("--work-dir", str(tmp_path / f"work-{topic}"))
            done = muster("reshard", "--data-dir", str(second), "--topic", topic, "--partitions", partitions, *work)
            assert done.returncode == 0, done.stderr
        backup_id = create(again, store)
        assert again.stop() == 0
    shutil.rmtree(second)
    restored(store, backup_id, tmp_path / "third")
    with LocalCluster(tmp_path / "third", "--topic", "orders:3") as last:
        bootstrap = last.wait_ready()
        check(bootstrap, before, after, load.aborted)
        numbers = sorted(line["partition"] for line in last.status()["partitions"] if line["state"] == "Led")
        assert numbers == [6, 7, 8, 9, 500_003, 500_004]
        goes_on = Load(bootstrap, TRANSACTIONS, PLAIN)
        wait_until(lambda: goes_on.done > 30 or bool(goes_on.failures), "clients go on")
        goes_on.stop()
        assert goes_on.failures == []


COMPACTED = (
    *("--config", "offsets.topic.segment.bytes=20000", "--config", "log.cleaner.min.cleanable.ratio=0.1"),
    *("--config", "log.cleaner.backoff.ms=20"),
)


def test_backups_of_logs_that_are_compacted_meanwhile_are_whole_and_incremental(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    with LocalCluster(tmp_path / "data", *SHAPE, *COMPACTED) as cluster:
        load = Load(cluster.wait_ready(), TRANSACTIONS, PLAIN)
        try:
            wait_until(lambda: any((tmp_path / "data" / "pods").rglob("muster.cleaner")), "a log was compacted")
            for _ in range(3):
                before = load.known()
                create(cluster, store)
                after = load.known()
        finally:
            load.stop()
        create(cluster, store)
        arguments = ("backup", "create", "--data-dir", str(cluster.data), "--store", store, "--json")
        again = json.loads(muster(*arguments).stdout)
        assert (again["sent"], again["bytes"] > 0) == (0, True)
    assert load.failures == []
    verified(store)
    backups = read_catalog(DirectoryStore(Path(store))).backups
    assert max(len(partition.segments) for partition in backups[2].partitions) > 2
    restored(store, backups[2].id, tmp_path / "again")
    with LocalCluster(tmp_path / "again", "--topic", "orders:3") as last:
        check(last.wait_ready(), before, after, load.aborted)


def test_run_of_a_job_makes_verifies_and_prunes_with_the_addresses_of_pods(
    cluster: LocalCluster, load: Load, tmp_path: Path
) -> None:
    """What a Job of the operator calls; it leaves its result in a file."""
    record = DataDir(cluster.data).read_run()
    assert record is not None
    pods = [f"--pod={each.name}={each.api_address}" for each in record.pods]
    store, result = tmp_path / "store", tmp_path / "result"
    more = ("--keep", "1", "--verify", "--result", str(result))

    def run(*arguments: str, until: float = time.time() + 3600) -> tuple[int, BackupResult]:
        common = ("--store", str(store), "--cluster", "ns/c", "--pods-until", str(until))
        done = muster("backup", "run", *common, *arguments, *more)
        return done.returncode, msgspec.json.decode(result.read_bytes(), type=BackupResult)

    code, first = run(*pods)
    assert (code, first.verified, first.problems, first.error) == (0, True, "", "")
    code, second = run(*pods)
    assert (code, second.backup != first.backup) == (0, True)
    assert [each.id for each in read_catalog(DirectoryStore(store)).backups] == [second.backup]

    code, late = run(*pods, until=0)
    assert (code, late.backup, "too old" in late.error) == (1, "", True)
    load.stop()
    assert run(*pods)[0] == 0
    damaged = max((store / "segments").iterdir(), key=lambda each: each.stat().st_size)
    damaged.write_bytes(b"x" + damaged.read_bytes()[1:])
    code, after = run(*pods)
    assert (code, after.backup != "", damaged.name in after.problems) == (MADE_BUT, True, True)


def test_second_site_follows_and_takes_no_backup_of_the_site_that_was_left_behind(
    cluster: LocalCluster, load: Load, tmp_path: Path
) -> None:
    store = str(tmp_path / "store")
    of_cluster = ("--data-dir", str(cluster.data), "--store", store)
    follow = [sys.executable, "-m", "muster_cli", "backup", "follow", *of_cluster, "--every", "10", "--json"]
    with subprocess.Popen(follow, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        first, second = (json.loads(follower.stdout.readline()) for _ in range(2))
        follower.send_signal(signal.SIGTERM)
        assert follower.wait(30) == 0
    assert (first["lag"], first["trouble"], second["trouble"]) == (None, "", "")
    assert second["lag"]["backup"] == first["backup"] != second["backup"]
    assert second["lag"]["records"] > 0
    assert second["lag"]["seconds"] > 1
    load.stop()
    before = create(cluster, store)
    done = muster("backup", "lag", *of_cluster, "--json")
    assert (done.returncode, json.loads(done.stdout)["records"]) == (0, 0), done

    restored(store, before, tmp_path / "taken-over")
    with LocalCluster(tmp_path / "taken-over") as successor:
        successor.wait_ready()
        create(successor, store)
    done = muster("backup", "lag", *of_cluster)
    assert (done.returncode, "another cluster has gone on from this one" in done.stderr) == (1, True), done
    done = muster("backup", "follow", *of_cluster)
    assert (done.returncode, "another cluster has gone on from this one" in done.stderr) == (1, True), done


async def test_cut_of_some_pods_is_none(cluster: LocalCluster, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster_cli.backup.cut.TRY_FOR_S", 0.0)
    record = DataDir(cluster.data).read_run()
    assert record is not None
    addresses = {each.name: each.api_address for each in record.pods}
    async with new_session() as http:
        for name in addresses:
            some = {each: address for each, address in addresses.items() if each != name}
            deadline = time.monotonic() + 120  # pods rest after a hold, and refuse another one meanwhile
            while True:
                with pytest.raises(CliError) as refused:
                    await take_cut(GivenPods(some, time.time() + 60, None), http)
                if "no pod leads" in str(refused.value):
                    break
                assert time.monotonic() < deadline, refused.value
                await asyncio.sleep(0.1)
    monkeypatch.undo()
    async with new_session() as http:
        assert (await take_cut(GivenPods(addresses, time.time() + 60, None), http)).pods == 3


def test_pods_come_up_on_volumes_that_were_restored_each_by_itself(
    cluster: LocalCluster, load: Load, tmp_path: Path
) -> None:
    """It starts as on Kubernetes: no record says who leads, so the operator takes sets, epochs and layout from the
    volumes."""
    store, whole, again = str(tmp_path / "store"), tmp_path / "whole", tmp_path / "again"
    before = load.known()
    backup_id = create(cluster, store)
    after = load.known()
    load.stop()
    lost = {line["partition"]: line["epoch"] for line in cluster.status()["partitions"]}
    cluster.__exit__()
    common = ("restore", "--store", store, "--backup", backup_id, "--pods", "3")
    assert muster(*common, "--data-dir", str(whole)).returncode == 0

    def files(root: Path) -> dict[str, int]:
        return {str(each.relative_to(root)): each.stat().st_size for each in root.rglob("*") if each.is_file()}

    for pod in range(3):
        volume = again / "pods" / f"muster-{pod}"
        volume.with_name(f"muster-{pod}.partial").mkdir(parents=True)  # an interrupted run has left it
        alone = (*common, "--volume", str(volume), "--pod", str(pod))
        assert muster(*alone).returncode == 0
        # Log ids and times are other ones, of the same length.
        made = files(volume)
        assert made == files(whole / "pods" / f"muster-{pod}")
        assert (again_done := muster(*alone)).returncode == 0
        assert "already" in again_done.stdout
        refused = muster(*common, "--volume", str(volume), "--pod", str((pod + 1) % 3))
        assert (refused.returncode, "is not empty" in refused.stderr) == (1, True)
        assert files(volume) == made
    assert not list(again.rglob("*.partial"))
    with LocalCluster(again, *SHAPE) as instance:
        check(instance.wait_ready(), before, after, load.aborted)
        epochs = {line["partition"]: line["epoch"] for line in instance.status()["partitions"]}
        assert epochs.keys() == lost.keys()
        assert all(epochs[partition] > lost[partition] for partition in lost)
