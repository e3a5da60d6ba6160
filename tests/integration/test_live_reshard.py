"""A running cluster is re-sharded under commits of real clients, while the operator, the command and a pod fail."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.support.local_cluster import LocalCluster, muster

from muster_cli.local.declare import CLUSTER
from muster_operator.api.models import OffsetsTopic, ReshardPhase, ReshardStatus
from muster_operator.store.sqlite import SqliteStore

# Some of the waits inside may take two minutes each on a slow machine.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

GROUPS = 12
THREADS = 3
LIMIT_S = 120.0
ORDER = [ReshardPhase.PREPARING, ReshardPhase.FENCING, ReshardPhase.COPYING, ReshardPhase.OPENING, ReshardPhase.DONE]


class Town:
    """A cluster of three pods with 50 partitions, clients that commit all the time, and what they know."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        self.acknowledged = [0] * GROUPS
        self.tried = [0] * GROUPS
        self._ended = threading.Event()
        self._ports = free_base()
        self.cluster = self.start("--partitions", "50")
        self.store = SqliteStore(self.data / "muster.db")
        self._threads = [threading.Thread(target=self._commit, args=(n,)) for n in range(THREADS)]
        for thread in self._threads:
            thread.start()

    def start(self, *arguments: str) -> LocalCluster:
        numbers = ("--transaction-partitions", "0", "--base-port", str(self._ports))
        self.cluster = LocalCluster(self.data, "--topic", "t:1", *arguments, *numbers)
        self.bootstrap = self.cluster.wait_ready()
        return self.cluster

    def restart_operator(self) -> None:
        """SIGKILL of the operator with its supervisor. The next one replaces the pods, too."""
        self.cluster.child.kill()
        self.cluster.child.wait()
        self.start()

    def _commit(self, thread: int) -> None:
        own = range(thread, GROUPS, THREADS)
        consumers = {group: self.consumer(group) for group in own}
        while not self._ended.is_set():
            self._ended.wait(0.05)
            for group, consumer in consumers.items():
                self.tried[group] += 1
                try:
                    [done] = consumer.commit(offsets=[TopicPartition("t", 0, self.tried[group])], asynchronous=False)
                except KafkaException:
                    continue
                if done.error is None:
                    self.acknowledged[group] = self.tried[group]
        for consumer in consumers.values():
            consumer.close()

    def consumer(self, group: int, bootstrap: str = "") -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": bootstrap or self.bootstrap,
                "group.id": f"g-{group}",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "socket.timeout.ms": 3000,
                "log_level": 0,
            }
        )

    def committed(self, group: int, bootstrap: str = "") -> int:
        consumer = self.consumer(group, bootstrap)
        deadline = time.monotonic() + LIMIT_S
        try:
            while True:
                try:
                    [found] = consumer.committed([TopicPartition("t", 0)], timeout=10)
                    if found.error is None:
                        return int(found.offset)
                except KafkaException:
                    assert time.monotonic() < deadline
        finally:
            consumer.close()

    def check(self) -> None:
        """What was acknowledged is there, and nothing that was not asked for."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        for group in range(GROUPS):
            assert self.acknowledged[group] <= self.committed(group) <= self.tried[group], f"group g-{group}"

    def goes_on(self) -> None:
        """Every group gets commits acknowledged again."""
        before = self.tried.copy()
        self.until(lambda: all(now > then for now, then in zip(self.acknowledged, before, strict=True)), "commits")

    def topic(self) -> OffsetsTopic:
        return asyncio.run(self.store.observe(CLUSTER)).topics[0]

    def reshard(self) -> ReshardStatus | None:
        return self.topic().status.reshard

    def until(self, condition: object, what: str, step_s: float = 0.02) -> None:
        assert callable(condition)
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, f"never: {what}; {self.reshard()}"
            time.sleep(step_s)

    def reaches(self, phase: ReshardPhase) -> ReshardPhase:
        """The phase that was seen: that one, or a later one."""

        def there() -> bool:
            reshard = self.reshard()
            return reshard is not None and ORDER.index(reshard.phase) >= ORDER.index(phase)

        self.until(there, phase, 0.001)
        reshard = self.reshard()
        assert reshard is not None
        return reshard.phase

    def command(self, *arguments: str) -> subprocess.Popen[str]:
        places = ("--data-dir", str(self.data), "--work-dir", str(self.root / "work"))
        return subprocess.Popen(
            [sys.executable, "-m", "muster_cli", "reshard", *places, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def logs(self) -> set[str]:
        """Names of the logs of all pods."""
        return {path.parent.name for path in self.data.glob("pods/*/__consumer_offsets-*/*.log")}

    def pod_pid(self, name: str) -> int:
        record = msgspec.json.decode((self.data / "run.json").read_bytes())
        return int(next(pod["process"]["pid"] for pod in record["pods"] if pod["name"] == name))


def free_base() -> int:
    from tests.chaos.cluster import _free_range

    return _free_range(3)


@contextmanager
def town(root: Path) -> Iterator[Town]:
    made = Town(root)
    try:
        yield made
    finally:
        made._ended.set()
        made.cluster.__exit__()
        made.store.close()


def ended_well(command: subprocess.Popen[str]) -> str:
    output, _ = command.communicate(timeout=LIMIT_S)
    assert command.returncode == 0, output
    return output


def test_operator_and_command_killed_in_each_phase_lose_nothing(tmp_path: Path) -> None:
    with town(tmp_path) as made:
        made.goes_on()
        command = made.command("--partitions", "12")
        seen = []
        for phase in ORDER[:-1]:
            seen.append(made.reaches(phase))
            command.send_signal(signal.SIGSTOP)  # no copies while the operator is away: the phases would be over
            if phase is ReshardPhase.COPYING:
                command.kill()
                command.communicate()
            made.restart_operator()
            if phase is ReshardPhase.COPYING:
                command = made.command("--partitions", "12")
            command.send_signal(signal.SIGCONT)
        ended_well(command)
        made.reaches(ReshardPhase.DONE)
        assert {ReshardPhase.PREPARING, ReshardPhase.COPYING} <= set(seen), seen
        assert made.topic().layout.indexes == range(50, 62)
        made.goes_on()
        made.check()
        made.restart_operator()
        made.check()


def test_reshard_that_is_taken_back_leaves_everything_as_it_was(tmp_path: Path) -> None:
    with town(tmp_path) as made:
        command = made.command("--partitions", "12")
        made.reaches(ReshardPhase.FENCING)
        command.send_signal(signal.SIGSTOP)  # without it nothing is copied: that phase cannot be over before the kill
        assert made.reaches(ReshardPhase.COPYING) is ReshardPhase.COPYING
        command.kill()
        command.communicate()
        held = made.acknowledged.copy()
        ended_well(made.command("--abort"))
        reshard = made.reshard()
        assert reshard is not None
        assert reshard.phase is ReshardPhase.ABORTED
        made.goes_on()
        assert all(now > then for now, then in zip(made.acknowledged, held, strict=True))
        assert made.topic().layout.indexes == range(50)
        again = made.command("--partitions", "12")
        ended_well(again)
        assert made.topic().layout.indexes == range(62, 74), "no index is used twice"
        made.goes_on()
        made.check()
        refused = muster("reshard", "--data-dir", str(made.data), "--abort")
        assert refused.returncode == 1
        dropped = muster("reshard", "--data-dir", str(made.data), "--drop-old")
        assert dropped.stdout.startswith("62 partitions are deleted"), dropped
        made.until(lambda: made.logs() == {f"__consumer_offsets-{index}" for index in range(62, 74)}, "old logs gone")


def test_pod_that_was_away_comes_back_with_the_old_layout_and_serves_nothing_of_it(tmp_path: Path) -> None:
    with town(tmp_path) as made:
        made.goes_on()
        command = made.command("--partitions", "12")
        made.reaches(ReshardPhase.COPYING)
        away = made.pod_pid("muster-2")
        os.kill(away, signal.SIGSTOP)
        try:
            ended_well(command)
            made.goes_on()
        finally:
            os.kill(away, signal.SIGCONT)
        made.goes_on()
        made.check()
        own = made.bootstrap.split(",")[2]
        for group in range(GROUPS):
            assert made.acknowledged[group] <= made.committed(group, own) <= made.tried[group]
