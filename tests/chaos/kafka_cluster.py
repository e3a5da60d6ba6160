"""Three nodes of a real Kafka, for the same faults under the same load: what Muster is compared with."""

from __future__ import annotations

import asyncio
import base64
import signal
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.errors import HarnessError, Skipped
from tests.chaos.observed import ObservedCluster, Place
from tests.support.kafka import KafkaClient, schema
from tests.support.kafka_broker import java, run_tool, why_no_kafka_yet
from tests.support.pod import free_ports

READY_TIMEOUT_S = 120.0
ASK_TIMEOUT_S = 1.0
OFFSETS_TOPIC = "__consumer_offsets"
REPLICAS, IN_SYNC = 3, 2

PROPERTIES = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
offsets.topic.num.partitions={partitions}
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
min.insync.replicas=2
group.initial.rebalance.delay.ms=0
log.index.size.max.bytes=1048576
"""


@dataclass
class _Node:
    name: str
    port: int
    controller: int
    process: subprocess.Popen[bytes] | None = None


class KafkaCluster(ObservedCluster):
    """Combined brokers and controllers with Kafka's own defaults but for the replication of the offsets topic."""

    def __init__(self, root: Path, *, partitions: int) -> None:
        super().__init__([f"kafka-{number}" for number in range(REPLICAS)], partitions, REPLICAS)
        ports = free_ports(2 * REPLICAS)
        self._root = root
        self._nodes = [
            _Node(name, port, controller)
            for name, port, controller in zip(self.names, ports[:REPLICAS], ports[REPLICAS:], strict=True)
        ]

    def __enter__(self) -> KafkaCluster:
        reason = why_no_kafka_yet()
        if reason:
            raise Skipped(reason)
        try:
            self._format()
            for node in self._nodes:
                self.start(node.name)
            self.wait(self._create_topics, "topics can be created", READY_TIMEOUT_S)
            self.wait_settled()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self._nodes:
            if node.process is not None:
                node.process.kill()
                node.process.wait()

    def _format(self) -> None:
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        voters = ",".join(f"{number}@127.0.0.1:{node.controller}" for number, node in enumerate(self._nodes))
        for number, node in enumerate(self._nodes):
            file = self._properties(node)
            text = PROPERTIES.format(
                node=number,
                voters=voters,
                port=node.port,
                controller=node.controller,
                data=self._root / node.name,
                partitions=self.partitions,
            )
            file.write_text(text, encoding="utf-8")
            code, output = asyncio.run(run_tool("kafka.tools.StorageTool", "format", "-t", identity, "-c", str(file)))
            if code != 0:
                raise HarnessError(f"Kafka's StorageTool: {output}")

    def start(self, name: str) -> None:
        """Start a node that does not run."""
        node = self._node(name)
        with (self._root / f"{name}.log").open("ab") as log:
            command = java("kafka.Kafka", str(self._properties(node)))
            node.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def end(self, name: str, number: signal.Signals) -> None:
        """A signal to a node; returns when its process is gone."""
        process = self._node(name).process
        assert process is not None
        process.send_signal(number)
        process.wait(READY_TIMEOUT_S)

    def places(self) -> list[Place]:
        return [Place(node.name, "", f"127.0.0.1:{node.port}") for node in self._nodes]

    def last_words(self) -> str:
        return f"logs: {self._root}"

    def leaders(self) -> dict[str, int]:
        led = [partition.leader_id for partition in self._offsets_topic()]
        return {name: led.count(number) for number, name in enumerate(self.names)}

    def wait_led(self, without: Sequence[str] = (), timeout_s: float = READY_TIMEOUT_S) -> None:
        lost = {-1, *(self.names.index(name) for name in without)}

        def led() -> bool:
            partitions = self._offsets_topic(without)
            return len(partitions) == self.partitions and all(each.leader_id not in lost for each in partitions)

        self.wait(led, "every partition of the offsets topic is led", timeout_s)

    def wait_settled(self) -> None:
        def settled() -> bool:
            partitions = self._offsets_topic()
            return len(partitions) == self.partitions and all(len(each.isr_nodes) == REPLICAS for each in partitions)

        self.wait(settled, "every replica is in sync", READY_TIMEOUT_S)

    def _offsets_topic(self, without: Sequence[str] = ()) -> Sequence[Any]:
        """What the first node that answers says of the offsets topic's partitions."""
        m = schema("metadata", 12)
        request = m.MetadataRequest(
            topics=(m.MetadataRequestTopic(topic_id=None, name=OFFSETS_TOPIC),),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        for node in self._nodes:
            if node.name not in without:
                try:
                    answer = asyncio.run(_call(node.port, request))
                except (OSError, asyncio.IncompleteReadError, TimeoutError):
                    continue
                partitions: Sequence[Any] = answer.topics[0].partitions
                return partitions
        return ()

    def _create_topics(self) -> bool:
        """The load's topic, and, by asking for a coordinator, the offsets topic."""
        m = schema("create_topics", 5)
        topic = m.CreatableTopic(name="chaos", num_partitions=1, replication_factor=3, assignments=(), configs=())
        coordinator = schema("find_coordinator", 4).FindCoordinatorRequest(key_type=0, coordinator_keys=("chaos-0",))
        try:
            asyncio.run(_call(self._nodes[0].port, m.CreateTopicsRequest(topics=(topic,))))
            answer = asyncio.run(_call(self._nodes[0].port, coordinator))
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            return False
        return not answer.coordinators[0].error_code

    def _node(self, name: str) -> _Node:
        return self._nodes[self.names.index(name)]

    def _properties(self, node: _Node) -> Path:
        return self._root / f"{node.name}.properties"


async def _call(port: int, request: Any) -> Any:
    async with asyncio.timeout(ASK_TIMEOUT_S):
        client = await KafkaClient.connect(port)
        try:
            return await client.call(request)
        finally:
            client.writer.close()
