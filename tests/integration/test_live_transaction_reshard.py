"""The topics of a running cluster are re-sharded under transactions of real clients: that of the transactions
5 -> 3 -> 5, that of the groups between transactions."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tests.integration.test_live_reshard import ended_well, free_base
from tests.support.java_producers import JavaProducers
from tests.support.kafka import KafkaClient, entity
from tests.support.kafka_broker import why_no_kafka_yet
from tests.support.local_cluster import LocalCluster, muster

from muster_cli.local.declare import CLUSTER
from muster_coordinator.partition_numbers import OFFSETS, TRANSACTIONS
from muster_operator.api.models import OffsetsTopic
from muster_operator.store.sqlite import SqliteStore

# Some of the waits inside may take two minutes each on a slow machine.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

LIMIT_S = 120.0
APPLICATIONS = 3
NO_OFFSET = -1001
"""librdkafka's name for it."""

_T = TypeVar("_T")


class Application:
    """A transactional producer that never begins anew, and the model of its group's offset."""

    def __init__(self, bootstrap: str, name: str) -> None:
        common = {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "socket.timeout.ms": 3000,
            "log_level": 0,
        }
        self.name = name
        self.producer = Producer(common | {"transactional.id": name, "transaction.timeout.ms": 600_000})
        self.consumer = Consumer(common | {"group.id": f"g-{name}", "enable.auto.commit": False})
        self.expected = NO_OFFSET
        self.ended = 0
        self._retried(lambda: self.producer.init_transactions(LIMIT_S))

    def begin(self, offset: int) -> None:
        self.producer.begin_transaction()
        offsets = [TopicPartition("t", 0, offset)]
        metadata = self.consumer.consumer_group_metadata()
        self._retried(lambda: self.producer.send_offsets_to_transaction(offsets, metadata, LIMIT_S))

    def end(self, offset: int, committed: bool) -> None:
        """The group's offset is that of the model, as soon as no transaction is open there (KIP-447)."""
        call = self.producer.commit_transaction if committed else self.producer.abort_transaction
        self._retried(lambda: call(LIMIT_S))
        self.expected = offset if committed else self.expected
        assert self.committed() == self.expected, self.name
        self.ended += 1

    def committed(self) -> int:
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                (found,) = self.consumer.committed([TopicPartition("t", 0)], 20)
                offset: int = found.offset
                return offset
            except KafkaException:
                assert time.monotonic() < deadline

    def run(self, ended: threading.Event, seed: int) -> None:
        chance = random.Random(seed)
        offset = 0
        while not ended.is_set():
            offset += 1
            self.begin(offset)
            self.end(offset, chance.random() < 0.7)

    def _retried(self, call: Callable[[], _T]) -> _T:
        """librdkafka leaves errors that pass to the application, which asks again."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                return call()
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise


class Town:
    """A cluster of three pods with applications that run all the time."""

    def __init__(self, root: Path, *arguments: str) -> None:
        self.root, self.data = root, root / "data"
        numbers = ("--partitions", "4", "--transaction-partitions", "5", "--base-port", str(free_base()))
        self.cluster = LocalCluster(self.data, "--topic", "t:1", *numbers, *arguments)
        self.bootstrap = self.cluster.wait_ready()
        self.store = SqliteStore(self.data / "muster.db")
        self.ended = threading.Event()
        self.failures: list[BaseException] = []
        self.threads: list[threading.Thread] = []
        self.applications: list[Application] = []

    def run(self, count: int) -> None:
        for number in range(count):
            application = Application(self.bootstrap, f"tx-{number}")
            self.applications.append(application)
            self.threads.append(threading.Thread(target=self._run, args=(application, number), daemon=True))
            self.threads[-1].start()

    def _run(self, application: Application, seed: int) -> None:
        try:
            application.run(self.ended, seed)
        except BaseException as failure:
            self.failures.append(failure)

    def stop(self) -> None:
        self.ended.set()
        for thread in self.threads:
            thread.join()
        assert not self.failures, self.failures

    def go_on(self) -> None:
        """Every application ends two more transactions, the second of which has begun by now or later."""
        before = [each.ended for each in self.applications]
        self.until(
            lambda: all(each.ended >= then + 2 for each, then in zip(self.applications, before, strict=True)),
            "transactions",
        )

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert not self.failures, self.failures
            assert time.monotonic() < deadline, f"never: {what}; {self.topic().status}"
            time.sleep(0.05)

    def topic(self, name: str = TRANSACTIONS.name) -> OffsetsTopic:
        topics = asyncio.run(self.store.observe(CLUSTER)).topics
        return next(each for each in topics if each.spec.topic == name)

    def reshard(self, partitions: int, topic: str = TRANSACTIONS.name) -> str:
        return ended_well(self.command(partitions, topic))

    def command(self, partitions: int, topic: str = TRANSACTIONS.name) -> subprocess.Popen[str]:
        places = ("--data-dir", str(self.data), "--work-dir", str(self.root / "work"))
        return subprocess.Popen(
            [sys.executable, "-m", "muster_cli", "reshard", *places, "--topic", topic, "--partitions", str(partitions)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def stopped_while_it_copies(self, command: subprocess.Popen[str], topic: str) -> None:
        """It is stopped before that, so that the phase cannot be over."""
        self.until(lambda: self.phase(topic)[0] in ("Fencing", "Copying"), "Fencing")
        command.send_signal(signal.SIGSTOP)
        self.until(lambda: self.phase(topic)[0] == "Copying", "Copying")

    def killed_while_it_copies(self, command: subprocess.Popen[str]) -> None:
        self.stopped_while_it_copies(command, TRANSACTIONS.name)
        command.kill()
        command.communicate()

    def phase(self, topic: str) -> tuple[str, str]:
        """(phase, what it waits for) of the topic's re-shard."""
        reshard = self.topic(topic).status.reshard
        return ("", "") if reshard is None else (str(reshard.phase), reshard.message)

    def layout(self) -> range:
        found = self.topic().layout.indexes
        return range(found.start - TRANSACTIONS.first, found.stop - TRANSACTIONS.first)

    def kill_pods(self) -> None:
        """One after the other, so that leaders have higher epochs than the first ones of new partitions have."""
        for number in range(3):
            self.kill_pod(number)
        self.until(lambda: max(self.epochs()) > 1, "other leaders")

    def kill_pod(self, number: int) -> None:
        before = self._pid(number)
        os.kill(before, signal.SIGKILL)
        self.until(partial(self._is_new, number, before), "a new pod")

    def _is_new(self, number: int, before: int) -> bool:
        return self._pid(number) not in (0, before)

    def _pid(self, number: int) -> int:
        record = msgspec.json.decode((self.data / "run.json").read_bytes())
        pods = {pod["name"]: pod["process"] for pod in record["pods"]}
        process = pods[f"muster-{number}"]
        return int(process["pid"]) if process else 0

    def epochs(self) -> list[int]:
        """In which the partitions that serve now are led."""
        lines = self.topic().status.leaderships
        return [int(lines[str(index)].partition("epoch=")[2].split()[0]) for index in self.topic().layout.indexes]

    def producer(self, name: str) -> tuple[int, int, str]:
        """(producer id, epoch, state) of a transactional id, by the pod that coordinates it."""
        return asyncio.run(self._describe(name))

    async def _describe(self, name: str) -> tuple[int, int, str]:
        request = entity("describe_transactions", 0)(transactional_ids=(name,))
        deadline = time.monotonic() + LIMIT_S
        while True:
            for address in self.bootstrap.split(","):
                client = await KafkaClient.connect(int(address.rpartition(":")[2]))
                (found,) = (await client.call(request)).transaction_states
                await client.close()
                if not found.error_code:
                    return int(found.producer_id), int(found.producer_epoch), str(found.transaction_state)
            assert time.monotonic() < deadline, f"no pod coordinates {name}"


@contextmanager
def town(root: Path, *arguments: str) -> Iterator[Town]:
    made = Town(root, *arguments)
    try:
        yield made
    finally:
        made.ended.set()
        made.cluster.__exit__()
        made.store.close()


def test_producers_go_on_and_every_offset_is_the_models(tmp_path: Path) -> None:
    with town(tmp_path) as made:
        made.kill_pods()
        epochs = made.epochs()
        made.run(APPLICATIONS)
        made.go_on()
        for partitions, layout in ((3, range(5, 8)), (5, range(8, 13))):
            told = made.reshard(partitions)
            assert f"{partitions} partitions serve" in told
            assert f"{APPLICATIONS} transactional ids" in told
            assert made.layout() == layout
            assert min(made.epochs()) > max(epochs), "groups would refuse markers of a coordinator that went back"
            epochs = made.epochs()
            made.go_on()
        made.stop()


def test_open_transaction_survives_with_its_producer_and_no_producer_id_comes_again(tmp_path: Path) -> None:
    with town(tmp_path) as made:
        application = Application(made.bootstrap, "open")
        producers = set()
        for offset, partitions in enumerate((3, 5)):
            application.begin(offset)
            before = made.producer("open")
            assert before[2] == "Ongoing"
            made.reshard(partitions)
            assert made.producer("open") == before
            application.end(offset, committed=partitions == 3)
            other = Application(made.bootstrap, f"new-{partitions}")
            other.begin(1)
            producers |= {before[0], made.producer(other.name)[0]}
            other.end(1, committed=True)
        assert len(producers) == 3
        dropped = muster("reshard", "--data-dir", str(made.data), "--topic", TRANSACTIONS.name, "--drop-old")
        assert dropped.stdout.startswith("8 partitions are deleted"), dropped
        made.until(
            lambda: (
                {path.parent.name for path in made.data.glob(f"pods/*/{TRANSACTIONS.name}-*/*.log")}
                == {f"{TRANSACTIONS.name}-{index}" for index in range(8, 13)}
            ),
            "old logs gone",
        )
        application.begin(9)
        application.end(9, committed=True)


def test_transactions_go_on_after_a_reshard_was_taken_back_and_after_its_command_was_killed(tmp_path: Path) -> None:
    with town(tmp_path) as made:
        made.run(APPLICATIONS)
        made.go_on()
        made.killed_while_it_copies(made.command(3))
        aborted = muster("reshard", "--data-dir", str(made.data), "--topic", TRANSACTIONS.name, "--abort")
        assert aborted.returncode == 0, aborted
        assert made.phase(TRANSACTIONS.name)[0] == "Aborted"
        assert made.layout() == range(5)
        made.go_on()
        made.killed_while_it_copies(made.command(4))
        made.reshard(4)
        assert made.layout() == range(8, 12), "no index is used twice"
        made.go_on()
        made.stop()


def test_groups_are_resharded_between_the_transactions_of_clients_that_go_on(tmp_path: Path) -> None:
    with town(tmp_path) as made:
        made.run(APPLICATIONS)
        made.go_on()
        for partitions, layout in ((6, range(4, 10)), (3, range(10, 13))):
            made.reshard(partitions, OFFSETS.name)
            assert made.topic(OFFSETS.name).layout.indexes == layout
            made.go_on()
        made.reshard(2)
        made.go_on()
        made.stop()


def test_open_transaction_holds_a_reshard_of_the_groups_until_it_ends(tmp_path: Path) -> None:
    """Groups are served meanwhile; a transaction that would begin waits, and goes on where the re-shard is over."""
    with town(tmp_path, "--replication-factor", "1") as made:
        holding, waiting = Application(made.bootstrap, "holding"), Application(made.bootstrap, "waiting")
        holding.begin(1)
        command = made.command(3, OFFSETS.name)
        made.until(lambda: "open transactions: 'holding'" in made.phase(OFFSETS.name)[1], "the transaction by its name")
        assert made.phase(OFFSETS.name)[0] == "Preparing"
        begun = threading.Thread(target=waiting.begin, args=(7,), daemon=True)
        begun.start()
        [done] = waiting.consumer.commit(offsets=[TopicPartition("t", 0, 5)], asynchronous=False)
        assert done.error is None
        assert made.phase(OFFSETS.name)[0] == "Preparing", "still"
        holding.end(1, committed=True)
        assert "3 partitions serve" in ended_well(command)
        begun.join(LIMIT_S)
        assert not begun.is_alive()
        assert made.producer("waiting")[2] == "Ongoing"
        waiting.end(7, committed=True)
        assert holding.committed() == 1


class JavaApplication:
    """The producer "p" of transaction version 2, and the model of its group's offset."""

    def __init__(self, producers: JavaProducers) -> None:
        self._producers = producers
        self.begun = 0
        self.expected: int | None = None

    async def transaction(self) -> None:
        self.begun += 1
        await self._producers.call("begin", "p")
        await self._producers.call("send", "p", self.begun)
        committed = self.begun % 3 != 0
        await self._producers.call("commit" if committed else "abort", "p")
        self.expected = self.begun if committed else self.expected
        assert await self._producers.committed() == self.expected


@pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet())
async def test_java_producer_of_version_2_goes_on_through_reshards_of_both_topics(tmp_path: Path) -> None:
    with town(tmp_path) as made:
        async with JavaProducers(made.bootstrap, "g") as producers:
            await producers.open("p")
            application = JavaApplication(producers)
            for topic, partitions in ((TRANSACTIONS.name, 3), (OFFSETS.name, 6), (TRANSACTIONS.name, 5)):
                command = made.command(partitions, topic)
                left = 3  # so many transactions when the command has ended
                while left:
                    left -= command.poll() is not None
                    await application.transaction()
                assert f"{partitions} partitions serve" in ended_well(command)
            epoch = (await made._describe("tx"))[1]
            assert epoch >= application.begun, "version 2: an epoch for each transaction"


@pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet())
@pytest.mark.parametrize("topic", [TRANSACTIONS.name, OFFSETS.name])
async def test_pods_die_while_logs_are_copied_and_the_producer_goes_on(tmp_path: Path, topic: str) -> None:
    with town(tmp_path) as made:
        async with JavaProducers(made.bootstrap, "g") as producers:
            await producers.open("p")
            application = JavaApplication(producers)
            await application.transaction()
            command = made.command(3, topic)
            await asyncio.to_thread(made.stopped_while_it_copies, command, topic)
            waiting = asyncio.create_task(application.transaction())
            for number in range(2):
                await asyncio.to_thread(made.kill_pod, number)
            command.send_signal(signal.SIGCONT)
            await waiting
            assert "3 partitions serve" in await asyncio.to_thread(ended_well, command)
            for _ in range(3):
                await application.transaction()
