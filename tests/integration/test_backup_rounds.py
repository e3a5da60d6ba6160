"""Clusters that are lost and restored again and again under commits and transactions, each going on from the one
before, with backups that are killed and stores that are full, slow or fail. What clients know says what must be there.

`make prove-backup` does it ROUNDS=20 times under RATE=500 commits a second, and meets each kind of step of a backup
TIMES=5 times.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.integration.test_backup import SHAPE, check, create, restored, verified
from tests.support.local_cluster import LocalCluster, muster, wait_until
from tests.support.s3_server import S3Server, compiled, s3_server
from tests.support.transaction_load import CALL_S, TOPIC, Known, Load, client, committed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(7200)]

ROUNDS, RATE, TIMES = (
    int(os.environ.get(name, default)) for name, default in (("ROUNDS", "2"), ("RATE", "0"), ("TIMES", "1"))
)
TRANSACTIONS, PLAIN, FRESH = 6, max(6, RATE // 25), 1
FAULTS = ("none", "killed", "full", "slow", "failing")
LOAD_S = 4.0
COMPACTED = ("--config", "offsets.topic.segment.bytes=1000000", "--config", "log.cleaner.backoff.ms=1000")
"""Keeps logs small, however long commits go on: a larger log has more steps."""
AFTER_THE_MANIFEST = [f"store: {what} {where}" for what in ("open", "sync", "remove") for where in ("backups", "root")]
START = 10_000_000
"""The offsets of a round begin above all of the one before."""


class Open:
    """A producer whose transaction stays open, after one that it has committed."""

    def __init__(self, bootstrap: str, start: int) -> None:
        self.acked = start + 1
        settings = {"bootstrap.servers": bootstrap, "transactional.id": "open", "transaction.timeout.ms": 600_000}
        self._producer = Producer({**settings, "log_level": 0})
        self._group = client(bootstrap, "open")
        self._producer.init_transactions(CALL_S)
        self._begin(self.acked)
        self._producer.commit_transaction(CALL_S)
        self._begin(self.acked + 1)

    def _begin(self, offset: int) -> None:
        self._producer.begin_transaction()
        group = self._group.consumer_group_metadata()
        self._producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, offset)], group, CALL_S)


class Member:
    """The only member of a group, with all partitions of the topic."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.group = group
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "session.timeout.ms": 600_000}
        self._consumer = Consumer({**settings, "max.poll.interval.ms": 600_000, "log_level": 0})
        self._consumer.subscribe([TOPIC])
        deadline = time.monotonic() + CALL_S
        while len(self._consumer.assignment()) < 3:
            assert time.monotonic() < deadline, "the member gets no partitions"
            self._consumer.poll(0.1)
        self.id = self._consumer.memberid()


def groups_of(bootstrap: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_consumer_groups(request_timeout=CALL_S).result()
    assert not listed.errors
    return {each.group_id for each in listed.valid}


def members_of(bootstrap: str, group: str) -> list[tuple[str, int]]:
    """The ids of a group's members, with how many partitions each has."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [asked] = admin.describe_consumer_groups([group]).values()
    return [(each.member_id, len(each.assignment.topic_partitions)) for each in asked.result().members]


@contextmanager
def load_of(bootstrap: str, start: int, fresh: int = FRESH) -> Iterator[Load]:
    load = Load(bootstrap, TRANSACTIONS, PLAIN, fresh=fresh, start=start)
    try:
        wait_until(lambda: load.all_committed or bool(load.failures), "every client commits")
        yield load
    finally:
        load.stop()
    assert load.failures == []


def goes_on(load: Load, more: int) -> None:
    reached = load.done
    wait_until(lambda: load.done > reached + more, "clients go on")


def lose(cluster: LocalCluster) -> None:
    """Nothing of the cluster is left: processes, volumes and objects."""
    assert cluster.stop(signal.SIGKILL) != 0
    cluster.__exit__()
    shutil.rmtree(cluster.data)


def restored_volumes(store: str, backup_id: str, data: Path) -> None:
    """The volume of each pod by itself, as on Kubernetes: the operator finds leaders on them and makes replicas."""
    for pod in range(3):
        place = ("--volume", str(data / "pods" / f"muster-{pod}"), "--pod", str(pod), "--pods", "3")
        done = muster("restore", "--store", store, "--backup", backup_id, *place)
        assert done.returncode == 0, done.stderr


def command(data: Path, store: str) -> list[str]:
    return [sys.executable, "-m", "muster_cli", "backup", "create", "--data-dir", str(data), "--store", store]


class Faults:
    """What happens to a store or a backup before, or while, the one of the round is made.

    `ended`: the exit codes of backups that were killed, or met a store that is full or fails.
    """

    def __init__(self, store: str, s3: S3Server | None, rng: random.Random) -> None:
        self._store, self._s3, self._rng = store, s3, rng
        self.ended: Counter[tuple[str, int]] = Counter()

    def killed(self, data: Path) -> int:
        child = subprocess.Popen(command(data, self._store), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        time.sleep(self._rng.uniform(0.3, 1.5))
        child.kill()
        return child.wait()

    def full(self, data: Path) -> int:
        """A disk of its own, seen by the command only."""
        kib = self._rng.choice((16, 64, 128, 256))
        script = (
            f'mount -t tmpfs -o size={kib}k tmpfs "$0" && "$@"; code=$?;'
            f' "{sys.executable}" -m muster_cli backup list --store "$0"; exit $code'
        )
        place = data.with_name("full")
        place.mkdir(exist_ok=True)
        run = ["unshare", "-rm", "bash", "-c", script, str(place), *command(data, str(place))]
        done = subprocess.run(run, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stdout) == (1, "no backup\n"), done
        assert "No space left on device" in done.stderr
        return done.returncode

    def slow(self, data: Path) -> str:
        """The backup of the round, while the store stands still for most of the time. Returns its id."""
        assert self._s3 is not None
        child = subprocess.Popen([*command(data, self._store), "--json"], stdout=subprocess.PIPE, text=True)
        try:
            for number, seconds in cycle(((signal.SIGSTOP, 0.4), (signal.SIGCONT, 0.05))):
                self._s3.process.send_signal(number)
                try:
                    child.wait(seconds)
                    break
                except subprocess.TimeoutExpired:
                    pass
        finally:
            self._s3.process.send_signal(signal.SIGCONT)
        assert child.returncode == 0
        backup_id: str = json.loads(child.communicate()[0])["id"]
        return backup_id

    def failing(self, data: Path) -> int:
        """The store is gone when the backup is half-way, and comes back when that has failed."""
        assert self._s3 is not None
        child = subprocess.Popen(command(data, self._store), stderr=subprocess.PIPE, text=True)
        time.sleep(self._rng.uniform(0.5, 1.5))
        self._s3.stop()
        _, said = child.communicate(timeout=180)
        self._s3.start()
        assert child.returncode == 0 or "object store" in said or "Error: cannot" in said, said
        return child.returncode

    def before(self, fault: str, data: Path) -> None:
        act = {"killed": self.killed, "full": self.full, "failing": self.failing}.get(fault)
        if act is not None:
            self.ended[fault, act(data)] += 1


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server | None]:
    if compiled() is None:
        yield None
        return
    with s3_server(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


def can_mount() -> bool:
    run = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(run, capture_output=True).returncode == 0


def test_cluster_that_is_lost_and_restored_again_and_again_is_one_moment_each_time(
    tmp_path: Path, s3: S3Server | None
) -> None:
    store = str(tmp_path / "store") if s3 is None else "s3://backups/orders"
    kinds = [each for each in FAULTS if (each not in ("slow", "failing") or s3) and (each != "full" or can_mount())]
    faults = Faults(store, s3, random.Random(7))
    fresh: set[str] = set()
    data = tmp_path / "0"
    counted = number = 0  # rounds under less than the rate have to be right, and do not count
    cluster = LocalCluster(data, *SHAPE)
    try:
        bootstrap = cluster.wait_ready()
        while counted < ROUNDS:
            number += 1
            fault, began = kinds[counted % len(kinds)], time.monotonic()
            start = number * START
            with load_of(bootstrap, start) as load:
                still, member = Open(bootstrap, start), Member(bootstrap, f"member-{number}")
                until = time.monotonic() + LOAD_S
                wait_until(lambda: time.monotonic() > until, "the load runs for a while")  # noqa: B023
                faults.before(fault, data)
                before = load.known()
                backup_id = faults.slow(data) if fault == "slow" else create(cluster, store)
                after, rate = load.known(), load.rate
                goes_on(load, 100)
            lost = {line["partition"]: line["epoch"] for line in cluster.status()["partitions"]}
            lose(cluster)
            data = tmp_path / str(number)
            restored_volumes(store, backup_id, data)
            cluster = LocalCluster(data, *SHAPE)
            bootstrap = cluster.wait_ready()
            fresh = same_moment(bootstrap, before, after, load.aborted, fresh)
            assert committed(bootstrap, "open") == still.acked
            assert members_of(bootstrap, member.group) == [(member.id, 3)]
            epochs = {line["partition"]: line["epoch"] for line in cluster.status()["partitions"]}
            assert epochs.keys() == lost.keys()
            assert all(epochs[partition] > lost[partition] for partition in lost)
            took = time.monotonic() - began
            counted += rate >= RATE
            print(f"round {number}: {fault}, {rate:.0f} commits/s, {len(fresh)} fresh groups, {took:.0f} s", flush=True)
            assert number < 2 * ROUNDS or counted == ROUNDS, "the machine is too busy for this rate"
        with load_of(bootstrap, (number + 1) * START) as load:  # the same clients, with the same ids
            goes_on(load, 30)
    finally:
        cluster.__exit__()
    verified(store)
    print(f"backups that were disturbed, by exit code: {dict(faults.ended)}")


def same_moment(
    bootstrap: str, before: dict[str, Known], after: dict[str, Known], aborted: set[tuple[str, int]], fresh: set[str]
) -> set[str]:
    """Groups are those that there were at the cut, no more and no less, and offsets are of that moment. Returns the
    fresh ones. `fresh`: those of earlier rounds."""
    check(bootstrap, before, {name: each for name, each in after.items() if not name.startswith("fresh")}, aborted)
    groups = groups_of(bootstrap)
    now = {each for each in groups if each.startswith("fresh")}
    made = sorted(int(each.rpartition("-")[2]) for each in now - fresh)
    assert fresh <= now
    first = made[0]
    assert first % START == 1
    assert made == [*range(first, first + len(made))]
    assert before["fresh-0"].acked <= made[-1] <= after["fresh-0"].begun
    for number in {first, made[len(made) // 2], made[-1]}:
        assert committed(bootstrap, f"fresh-0-{number}") == number
    names = (name for name in after if not name.startswith("fresh"))
    clients = {
        kind
        for name in names
        for kind in ([name.replace("tx", each) for each in ("first", "second")] if "tx" in name else [name])
    }
    assert clients <= groups
    return now


def ended_at_each_step(
    fault: str, store: Path, data: Path, load: Load
) -> list[tuple[str, dict[str, Known], dict[str, Known]]]:
    """Returns the backups that count all the same, with what clients knew before and after they were made."""
    steps = [sys.executable, "-m", "tests.support.backup_steps", fault, str(store), str(data), str(TIMES)]
    counted: list[tuple[str, dict[str, Known], dict[str, Known]]] = []
    met: Counter[str] = Counter()
    knew = [load.known()] * 2
    scratch = store.with_name(f"{fault}-scratch")  # killed commands leave something there
    scratch.mkdir()
    with (
        (store.parent / f"{fault}.log").open("w") as log,
        subprocess.Popen(
            steps, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "TMPDIR": str(scratch)}
        ) as children,
        ExitStack() as stack,
    ):
        stack.callback(children.kill)  # unless it has ended by itself
        assert children.stdout is not None
        for line in children.stdout:
            row = json.loads(line)
            goes_on(load, 20)
            knew.append(load.known())
            new = {*row["backups"]} - {each for each, _, _ in counted}
            counted += [(each, knew[-3], knew[-1]) for each in new]  # a child may begin before the last line is read
            if not row["name"]:
                assert (row["code"], len(new)) == (0, 1), row
                continue
            met[row["name"]] += 1
            assert row["code"] == (-signal.SIGKILL if fault == "killed" else 1), row
            assert not new or row["name"] in AFTER_THE_MANIFEST, row
        assert children.wait() == 0
    print(f"{fault}: {sum(met.values())} backups ended, {load.rate:.0f} commits/s")
    for name, times in sorted(met.items()):
        print(f"  {times:4} {name}")
    assert {"store: create backups", "store: rename backups", "store: rename segments"} <= met.keys()
    return counted


def test_backup_that_ends_at_any_step_does_not_count_or_is_whole(tmp_path: Path) -> None:
    """It counts as soon as its manifest has its name. The next one is whole in any case, and no marker waits."""
    data = tmp_path / "data"
    taken = []
    with LocalCluster(data, *SHAPE, *COMPACTED) as cluster:
        with load_of(cluster.wait_ready(), 0, fresh=0) as load:
            for fault in ("killed", "full", "failing"):
                counted = ended_at_each_step(fault, tmp_path / fault, data, load)
                taken += [(fault, *each) for each in counted[-min(TIMES, 3) :]]
                known = load.known()
                wait_until(lambda: all_go_on(known, load.known()), "each client goes on")  # noqa: B023
            rate = load.rate
        lose(cluster)
    for fault, backup_id, before, after in taken:
        verified(str(tmp_path / fault))
        restored(str(tmp_path / fault), backup_id, tmp_path / backup_id)
        with LocalCluster(tmp_path / backup_id, "--topic", "orders:3") as again:
            check(again.wait_ready(), before, after, load.aborted)
    assert rate >= RATE


def all_go_on(before: dict[str, Known], now: dict[str, Known]) -> bool:
    return all(now[name].acked > known.acked for name, known in before.items())
