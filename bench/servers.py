"""The servers that are measured: one Muster pod in embedded mode, or one Kafka broker. Each is a context manager."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from builds import KAFKA_VERSION, BenchError, kafka_jars
from secured import Secured

from muster_cli.local.ports import free_ports

START_DEADLINE_S = 120.0
PARTITIONS_AT_ONCE = 5_000
"""A controller takes 10,000 records in one operation: a topic of as many partitions is made in two."""
STOP_DEADLINE_S = 30.0
TOPIC = "bench"


@dataclass(frozen=True)
class Server:
    """A running server: how to reach it, and the processes whose CPU time counts."""

    name: str
    bootstrap: str
    pids: tuple[int, ...]
    durability: str
    login: str = ""
    """USER:PASSWORD of clients, who speak TLS then; "": they are plain."""


@contextmanager
def muster(
    directory: Path,
    *,
    partitions: int,
    topic_partitions: int,
    config: list[str],
    replication_factor: int = 1,
    pods: int = 0,
    secured: Secured | None = None,
) -> Iterator[Server]:
    """Pods (0: as many as replicas) with their operator over the embedded store; data under `directory`. Raises
    BenchError."""
    data = directory / ("muster" if secured is None else "muster-secured")
    config = [*config, *(secured.of_muster() if secured is not None else ())]
    login, how = (secured.login, ", TLS and PLAIN") if secured is not None else ("", "")
    command = [
        *(sys.executable, "-m", "muster_cli", "local", "up", "--data-dir", str(data), "--base-port", "0"),
        *("--pods", str(pods or replication_factor), "--replication-factor", str(replication_factor)),
        *("--partitions", str(partitions), "--topic", f"{TOPIC}:{topic_partitions}"),
        *(argument for setting in config for argument in ("--config", setting)),
    ]
    with process(command, directory / "muster.out") as started:
        line = wait_for_line(started, directory / "muster.out", "ready bootstrap=")
        status = subprocess.run(
            [sys.executable, "-m", "muster_cli", "local", "status", "--data-dir", str(data), "--json"],
            stdout=subprocess.PIPE,
            check=True,
        )
        pids = tuple(pod["pid"] for pod in json.loads(status.stdout)["pods"])
        bootstrap = line.split("bootstrap=")[1].split()[0].split(",")[0]
        if replication_factor == 1:
            yield Server(f"muster{how}", bootstrap, pids, "fsync before the answer", login)
        else:
            durability = "fsync on a majority before the answer"
            yield Server(f"muster x{replication_factor}{how}", bootstrap, pids, durability, login)


KAFKA_PROPERTIES = """\
process.roles=broker,controller
node.id={node_id}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
offsets.topic.num.partitions={partitions}
offsets.topic.replication.factor={replicas}
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr=1
min.insync.replicas={min_insync}
group.initial.rebalance.delay.ms=0
group.consumer.assignment.interval.ms=0
socket.listen.backlog.size=4096
"""


class Listener(Protocol):
    """One more of a broker."""

    def of_kafka(self, listeners: str, port: int) -> str:
        """Properties that come after those of a plain broker, whose `listeners` stay."""


class KafkaCluster:
    """Combined brokers and controllers with 1 GB of heap each, as many as replicas, formatted; data under `directory`.
    With three, two have to be in sync, as in Muster. `further`: one more listener, at `further_bootstrap`. `synced`:
    each batch is on disk before it is answered, as Muster has it. Raises BenchError.
    """

    def __init__(
        self,
        directory: Path,
        *,
        partitions: int,
        replicas: int = 1,
        further: Listener | None = None,
        synced: bool = False,
    ) -> None:
        self._java = ["java", "-Xmx1g", "-XX:+UseG1GC", "-cp", f"{kafka_jars()}/*"]
        ports = free_ports(3 * replicas)
        self.ports, controllers, second = ports[:replicas], ports[replicas : 2 * replicas], ports[2 * replicas :]
        self.bootstrap = f"127.0.0.1:{self.ports[0]}"
        self.further_bootstrap = f"127.0.0.1:{second[0]}"
        kind = "kafka" if further is None else "kafka-secured"
        self.data = [directory / f"{kind}-{node_id}" for node_id in range(1, replicas + 1)]
        self.output = directory / "kafka-1.out"
        voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in enumerate(controllers, 1))
        identity = storage_tool(self._java, "random-uuid").split()[-1]
        self._nodes: list[tuple[Path, Path]] = []  # properties and output of each
        for node_id, (port, controller, data) in enumerate(zip(self.ports, controllers, self.data, strict=True), 1):
            properties = directory / f"kafka-{node_id}.properties"
            text = KAFKA_PROPERTIES.format(
                node_id=node_id,
                voters=voters,
                port=port,
                controller=controller,
                data=data,
                partitions=partitions,
                replicas=replicas,
                min_insync=replicas // 2 + 1,
            )
            if synced:
                text += "log.flush.interval.messages=1\n"
            if further is not None:
                listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"
                text += further.of_kafka(listeners, second[node_id - 1])
            properties.write_text(text, encoding="utf-8")
            storage_tool(self._java, "format", "-t", identity, "-c", str(properties))
            self._nodes.append((properties, directory / f"kafka-{node_id}.out"))

    @contextmanager
    def running(self) -> Iterator[list[subprocess.Popen[bytes]]]:
        """Its processes, from their start on; ended in order."""
        with ExitStack() as stack:
            yield [
                stack.enter_context(process([*self._java, "kafka.Kafka", str(properties)], output))
                for properties, output in self._nodes
            ]


@contextmanager
def kafka(
    directory: Path,
    *,
    partitions: int,
    topic_partitions: int,
    replication_factor: int = 1,
    secured: Secured | None = None,
    synced: bool = False,
) -> Iterator[Server]:
    """Kafka nodes, ready, as many as replicas. Raises BenchError."""
    cluster = KafkaCluster(
        directory, partitions=partitions, replicas=replication_factor, further=secured, synced=synced
    )
    durability = "fsync of each batch" if synced else "page cache, no fsync"
    with cluster.running() as started:
        wait_for_kafka(started[0], cluster.bootstrap, topic_partitions, cluster.output)
        name = f"kafka {KAFKA_VERSION}" + (f" x{replication_factor}" if replication_factor > 1 else "")
        pids = tuple(node.pid for node in started)
        if secured is None:
            yield Server(name, cluster.bootstrap, pids, durability)
        else:
            how = f"{name}, TLS and PLAIN"
            yield Server(how, cluster.further_bootstrap, pids, durability, secured.login)


def storage_tool(java: list[str], *arguments: str) -> str:
    """Output of Kafka's tool for its data directory. Raises BenchError with what it said."""
    done = subprocess.run(
        [*java, "kafka.tools.StorageTool", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BenchError(f"Kafka's StorageTool {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout


def wait_for_kafka(started: subprocess.Popen[bytes], bootstrap: str, topic_partitions: int, output: Path) -> None:
    """Wait until the topic of the committed offsets could be created."""
    from confluent_kafka import admin as admin_api

    admin = admin_api.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topic = admin_api.NewTopic(TOPIC, min(topic_partitions, PARTITIONS_AT_ONCE), 1)  # type: ignore[attr-defined]  # public, re-exported without __all__
    deadline = time.monotonic() + START_DEADLINE_S
    while True:
        error = ended_or_late(started, deadline, output)
        if error:
            raise BenchError(error)
        try:
            admin.create_topics([topic], operation_timeout=5)[TOPIC].result(timeout=5)
            break
        except Exception as refused:
            if "TOPIC_ALREADY_EXISTS" in str(refused):
                break
            time.sleep(0.2)
    if topic_partitions > PARTITIONS_AT_ONCE:
        whole = admin_api.NewPartitions(TOPIC, topic_partitions)  # type: ignore[attr-defined]  # as above
        try:
            admin.create_partitions([whole], operation_timeout=START_DEADLINE_S)[TOPIC].result(START_DEADLINE_S)
        except Exception as refused:
            raise BenchError(f"Kafka did not give {TOPIC} {topic_partitions:,} partitions: {refused}") from refused


@contextmanager
def process(command: list[str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A child in a session of its own, output in a file; asked to stop at the end, and killed when it does not."""
    with output.open("wb") as file:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def wait_for_line(started: subprocess.Popen[bytes], output: Path, start: str) -> str:
    """The first line of the output that begins so. Raises BenchError when the process ends or takes too long."""
    deadline = time.monotonic() + START_DEADLINE_S
    while True:
        for line in output.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(start):
                return line
        error = ended_or_late(started, deadline, output)
        if error:
            raise BenchError(error)
        time.sleep(0.05)


def ended_or_late(started: subprocess.Popen[bytes], deadline: float, output: Path) -> str:
    """The reason why there is no point in waiting any longer, with the last lines of output; empty when there is."""
    if started.poll() is not None:
        why = f"{started.args!r} ended with exit code {started.returncode}"
    elif time.monotonic() > deadline:
        why = f"{started.args!r} was not ready after {START_DEADLINE_S:.0f} s"
    else:
        return ""
    last = output.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
    return "\n".join([why, *last])


@contextmanager
def data_directory(repository: Path) -> Iterator[Path]:
    """A directory on the repository's own disk: /tmp is in memory on many machines, where an fsync costs nothing."""
    directory = repository / ".cache" / "bench" / str(os.getpid())
    directory.mkdir(parents=True)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
