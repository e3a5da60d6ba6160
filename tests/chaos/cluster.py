"""A cluster of `muster local up` as a fault sees it: processes, their addresses, and what pods say of themselves."""

from __future__ import annotations

import os
import shutil
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from tests.chaos.errors import HarnessError
from tests.support.local_cluster import LocalCluster
from tests.support.pod import free_ports

from muster_cli.datadir import DataDir, RunningPod
from muster_cli.ports import is_free
from muster_coordinator.podapi.models import ADDRESSEE_HEADER, PartitionStatus, PodStatus

ASK_TIMEOUT_S = 0.5
POLL_S = 0.2
SETTLE_TIMEOUT_S = 60.0
CAUGHT_UP = 1000
"""A follower that lacks at most so many records of a log under load counts as caught up."""


class Cluster:
    """Pods, and the operator in the process that started them. Raises HarnessError where a wait is in vain."""

    def __init__(self, root: Path, *, pods: int, partitions: int, factor: int, config: Sequence[str] = ()) -> None:
        self.data = DataDir(root / "data")
        self.factor = factor
        self.partitions = partitions
        self.names = [f"muster-{ordinal}" for ordinal in range(pods)]
        self._arguments = [
            *("--pods", str(pods), "--partitions", str(partitions), "--replication-factor", str(factor)),
            *("--base-port", str(_free_range(pods)), "--topic", "chaos:1"),
            *(argument for setting in config for argument in ("--config", setting)),
        ]
        self._process: LocalCluster | None = None

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for pid in (self.operator_pid, *(pod.process.pid for pod in self.pods() if pod.process)):
            _signal(pid, signal.SIGCONT)
        if self._process is not None:
            self._process.__exit__()

    def start(self) -> None:
        """Start operator and pods, and wait until every partition has a leader."""
        self._process = self._launch()
        try:
            self._process.wait_ready()
        except AssertionError as error:
            raise HarnessError(f"`muster local up`: {error}") from None

    def _launch(self) -> LocalCluster:
        return LocalCluster(self.data.root, *self._arguments)

    @property
    def output(self) -> list[str]:
        """What `muster local up` said."""
        return self._process.lines if self._process is not None else []

    @property
    def operator_pid(self) -> int:
        return self._process.child.pid if self._process is not None else 0

    def pods(self) -> tuple[RunningPod, ...]:
        record = self.data.read_run()
        return record.pods if record is not None else ()

    def pod(self, name: str) -> RunningPod:
        return next(pod for pod in self.pods() if pod.name == name)

    def kafka_address(self, pod: str) -> str:
        return self.pod(pod).kafka_address

    def bootstrap(self) -> str:
        return ",".join(pod.kafka_address for pod in self.pods())

    def kill(self, name: str, number: signal.Signals) -> None:
        """A signal to the pod's process, if there is one now."""
        process = self.pod(name).process
        if process is not None:
            _signal(process.pid, number)

    def signal_operator(self, number: signal.Signals) -> None:
        _signal(self.operator_pid, number)

    def lose_volume(self, name: str) -> None:
        """SIGKILL of a pod, whose data directory is empty when it starts again."""
        directory = self.data.pod(name)
        lost = directory.with_name(f"{name}.lost")
        directory.rename(lost)  # before the kill: the next process must not find it
        directory.mkdir()
        self.kill(name, signal.SIGKILL)
        shutil.rmtree(lost)

    def kill_operator(self) -> None:
        """SIGKILL of the operator with its supervisor: the pods go on, and nobody restarts them."""
        assert self._process is not None
        self._process.child.kill()
        self._process.child.wait()

    def drain(self, name: str) -> None:
        """Tell a pod that it will end soon: its leaders are moved away."""
        request = urllib.request.Request(f"http://{self.pod(name).api_address}/v1/drain", method="POST")
        request.add_header(ADDRESSEE_HEADER, name)
        with urllib.request.urlopen(request, timeout=5):
            pass

    def statuses(self) -> dict[str, PodStatus]:
        """What each pod says; one that does not answer in time is left out."""
        return {pod.name: status for pod in self.pods() if pod.alive and (status := _ask(pod)) is not None}

    def leaders(self) -> dict[str, int]:
        """How many partitions each pod leads, as it says itself."""
        return {name: len(_led(status)) for name, status in self.statuses().items()}

    def wait(self, holds: Callable[[], bool], what: str, timeout_s: float = SETTLE_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > deadline:
                raise HarnessError(f"not within {timeout_s:g} s: {what}; {self.describe()}")
            time.sleep(POLL_S)

    def wait_led(self, without: Sequence[str] = (), timeout_s: float = SETTLE_TIMEOUT_S) -> None:
        """Until every partition has an ACTIVE leader, none of them among those pods."""

        def led() -> bool:
            seen = {index for name, status in self.statuses().items() if name not in without for index in _led(status)}
            return len(seen) == self.partitions

        self.wait(led, "every partition is led" + (f" without {', '.join(without)}" if without else ""), timeout_s)

    def wait_settled(self) -> None:
        """Until every pod runs, every partition is led, and every replica of it has caught up."""
        self.wait(lambda: self._unsettled() == "", "all replicas have caught up")

    def _unsettled(self) -> str:
        statuses = self.statuses()
        missing = [name for name in self.names if name not in statuses]
        if missing:
            return f"{', '.join(missing)} does not answer"
        led = {index: status for pod in statuses.values() for index, status in _led(pod).items()}
        if len(led) < self.partitions:
            return f"{len(led)} of {self.partitions} partitions are led"
        behind = [str(index) for index, status in led.items() if not _caught_up(status, self.factor)]
        return f"partitions with replicas that have not caught up: {', '.join(behind)}" if behind else ""

    def describe(self) -> str:
        """Where things stand, for a failure."""
        said = f"{self._unsettled() or 'settled'}; leaders: {self.leaders()}"
        return f"{said}; last output: {self.output[-3:]}"


def _led(status: PodStatus) -> dict[int, PartitionStatus]:
    return {each.partition: each for each in status.partitions if each.state == "ACTIVE" and each.role == "leader"}


def _caught_up(leader: PartitionStatus, factor: int) -> bool:
    if leader.previous_replicas or (factor > 1 and len(leader.replicas) != factor):
        return False
    good = sum(
        not each.rebuilding and each.end_offset >= leader.log_end_offset - CAUGHT_UP
        for each in leader.followers
        if each.log_id in leader.replicas
    )
    return good >= factor - 1


def _ask(pod: RunningPod) -> PodStatus | None:
    request = urllib.request.Request(f"http://{pod.api_address}/v1/status", headers={ADDRESSEE_HEADER: pod.name})
    try:
        with urllib.request.urlopen(request, timeout=ASK_TIMEOUT_S) as answer:
            return msgspec.json.decode(answer.read(), type=PodStatus)
    except (OSError, msgspec.DecodeError):  # URLError is an OSError
        return None


def _signal(pid: int, number: signal.Signals) -> None:
    if pid:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def _free_range(count: int) -> int:
    """The first of so many free ports in a row: they stay the same when the cluster is started again."""
    while True:
        [first] = free_ports(1)
        first = 10_000 + first % 20_000  # below the ephemeral range, see muster_cli.ports
        if all(is_free(port) for port in range(first, first + count)):
            return first
