"""A cluster of `muster local up` as a fault sees it: processes, their directories and their networks."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.errors import HarnessError
from tests.chaos.kill_points import Point
from tests.chaos.network import Namespace
from tests.chaos.observed import NetworkedCluster, OperatorRules, Place
from tests.support.local_cluster import LocalCluster
from tests.support.pod import free_ports

from muster_cli.local.data_dir import DataDir, RunningPod
from muster_cli.local.ports import is_free

DIES_IN_S = 30.0


class Cluster(NetworkedCluster):
    """Pods, and the operator in the process that started them."""

    def __init__(
        self,
        root: Path,
        *,
        pods: int,
        partitions: int,
        factor: int,
        namespaces: Sequence[Namespace] = (),
        config: Sequence[str] = (),
        dying: bool = False,
    ) -> None:
        """`dying`: the operator can be made to die at a point."""
        super().__init__([f"muster-{ordinal}" for ordinal in range(pods)], partitions, factor)
        self.data = DataDir(root / "data")
        self._arguments = [
            *("--pods", str(pods), "--partitions", str(partitions), "--replication-factor", str(factor)),
            *("--base-port", str(_free_range(pods)), "--topic", "chaos:1"),
            *(argument for setting in config for argument in ("--config", setting)),
        ]
        self._namespaces = dict(zip(self.names, namespaces, strict=False))
        self._process: LocalCluster | None = None
        self._point = root / "point" if dying else None

    def __enter__(self) -> Cluster:
        try:
            self.start()
        except BaseException:  # interrupted, too: nobody else ends what has started by then
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for pid in (self.operator_pid, *(pod.process.pid for pod in self.pods() if pod.process)):
            _signal(pid, signal.SIGCONT)
        if self._process is not None:
            self._process.__exit__()

    def start(self) -> None:
        """Start operator and pods, and wait until every partition has a leader."""
        self.begin()
        assert self._process is not None
        try:
            self._process.wait_ready()
        except AssertionError as error:
            raise HarnessError(f"`muster local up`: {error}") from None

    def begin(self) -> None:
        """Start operator and pods."""
        self._process = self._launch()

    def _launch(self) -> LocalCluster:
        if self._point is not None:
            return LocalCluster(self.data.root, *self._arguments, command=("tests.chaos.dying", str(self._point)))
        if not self._namespaces:
            return LocalCluster(self.data.root, *self._arguments)
        places = ",".join(f"{each.prefix[-1]}={each.host}" for each in self._namespaces.values())
        return LocalCluster(self.data.root, *self._arguments, command=("tests.chaos.namespaced", places))

    def namespace(self, pod: str) -> Namespace:
        return self._namespaces[pod]

    def operator_rules(self, pod: str) -> OperatorRules:
        """Operator and clients have one address: it is known by the port that it calls."""
        port = self.pod(pod).api_address.rpartition(":")[2]
        return OperatorRules(f"input tcp dport {port}", f"output tcp sport {port}")

    def last_words(self) -> str:
        return f"last output: {self._process.lines[-3:] if self._process is not None else []}"

    @property
    def operator_pid(self) -> int:
        return self._process.child.pid if self._process is not None else 0

    def pods(self) -> tuple[RunningPod, ...]:
        record = self.data.read_run()
        return record.pods if record is not None else ()

    def pod(self, name: str) -> RunningPod:
        return next(pod for pod in self.pods() if pod.name == name)

    def places(self) -> list[Place]:
        return [Place(pod.name, pod.api_address, pod.kafka_address) for pod in self.pods()]

    def signal_process(self, pod: str, number: signal.Signals) -> None:
        process = self.pod(pod).process
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
        self.signal_process(name, signal.SIGKILL)
        shutil.rmtree(lost)

    def kill_operator(self) -> None:
        """SIGKILL of the operator with its supervisor: the pods go on, and nobody restarts them."""
        assert self._process is not None
        self._process.child.kill()
        self._process.child.wait()

    def arm(self, point: Point) -> None:
        """The operator dies there, or the next one if none runs."""
        assert self._point is not None
        self._point.parent.mkdir(exist_ok=True)
        self._point.write_text(str(point))
        self.signal_operator(signal.SIGUSR1)

    def wait_operator_died(self) -> None:
        """At the point where it was to die; the next one has none. Raises HarnessError when it does not come there."""
        assert self._process is not None
        assert self._point is not None
        try:
            self._process.child.wait(DIES_IN_S)
        except subprocess.TimeoutExpired:
            raise HarnessError(f"the operator did not come to its point {self._point.read_text()}") from None
        self._point.unlink()


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
        first = 10_000 + first % 20_000  # below the ephemeral range, see muster_cli.local.ports
        if all(is_free(port) for port in range(first, first + count)):
            return first
