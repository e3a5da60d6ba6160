"""A mirror of a real Kafka's `__consumer_offsets`: what it answers about groups is what Kafka answers."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.support.kafka import KafkaClient, schema
from tests.support.kafka_broker import KafkaBroker, why_no_kafka_yet
from tests.support.kafka_cluster import KafkaCluster
from tests.support.local_cluster import LocalCluster, muster, wait_until
from tests.support.mirrored import POLL_S, groups_of, listed, until
from tests.support.pod import SoloPod, free_ports
from tests.support.slow_fetches import SlowFetches

from muster_coordinator.errors import ErrorCode
from muster_coordinator.podapi.mirror import MirrorAnswer

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet()),
    pytest.mark.timeout(300),
]

PARTITIONS = 3
TOPICS = {"t": 4, "u": 1}
KAFKA = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "group.initial.rebalance.delay.ms": "100",
    "group.coordinator.rebalance.protocols": "classic",
    "offsets.retention.check.interval.ms": "500",
    "transaction.partition.verification.enable": "false",
}
CALL_S = 30.0


async def status(pod: SoloPod) -> MirrorAnswer:
    return msgspec.json.decode(await pod.api.read("/v1/mirror", {}), type=MirrorAnswer)


async def caught_up(pod: SoloPod) -> bool:
    answer = await status(pod)
    return len(answer.partitions) == PARTITIONS and all(p.complete and p.lag == 0 for p in answer.partitions)


async def equal(broker: KafkaBroker, pod: SoloPod, names: set[str]) -> bool:
    return await groups_of(broker.port, names) == await groups_of(pod.kafka_port, names)


async def assert_mirrored(broker: KafkaBroker, pod: SoloPod) -> set[str]:
    """Wait until everything that Kafka says of its groups is what the mirror says. Returns their names."""
    of_kafka = await listed(broker.port)
    assert of_kafka
    names = {name for name, _ in of_kafka} | {"there-is-no-such-group"}
    try:
        await until(lambda: equal(broker, pod, names), "equal groups", 20)
    except AssertionError:
        assert await groups_of(pod.kafka_port, names) == await groups_of(broker.port, names)
    # A group whose only transaction was aborted is soon removed at Kafka, also between two questions.
    assert await listed(pod.kafka_port) in (of_kafka, await listed(broker.port))
    return names


def consumer(port: int, group: str, **more: Any) -> Consumer:
    settings = {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": group, "enable.auto.commit": False}
    return Consumer(settings | {"auto.offset.reset": "earliest", "session.timeout.ms": 10_000} | more)


async def assigned(member: Consumer) -> None:
    async def has() -> bool:
        await asyncio.to_thread(member.poll, 0.1)
        return bool(member.assignment())

    await until(has, "an assignment")


def transact(port: int, group: str, offset: int, *, commit: bool, end: bool = True) -> Producer:
    """A transaction that commits `offset` of t-0 for the group."""
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "transactional.id": f"{group}-{offset}"})
    producer.init_transactions(CALL_S)
    producer.begin_transaction()
    member = consumer(port, group)
    producer.send_offsets_to_transaction([TopicPartition("t", 0, offset)], member.consumer_group_metadata(), CALL_S)
    member.close()
    if end:
        (producer.commit_transaction if commit else producer.abort_transaction)(CALL_S)
    return producer


def produce(port: int, count: int) -> None:
    """Write so many records to t-0."""
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}"})
    for number in range(count):
        producer.produce("t", str(number), partition=0)
    assert producer.flush(CALL_S) == 0


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncIterator[KafkaBroker]:
    async with KafkaBroker(tmp_path / "upstream", KAFKA, TOPICS) as running:
        yield running


def mirroring(directory: Path, broker: KafkaBroker, *config: str) -> SoloPod:
    settings = [f"muster.upstream.bootstrap=127.0.0.1:{broker.port}", *config]
    return SoloPod(directory / "data", PARTITIONS, TOPICS, settings)


async def commit(port: int, group: str, offset: int) -> int:
    client = await KafkaClient.connect(port)
    try:
        return await client.commit(group, offset)
    finally:
        await client.close()


async def test_groups_members_transactions_and_tombstones_are_those_of_kafka(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    for number in range(20):
        assert await commit(broker.port, f"simple-{number}", number) == 0
    member = consumer(broker.port, "stable")
    member.subscribe(["t"])
    await assigned(member)
    async with mirroring(tmp_path, broker) as pod:
        await until(lambda: caught_up(pod), "the mirror at the end")
        assert len(await assert_mirrored(broker, pod)) >= 21

        member.commit(offsets=[TopicPartition("t", 0, 7, "a note")], asynchronous=False)
        await asyncio.to_thread(lambda: transact(broker.port, "committed", 5, commit=True))
        await asyncio.to_thread(lambda: transact(broker.port, "aborted", 6, commit=False))
        open_transaction = await asyncio.to_thread(lambda: transact(broker.port, "open", 8, commit=True, end=False))
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}"})
        for future in admin.delete_consumer_groups(["simple-3", "simple-4"]).values():
            await asyncio.to_thread(future.result, CALL_S)
        names = await assert_mirrored(broker, pod)
        assert {"committed", "open", "stable"} <= names
        assert not {"simple-3", "simple-4"} & names

        open_transaction.commit_transaction(CALL_S)
        await asyncio.to_thread(member.close)
        await assert_mirrored(broker, pod)
        assert await commit(pod.kafka_port, "simple-5", 99) == ErrorCode.NOT_COORDINATOR
        assert await commit(pod.kafka_port, "new", 1) == ErrorCode.NOT_COORDINATOR
        await assert_mirrored(broker, pod)


async def test_what_kafka_expires_is_expired_and_nothing_else(broker: KafkaBroker, tmp_path: Path) -> None:
    """An offset whose commit says how long it is to be kept (OffsetCommit up to version 4)."""
    async with mirroring(tmp_path, broker) as pod:
        assert await commit(broker.port, "long", 1) == 0
        await commit_for(broker.port, "short", datetime.timedelta(seconds=1))
        assert {name for name, _ in await listed(broker.port) or ()} == {"long", "short"}

        async def expired() -> bool:
            return {name for name, _ in await listed(broker.port) or ()} == {"long"}

        await until(expired, "the group's end at Kafka")
        await assert_mirrored(broker, pod)


async def commit_for(port: int, group: str, retention: datetime.timedelta) -> None:
    m = schema("offset_commit", 3)
    partition = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    client = await KafkaClient.connect(port)
    try:
        answer = await client.call(
            m.OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=-1,
                member_id="",
                retention_time=retention,
                topics=(m.OffsetCommitRequestTopic(name="t", partitions=(partition,)),),
            )
        )
    finally:
        await client.close()
    assert int(answer.topics[0].partitions[0].error_code) == 0


class Transactions:
    """A transactional producer of Kafka's that commits offsets of a group that Muster serves."""

    def __init__(self, kafka: KafkaClient, muster: KafkaClient, group: str) -> None:
        self.kafka, self.muster, self.group = kafka, muster, group
        self.producer: dict[str, Any] = {}

    async def begin(self) -> None:
        m = schema("init_producer_id", 4)
        request = m.InitProducerIdRequest(
            transactional_id="tx",
            transaction_timeout=datetime.timedelta(minutes=1),
            producer_id=-1,
            producer_epoch=-1,
        )
        answer = await until(lambda: self._without_error(self.kafka, request), "a producer id")
        self.producer = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}

    async def _without_error(self, client: KafkaClient, request: Any) -> Any:
        answer = await client.call(request)
        return None if answer.error_code else answer

    async def run(self, offset: int, *, commit: bool) -> None:
        """One transaction, each step as soon as the one before lets it."""
        add, end = schema("add_offsets_to_txn", 3), schema("end_txn", 3)
        adding = add.AddOffsetsToTxnRequest(transactional_id="tx", group_id=self.group, **self.producer)
        while answer := int((await self.kafka.call(adding)).error_code):
            assert answer == ErrorCode.CONCURRENT_TRANSACTIONS
        await self.commit_offset(offset)
        ending = end.EndTxnRequest(transactional_id="tx", committed=commit, **self.producer)
        assert int((await self.kafka.call(ending)).error_code) == 0

    async def commit_offset(self, offset: int) -> None:
        m = schema("txn_offset_commit", 3)
        partition = m.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=None
        )
        request = m.TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id=self.group,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=(m.TxnOffsetCommitRequestTopic(name="t", partitions=(partition,)),),
            **self.producer,
        )
        answer = await self.muster.call(request)
        assert int(answer.topics[0].partitions[0].error_code) == 0

    async def stable_offset(self) -> int:
        m = schema("offset_fetch", 7)
        request = m.OffsetFetchRequest(
            group_id=self.group,
            topics=(m.OffsetFetchRequestTopic(name="t", partition_indexes=(0,)),),
            require_stable=True,
        )
        while True:
            found = (await self.muster.call(request)).topics[0].partitions[0]
            if int(found.error_code) != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                assert int(found.error_code) == 0
                return int(found.committed_offset)


@pytest.mark.parametrize("delay_s", [0.0, 0.3])
async def test_markers_of_kafka_end_transactions_of_a_group_at_muster(tmp_path: Path, delay_s: float) -> None:
    """Transactions one after the other, as fast as Kafka lets them, also with a mirror that is late: without the
    barrier a late marker would end the transaction after its own."""
    (port,) = free_ports(1)
    settings = KAFKA | {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    async with (
        SlowFetches(port, delay_s) as way,
        KafkaBroker(tmp_path / "upstream", settings, TOPICS) as broker,
    ):
        way.broker_port = broker.port
        async with mirroring(tmp_path, broker, "muster.upstream.served.groups=muster-") as pod:
            await until(lambda: caught_up(pod), "the mirror at the end")
            transactions = Transactions(await KafkaClient.connect(broker.port), await pod.client(), "muster-billing")
            await transactions.begin()
            choice = random.Random(7)
            expected = -1
            for offset in range(1, 16 if delay_s else 100):
                commit = choice.random() < 0.7
                await transactions.run(offset, commit=commit)
                expected = offset if commit else expected
                if choice.random() < 0.3:
                    assert await transactions.stable_offset() == expected
            assert await transactions.stable_offset() == expected
            assert "muster-billing" not in {name for name, _ in await listed(broker.port) or ()}
            await transactions.kafka.close()
            await transactions.muster.close()


async def test_group_of_musters_that_is_used_at_kafka_is_told_with_its_client(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    """First there alone, then here as well. Its lag here is that of its offset at Muster."""
    group = "muster-billing"
    config = ("muster.upstream.served.groups=muster-", "muster.upstream.group.lag.max.groups=1")
    async with mirroring(tmp_path, broker, *config) as pod:
        await until(lambda: caught_up(pod), "the mirror at the end")
        member = consumer(broker.port, group, **{"client.id": "old-config"})
        member.subscribe(["t"])
        await assigned(member)
        line = await told(pod, "group_used_at_upstream")
        assert (line["group"], line["clients"]) == (group, "old-config@127.0.0.1")
        await asyncio.to_thread(produce, broker.port, 8)
        assert await commit(pod.kafka_port, group, 3) == 0
        await asyncio.to_thread(member.commit, offsets=[TopicPartition("t", 0, 5)], asynchronous=False)
        line = await told(pod, "group_served_twice")
        assert (line["group"], line["clients"]) == (group, "old-config@127.0.0.1")
        assert (await pod.api.status()).mirror_bypassed == f"{group} by old-config@127.0.0.1"
        member.close()

        async def over() -> bool:
            return (await pod.api.status()).mirror_bypassed == ""

        await until(over, "a status without the group whose member has left")

        async def counted() -> bool:
            return await pod.metric("muster_group_lag", group=group, topic="t") == 5

        await until(counted, "the lag of the group")
        assert await pod.metric("muster_group_lag_left_out", reason="limit") == 0


async def told(pod: SoloPod, event: str) -> dict[str, Any]:
    """The log line of that event, which comes within seconds."""
    found: list[dict[str, Any]] = []

    async def there_is() -> bool:
        lines = [json.loads(line) for line in pod.log().splitlines() if line.startswith("{")]
        found[:] = [line for line in lines if line["event"] == event]
        return bool(found)

    await until(there_is, event, 5)
    return found[0]


async def test_another_cluster_at_the_address_takes_the_place_of_the_one_before(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    for number in range(30):
        assert await commit(broker.port, f"before-{number}", number) == 0
    async with mirroring(tmp_path, broker) as pod:
        await assert_mirrored(broker, pod)
        broker.kill()
        names = {f"before-{number}" for number in range(30)}
        known = await groups_of(pod.kafka_port, names)
        assert all(code == 0 for _, (code, _) in known.values()), "the mirror answers without the upstream"
        other = KafkaBroker(tmp_path / "another", KAFKA, TOPICS)
        other.port = broker.port
        async with other:
            assert await commit(other.port, "after", 3) == 0
            await until(lambda: caught_up(pod), "the mirror at the end")
            assert not names & await assert_mirrored(other, pod)
            assert all(each.read_again == 1 for each in (await status(pod)).partitions)


async def test_a_broker_that_is_started_again_is_followed_from_where_it_was(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    async with mirroring(tmp_path, broker) as pod:
        assert await commit(broker.port, "before", 1) == 0
        await assert_mirrored(broker, pod)
        await broker.stop()
        await until(lambda: has_problems(pod), "a problem that is said")
        await broker.start()
        assert await commit(broker.port, "after", 2) == 0
        await assert_mirrored(broker, pod)
        answer = await status(pod)
        assert not answer.problem
        assert all(not each.problem and not each.read_again for each in answer.partitions)
        records = sum(each.records for each in answer.partitions)
        assert records == await pod.metric("muster_mirror_records_taken_in_total")


async def has_problems(pod: SoloPod) -> bool:
    answer = await status(pod)
    return bool(answer.problem) and all(each.problem for each in answer.partitions)


async def test_an_upstream_with_another_number_of_partitions_is_not_followed(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    settings = [f"muster.upstream.bootstrap=127.0.0.1:{broker.port}"]
    async with SoloPod(tmp_path / "data", PARTITIONS + 1, TOPICS, settings) as pod:

        async def says_so() -> bool:
            return (
                f"{PARTITIONS} partitions of __consumer_offsets, and this cluster {PARTITIONS + 1}"
                in (await status(pod)).problem
            )

        await until(says_so, "a problem that is said")
        assert all(each.position < 0 for each in (await status(pod)).partitions)


async def test_a_cluster_in_which_there_was_no_group_yet_is_followed(tmp_path: Path) -> None:
    """Its brokers make the topic when they are asked for a coordinator, and write markers to no other place."""
    async with KafkaCluster(tmp_path / "upstream", TOPICS, brokers=1, settings=KAFKA) as kafka:
        settings = [f"muster.upstream.bootstrap={kafka.bootstrap}"]
        async with SoloPod(tmp_path / "data", PARTITIONS, TOPICS, settings) as pod:
            await until(lambda: caught_up(pod), "the mirror at the end")


class Committer:
    """Commits at Kafka, one group after the other, until it is stopped."""

    def __init__(self, port: int, groups: int) -> None:
        self.count = 0
        self._port, self._groups = port, groups
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        client = await KafkaClient.connect(self._port)
        while True:
            assert await client.commit(f"g-{self.count % self._groups}", self.count) == 0
            self.count += 1

    async def some(self, count: int) -> None:
        """Wait until so many more are there."""
        wanted = self.count + count
        while self.count < wanted:
            assert not self._task.done(), self._task
            await asyncio.sleep(POLL_S)

    def stop(self) -> None:
        self._task.cancel()


async def test_leaders_that_are_killed_lose_no_position(broker: KafkaBroker, tmp_path: Path) -> None:
    """Three pods are killed one after the other, while commits go on at Kafka."""
    options = ["--any-topic", "--config", f"muster.upstream.bootstrap=127.0.0.1:{broker.port}"]
    with LocalCluster(tmp_path / "muster", *options) as cluster:
        bootstrap = await asyncio.to_thread(cluster.wait_ready)
        ports = [int(address.rpartition(":")[2]) for address in bootstrap.split(",")]
        committer = Committer(broker.port, 40)
        for turn in range(3):
            await committer.some(100)
            os.kill(cluster.run_record()["pods"][turn]["pid"], signal.SIGKILL)
            await committer.some(100)
            await asyncio.to_thread(wait_until, lambda: len(led(cluster)) == PARTITIONS, "leaders")
        committer.stop()
        names = {name for name, _ in await listed(broker.port) or ()}
        assert len(names) == 40
        expected = await groups_of(broker.port, names)

        async def same() -> bool:
            found: dict[str, Any] = {}
            for port in ports:
                try:
                    answers = await groups_of(port, names)
                except OSError:
                    continue  # the pod that was killed last is on its way up
                found |= {name: answer for name, answer in answers.items() if answer[0][0] == 0}
            return found == expected

        await until(same, "equal groups")
        report: dict[str, Any] = {}

        async def no_problem() -> bool:
            """The pod that was killed last may not have asked the broker yet."""
            shown = await asyncio.to_thread(muster, "mirror", "status", "--json", "--data-dir", str(cluster.data))
            report.update(json.loads(shown.stdout))
            return not report["problems"]

        await until(no_problem, "every pod follows the broker")
        assert [(each["partition"], each["lag"], each["read_again"]) for each in report["partitions"]] == [
            (partition, 0, 0) for partition in range(PARTITIONS)
        ]
        table = (await asyncio.to_thread(muster, "mirror", "status", "--data-dir", str(cluster.data))).stdout
        assert f"{PARTITIONS} partitions are followed, 0 records are not read yet" in table


async def test_an_upstream_that_is_away_is_said_before_an_instance_is_made(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    options = ["--base-port", "0", "--config", f"muster.upstream.bootstrap=127.0.0.1:{port}"]
    done = await asyncio.to_thread(muster, "local", "up", "--data-dir", str(tmp_path / "muster"), *options)
    assert done.returncode == 1
    assert f"broker 127.0.0.1:{port}" in done.stderr
    shown = await asyncio.to_thread(muster, "mirror", "status", "--data-dir", str(tmp_path / "muster"))
    assert shown.returncode == 1
    assert "nothing runs" in shown.stderr


def led(cluster: LocalCluster) -> list[Any]:
    return [each for each in cluster.status()["partitions"] if each["leader"] is not None]
