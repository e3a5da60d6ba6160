"""Kafka's own kafka-transactions.sh against Muster: list, describe, describe-producers, find-hanging, abort."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conformance.members import topic
from tests.conformance.producers import OFFSETS, Producer
from tests.conformance.session import MUSTER, Server, Session
from tests.support.kafka_broker import run_tool, why_no_kafka_yet
from tests.support.pod import SoloPod

from muster_coordinator.records.partitioner import partition_for

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet()),
    pytest.mark.timeout(300),
]

PARTITIONS = 3
HOME = str(partition_for("g", PARTITIONS))
"""Where the group lives."""
HANGING = 1 << 50
"""A producer id that no transaction coordinator gave out."""


class Cluster:
    def __init__(self, pod: SoloPod) -> None:
        self.pod = pod
        self.session = Session(Server(MUSTER, pod.kafka_port, 0), "g")

    async def run(self, *arguments: str) -> list[dict[str, str]]:
        """The table that the tool prints, a row by its columns."""
        address = ("--bootstrap-server", f"127.0.0.1:{self.pod.kafka_port}")
        code, output = await run_tool("org.apache.kafka.tools.TransactionsCommand", *address, *arguments)
        assert code == 0, output
        assert "Exception" not in output, output
        header, *rows = [line.split("\t") for line in output.splitlines() if line.strip()] or [[]]
        names = [name.strip() for name in header]
        return [dict(zip(names, [cell.strip() for cell in row], strict=False)) for row in rows]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Pods have led without transactions, and a commit of theirs hangs: its coordinator, elsewhere then, is gone."""
    data = tmp_path / "data"
    async with SoloPod(data, PARTITIONS, {"t": 2}) as pod:
        session = Session(Server(MUSTER, pod.kafka_port, 0), "g")
        fields = {"transactional_id": "gone", "group_id": "g", "producer_id": HANGING, "producer_epoch": 3}
        await session.ask("txn_offset_commit", 3, **fields, generation_id=-1, topics=[topic("t", (0, 5))])
        await session.close()
        assert pod.terminate() == 0
    async with SoloPod(data, PARTITIONS, {"t": 2}, transaction_partitions=PARTITIONS, epoch=pod.epoch) as pod:
        found = Cluster(pod)
        try:
            yield found
        finally:
            await found.session.close()


async def test_transactions_are_listed_and_described(cluster: Cluster) -> None:
    idle, busy = Producer(cluster.session, "idle"), Producer(cluster.session, "busy")
    await idle.init()
    await busy.init()
    await busy.commit_offset(5)
    listed = {row["TransactionalId"]: row for row in await cluster.run("list")}
    assert {name: row["TransactionState"] for name, row in listed.items()} == {"idle": "Empty", "busy": "Ongoing"}
    assert listed["busy"]["ProducerId"] == str(busy.identity[0])
    assert {row["Coordinator"] for row in listed.values()} == {"0"}
    (found,) = await cluster.run("describe", "--transactional-id", "busy")
    assert found["TransactionState"] == "Ongoing"
    assert (found["ProducerId"], found["ProducerEpoch"]) == tuple(map(str, busy.identity))
    assert found["TopicPartitions"] == f"{OFFSETS}-{HOME}"
    assert (found["CoordinatorId"], found["TransactionTimeoutMs"]) == ("0", "60000")


async def test_producers_of_a_partition_are_described(cluster: Cluster) -> None:
    busy = Producer(cluster.session, "busy")
    await busy.init()
    await busy.commit_offset(5)
    rows = await cluster.run("describe-producers", "--topic", OFFSETS, "--partition", HOME)
    assert [(row["ProducerId"], row["ProducerEpoch"]) for row in rows] == [
        (str(HANGING), "3"),
        tuple(map(str, busy.identity)),
    ]
    assert await cluster.run("describe-producers", "--topic", "t", "--partition", "1") == []


async def test_hanging_transaction_is_found_and_aborted(cluster: Cluster) -> None:
    """One that is open, and known to its coordinator, does not hang."""
    busy = Producer(cluster.session, "busy")
    await busy.init()
    await busy.commit_offset(5, partition=1)
    find = ("find-hanging", "--broker-id", "0", "--max-transaction-timeout", "0")
    (found,) = await cluster.run(*find)
    assert (found["Topic"], found["Partition"], found["ProducerId"]) == (OFFSETS, HOME, str(HANGING))
    place = ("--topic", OFFSETS, "--partition", HOME, "--start-offset", found["StartOffset"])
    await cluster.run("abort", *place)
    assert await cluster.run(*find) == []
    left = await cluster.run("describe-producers", "--topic", OFFSETS, "--partition", HOME)
    assert [row["ProducerId"] for row in left] == [str(busy.identity[0])]
