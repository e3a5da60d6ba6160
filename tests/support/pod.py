"""A real `muster-coordinator` process, and a stand-in operator that elects it over the real pod API."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.support.kafka import KafkaClient

from muster_cli.local.ports import free_ports as ports_on_loopback
from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.partition_numbers import TRANSACTIONS
from muster_coordinator.podapi.client import PodApiError, PodClient, new_session
from muster_coordinator.podapi.image import Broker, DeclaredTopic, MetadataImage, PartitionLeader
from muster_coordinator.podapi.models import (
    Election,
    ElectionsRequest,
    ReplicaRequest,
    ReplicasRequest,
)
from muster_coordinator.security.tls import Tls

_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_given = {port for port in range(1 << 16) if port % _WORKERS != _WORKER}
"""Ports that `free_ports` gives no more. Each process of tests that run side by side has its own: a port that one of
them gave to a pod that does not listen yet looks free to the others.
"""

START_TIMEOUT_S = 30.0
ELECTION_TIMEOUT_S = 60.0
POLL_S = 0.01


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on, below those that the kernel gives to outgoing connections. None is given twice: a
    pod that is not started yet has its own already, and one that was killed wants it back."""
    ports = ports_on_loopback(count, frozenset(_given))
    _given.update(ports)
    return ports


class PodProcess:
    """One pod's process over a data directory. `name` ends in its node id."""

    program: Sequence[str] = (sys.executable, "-m", "muster_coordinator.process.main")

    def __init__(
        self,
        name: str,
        data_dir: Path,
        config: Sequence[str] = (),
        *,
        options: Sequence[str] = (),
        tls: Tls | None = None,
    ) -> None:
        """`options`: more of the command line. `tls`: for calls of its API, where the options say that it has TLS."""
        self.name = name
        self._options = options
        self._tls = tls
        self.node_id = int(name.rpartition("-")[2])
        self.data_dir = data_dir
        self.config = config
        self.kafka_port, self.api_port, self.peer_port = free_ports(3)
        self.process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> Self:
        self._session = new_session()
        self.api = PodClient(self._session, self.name, f"127.0.0.1:{self.api_port}", self._tls)
        try:
            await self.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.kill()
        await self._session.close()

    async def start(self) -> None:
        """Start the process and wait until it is ready for calls."""
        command = [*self.program, "--pod", self.name, "--data-dir", str(self.data_dir)]
        command += ["--kafka-listen", f"127.0.0.1:{self.kafka_port}", "--api-listen", f"127.0.0.1:{self.api_port}"]
        command += ["--peer-listen", f"127.0.0.1:{self.peer_port}"]
        command += [*(f"--config={setting}" for setting in self.config), *self._options]
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)  # its own it makes itself
        with self._log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        async with asyncio.timeout(START_TIMEOUT_S):
            while not await self._started():
                assert self.process.poll() is None, f"the pod ended: {self.log()[-2000:]}"
                await asyncio.sleep(POLL_S)

    async def _started(self) -> bool:
        try:
            return (await self.api.status()).started
        except PodApiError:
            return False

    async def client(self) -> KafkaClient:
        return await KafkaClient.connect(self.kafka_port)

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        """SIGTERM, as Kubernetes does; returns the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        if process.poll() is None:
            os.kill(process.pid, number)
        return process.wait(timeout=30)

    @property
    def _log_path(self) -> Path:
        return self.data_dir.parent / f"{self.name}.log"

    def log(self) -> str:
        return self._log_path.read_text(errors="replace")

    def segment(self, partition: int = 0) -> Path:
        """The active segment of a partition."""
        return sorted((self.data_dir / f"__consumer_offsets-{partition}").glob("*.log"))[-1]

    async def metric(self, name: str, **labels: str) -> float:
        """A sample of GET /metrics; 0 when it is not there."""
        text = (await self.api.read("/metrics", {})).decode()
        wanted = name + ("{" + ",".join(f'{k}="{v}"' for k, v in labels.items()) + "}" if labels else "")
        values = [line.rsplit(" ", 1)[1] for line in text.splitlines() if line.rsplit(" ", 1)[0] == wanted]
        return float(values[0]) if values else 0.0


class SoloPod(PodProcess):
    """One pod that leads every partition. The test plays the operator: `elect_all` with ever higher epochs."""

    def __init__(
        self,
        data_dir: Path,
        partitions: int = 1,
        topics: dict[str, int] | None = None,
        config: Sequence[str] = (),
        *,
        any_topic: bool = False,
        transaction_partitions: int = 0,
        epoch: int = 0,
        options: Sequence[str] = (),
        tls: Tls | None = None,
    ) -> None:
        """`epoch`: the highest one in which the partitions were led before. `options`, `tls`: as of PodProcess."""
        super().__init__("pod-0", data_dir, config, options=options, tls=tls)
        self.any_topic = any_topic
        self.partitions = partitions
        self.transaction_partitions = transaction_partitions
        self.topics = topics if topics is not None else {"t": 10}
        self.epoch = epoch
        self._image_version = epoch

    async def start(self, *, elect: bool = True) -> None:
        """`elect`: then make it lead everything."""
        await super().start()
        if elect:
            results = await self.elect_all()
            assert all(r.status is CallStatus.ACCEPTED for r in results), results

    async def elect_all(self, epoch: int | None = None) -> tuple[CallResult, ...]:
        """Create the replicas, elect the pod for each partition in one new epoch, and push the metadata image."""
        created = await self.api.create_replicas(
            ReplicasRequest(1, tuple(ReplicaRequest(number) for number in self._numbers)), timeout_s=60
        )
        self.epoch = epoch if epoch is not None else self.epoch + 1
        elections = tuple(
            Election(r.partition, self.epoch, (r.log_id,), bootstrap=not r.used) for r in created.results if r.log_id
        )
        call = ElectionsRequest(elections)
        async with asyncio.timeout(ELECTION_TIMEOUT_S):
            response = await self.api.elect(call, timeout_s=ELECTION_TIMEOUT_S)
            # The pod waits about a second for the end of an election; the same call again joins the one under way.
            while any(result.status is CallStatus.LOADING for result in response.results):
                response = await self.api.elect(call, timeout_s=ELECTION_TIMEOUT_S)
        await self.push_metadata()
        return response.results

    @property
    def _numbers(self) -> list[int]:
        """The numbers of all partitions, as the pod API has them."""
        return [*range(self.partitions), *TRANSACTIONS.numbers[: self.transaction_partitions]]

    async def push_metadata(self) -> None:
        self._image_version += 1
        await self.api.update_metadata(
            MetadataImage(
                token=1,
                version=self._image_version,
                cluster_id="test",
                brokers=(Broker(0, "127.0.0.1", self.kafka_port, "pod-0"),),
                offsets_partitions=self.partitions,
                leaders=tuple(PartitionLeader(number, 0, self.epoch) for number in self._numbers),
                topics=tuple(DeclaredTopic(name, count) for name, count in self.topics.items()),
                any_topic=self.any_topic,
                transaction_partitions=self.transaction_partitions,
            )
        )
