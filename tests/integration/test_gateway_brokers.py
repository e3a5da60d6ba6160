"""Leaders of data partitions move, and brokers are killed and started again, under clients that take leader hints
(librdkafka: Fetch 16, Produce 10): no client ever connects to a broker, and no record is lost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ElectionType, Message, Producer
from tests.support.gateway import GatewayProcess
from tests.support.kafka_broker import why_no_kafka_yet
from tests.support.kafka_cluster import KafkaCluster
from tests.support.local_cluster import LocalCluster, wait_until
from tests.support.sockets import ports_connected_to

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet() or "there is Kafka"),
    pytest.mark.timeout(900),
]

TOPIC, PARTITIONS = "orders", 6
ROUNDS = int(os.environ.get("ROUNDS", "2"))
RESTARTED_S = 1.0  # of load between two events
SAMPLE_S = 0.02


class Worker:
    """A thread that repeats `step` until it is stopped. An exception of its fails the test at the end."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._error: BaseException | None = None

    def step(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.step()
        except BaseException as error:
            self._error = error


class Watcher(Worker):
    """Notes to which ports of brokers this process, where all clients run, and the gateway connect."""

    def __init__(self, gateway: GatewayProcess, ports: list[int]) -> None:
        super().__init__()
        self.clients: set[int] = set()
        self.gateway: set[int] = set()
        self._pid = gateway.pid
        self._ports = ports

    def step(self) -> None:
        self.clients |= ports_connected_to(os.getpid(), self._ports)
        self.gateway |= ports_connected_to(self._pid, self._ports)
        time.sleep(SAMPLE_S)


class Producing(Worker):
    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.acknowledged: list[str] = []
        self.errors: list[str] = []
        self._number = 0
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 2, "log_level": 0}
        )

    def step(self) -> None:
        for _ in range(10):
            self._producer.produce(TOPIC, str(self._number), on_delivery=self._delivered)
            self._number += 1
        self._producer.poll(0.005)

    def flush(self) -> None:
        assert self._producer.flush(60) == 0

    def _delivered(self, error: Any, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acknowledged.append((message.value() or b"").decode())


class Consuming(Worker):
    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self.assignments = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 100,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([TOPIC], on_assign=self._assigned)

    def step(self) -> None:
        for message in self._consumer.consume(500, 0.05):
            if message.error() is None:
                self.found[(message.value() or b"").decode()] += 1

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self._consumer.close()

    def _assigned(self, *_: object) -> None:
        self.assignments += 1


async def move_leaders(kafka: KafkaCluster) -> None:
    """Back to the preferred ones, from where a broker's end has moved them."""
    admin = kafka.admin()
    await asyncio.to_thread(lambda: admin.elect_leaders(ElectionType.PREFERRED).result())


async def test_clients_never_meet_a_broker_and_lose_nothing(tmp_path: Path) -> None:
    chance = random.Random(7)
    options = ["--config", "group.initial.rebalance.delay.ms=100", "--partitions", "5", "--any-topic", "--pods", "1"]
    async with KafkaCluster(tmp_path / "kafka", {TOPIC: PARTITIONS}) as kafka:
        with LocalCluster(tmp_path / "muster", *options) as muster:
            pods = await asyncio.to_thread(muster.wait_ready)
            async with GatewayProcess(tmp_path, kafka.bootstrap, pods, {"muster.groups": "*"}) as gateway:
                with ExitStack() as stack:
                    watcher = stack.enter_context(Watcher(gateway, kafka.ports))
                    consuming = stack.enter_context(Consuming(gateway.bootstrap))
                    producing = Producing(gateway.bootstrap)
                    with producing:
                        for number in range(ROUNDS):
                            await asyncio.sleep(RESTARTED_S)
                            broker = chance.randrange(3)
                            kafka.kill(broker, signal.SIGTERM if number % 2 else signal.SIGKILL)
                            await asyncio.sleep(RESTARTED_S)
                            kafka.start(broker)
                            await kafka.wait_in_sync()
                            await move_leaders(kafka)
                            await asyncio.sleep(RESTARTED_S)
                    producing.flush()
                    acknowledged = set(producing.acknowledged)
                    await asyncio.to_thread(wait_until, lambda: acknowledged <= set(consuming.found), "every record")
                print(f"{len(acknowledged)} records acknowledged, {consuming.assignments} assignments")
                assert producing.errors == []
                assert watcher.clients == set()
                assert watcher.gateway == set(kafka.ports)
                assert consuming.assignments == 1
                assert {value: count for value, count in consuming.found.items() if count > 1} == {}
