"""A Kafka cluster of several brokers, each a process on loopback that can be killed and started again."""

from __future__ import annotations

import asyncio
import base64
import signal
import subprocess
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.builds import KAFKA_VERSION
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.kafka_broker import PROPERTIES, START_TIMEOUT_S, java, run_tool
from tests.support.pod import free_ports

POLL_S = 0.1


class KafkaCluster:
    """Starts on entering. `topics`: partitions by name, each with a replica on every broker. `settings`: of each
    broker, beside those that it needs.

    `ports`: of the listeners for clients. Brokers and what this class does use other listeners. `relayed`: where a
    relay for each broker listens; it connects to the same one of `behind_relays`.
    """

    def __init__(
        self,
        directory: Path,
        topics: Mapping[str, int],
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        relayed: Sequence[int] = (),
    ) -> None:
        self.directory = directory
        self.topics = topics
        self.ports = free_ports(brokers)
        self._internal, self._controllers = free_ports(brokers), free_ports(brokers)
        self._relayed = relayed
        self.behind_relays = free_ports(len(relayed)) if relayed else []
        self._settings = settings or {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap(self) -> str:
        return _addresses(self.ports)

    async def __aenter__(self) -> KafkaCluster:
        self.directory.mkdir(parents=True, exist_ok=True)
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        for number in range(len(self.ports)):
            await self._format(number, identity)
        try:
            for number in range(len(self.ports)):
                self.start(number)
            await self._until(self._has_all_brokers)
            await asyncio.to_thread(self._create_topics)
            await self.wait_in_sync()
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._end()

    def start(self, number: int, version: str = KAFKA_VERSION) -> None:
        command = java("kafka.Kafka", str(self._file(number)), version=version)
        with (self.directory / f"kafka-{number}.log").open("ab") as log:
            self._processes[number] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self, number: int, how: signal.Signals = signal.SIGKILL) -> None:
        process = self._processes.pop(number)
        process.send_signal(how)
        process.wait(timeout=60)

    def pid(self, number: int) -> int:
        return self._processes[number].pid

    async def wait_in_sync(self) -> None:
        """Waits until every partition has a leader and all its replicas in sync."""
        await self._until(self._is_in_sync)

    def admin(self) -> AdminClient:
        """The admin client, which does not use the listeners for clients."""
        return AdminClient({"bootstrap.servers": _addresses(self._internal), "log_level": 0})

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(START_TIMEOUT_S):
            while not await asyncio.to_thread(holds):
                await asyncio.sleep(POLL_S)

    def _has_all_brokers(self) -> bool:
        try:
            return len(self.admin().list_topics(timeout=5).brokers) == len(self.ports)
        except KafkaException:
            return False

    def _is_in_sync(self) -> bool:
        try:
            found = self.admin().list_topics(timeout=5).topics
        except KafkaException:
            return False
        return all(
            name in found
            and len(found[name].partitions) == count
            and all(p.leader >= 0 and len(p.isrs) == len(self.ports) for p in found[name].partitions.values())
            for name, count in self.topics.items()
        )

    def _create_topics(self) -> None:
        wanted = [NewTopic(name, count, len(self.ports)) for name, count in self.topics.items()]
        admin = self.admin()
        futures = admin.create_topics(wanted, operation_timeout=60, request_timeout=START_TIMEOUT_S)
        for future in futures.values():
            future.result()

    def _file(self, number: int) -> Path:
        return self.directory / f"kafka-{number}.properties"

    async def _format(self, number: int, identity: str) -> None:
        copies = str(min(len(self.ports), 3))
        values = PROPERTIES | {
            "node.id": str(number),
            "controller.quorum.voters": ",".join(
                f"{each}@127.0.0.1:{port}" for each, port in enumerate(self._controllers)
            ),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[number]},INTERNAL://127.0.0.1:{self._internal[number]},"
            f"CONTROLLER://127.0.0.1:{self._controllers[number]}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "log.dirs": str(self.directory / f"kafka-{number}"),
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.replication.factor": copies,
            "min.insync.replicas": str(min(len(self.ports), 2)),
            **self._relay_listener(number),
            **self._settings,
        }
        self._file(number).write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        code, output = await run_tool(
            "kafka.tools.StorageTool", "format", f"--cluster-id={identity}", "-c", str(self._file(number))
        )
        assert code == 0, output

    def _relay_listener(self, number: int) -> dict[str, str]:
        """Listeners that are told otherwise than where they are; the others are told as they are."""
        if not self._relayed:
            return {}
        plain = f"PLAINTEXT://127.0.0.1:{self.ports[number]},INTERNAL://127.0.0.1:{self._internal[number]}"
        return {
            "listeners": f"{plain},RELAYED://127.0.0.1:{self.behind_relays[number]},"
            f"CONTROLLER://127.0.0.1:{self._controllers[number]}",
            "advertised.listeners": f"{plain},RELAYED://127.0.0.1:{self._relayed[number]}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,"
            "RELAYED:PLAINTEXT",
        }

    def _end(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(timeout=60)
        self._processes.clear()


def _addresses(ports: list[int]) -> str:
    return ",".join(f"127.0.0.1:{port}" for port in ports)
