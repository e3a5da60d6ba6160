"""Logs of transactions in both directions: the state machine loads what a broker wrote, and a broker loads what the
state machine wrote. Kafka's tool decodes it."""

from __future__ import annotations

import inspect
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.test_log_exchange import copy_partition
from tests.conformance.test_transaction_walks import Broker, Ours, Outcome, coordinator_is_there
from tests.support.kafka import KafkaClient
from tests.support.kafka_broker import KafkaBroker, run_tool, why_no_kafka_yet
from tests.unit.transactions.harness import NO_PRODUCER, PARTITIONS, Harness, Producer

from muster_coordinator.log.disk import OsDisk
from muster_coordinator.log.journal.history import History
from muster_coordinator.log.segments.partition_log import LogSettings, PartitionLog
from muster_coordinator.records.batch import encode_batch
from muster_coordinator.records.control import EndTxnMarker, decode_control
from muster_coordinator.replica.loading import replay_log
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.shard.replayed import ReplayedState

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet()),
    pytest.mark.timeout(300),
]

LOG = "__transaction_state-0"
SETTINGS = {"offsets.topic.num.partitions": str(PARTITIONS), "transaction.state.log.num.partitions": "1"}
DUMP = ("org.apache.kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--deep-iteration", "--files")
NAMES = {
    "empty": "Empty",
    "ongoing-ä": "Ongoing",
    "committed-1": "CompleteCommit",
    "committed-2": "CompleteCommit",
    "aborted-1": "CompleteAbort",
    "aborted-2": "CompleteAbort",
}


def loaded(directory: Path) -> Harness:
    """A harness whose state is that of the log in `directory`, loaded by the code that a pod loads with."""
    harness = Harness()
    log = _open(directory)
    harness.coordinator.on_unloaded()
    metrics = ShardMetrics()
    for _ in replay_log(log, ReplayedState(harness.coordinator), metrics):
        pass
    log.close()
    assert metrics.unknown_records == 0
    for part in harness.coordinator.snapshot(10):
        harness.follower.restore(part)
    harness.start()
    return harness


def _open(directory: Path) -> PartitionLog:
    return PartitionLog.open(OsDisk(), directory, 0, LogSettings(segment_bytes=1 << 20), History(boot_id=""))


async def test_state_machine_loads_what_a_broker_wrote(tmp_path: Path) -> None:
    async with KafkaBroker(tmp_path, SETTINGS, {"t": 1}) as running:
        client = await KafkaClient.connect(running.port)
        broker = Broker(client)
        await coordinator_is_there(broker)
        for name in NAMES:
            producer = await _begin(broker, name)
            kind, _, version = name.partition("-")
            if kind in ("committed", "aborted"):
                code, *_ = await broker.end(name, producer, kind == "committed", 3 + int(version))
                assert code == 0
                await broker.describe(name)
        by_kafka = {name: await broker.describe(name) for name in NAMES}
        await client.close()
        await running.stop()
        shutil.copytree(running.data_dir / LOG, tmp_path / LOG)
    assert {name: found[0] for name, found in by_kafka.items()} == NAMES
    ours = Ours(loaded(tmp_path / LOG))
    assert {name: ours.describe(name) for name in NAMES} == by_kafka


async def _begin(broker: Broker, name: str) -> Producer:
    code, producer_id, epoch = await broker.init(name, NO_PRODUCER)
    assert code == 0
    if name != "empty":
        assert await broker.add(name, (producer_id, epoch), 1, 4) == (0,)
        assert await broker.add(name, (producer_id, epoch), 3, 5) == (0,)
    return producer_id, epoch


async def test_broker_and_its_tool_read_what_the_state_machine_wrote(tmp_path: Path) -> None:
    """A transaction whose end is decided gets its markers from the broker, and its producer goes on there."""
    ours, producers = Ours(Harness()), {}
    ours.harness.now_ms = int(time.time() * 1000)
    for name in (*NAMES, "prepared"):
        producers[name] = ours.harness.producer(name)
        if name != "empty":
            ours.harness.add(producers[name], 1, 3, transactional_id=name, version=5)
        kind, _, version = name.partition("-")
        if kind in ("committed", "aborted"):
            ours.end(name, producers[name], kind == "committed", 3 + int(version))
            ours.harness.finish()
    ours.end("prepared", producers["prepared"], True, 5)
    _write_segment(ours.harness, tmp_path / "ours" / LOG)
    await _check_dump(tmp_path / "ours" / LOG)
    async with KafkaBroker(tmp_path, SETTINGS, {"t": 1}) as running:
        client = await KafkaClient.connect(running.port)
        await coordinator_is_there(Broker(client))
        await client.close()
        await running.stop()
        copy_partition(tmp_path / "ours" / LOG, running.data_dir / LOG)
        (running.data_dir / ".kafka_cleanshutdown").unlink()  # so that it checks every segment
        await running.start()
        client = await KafkaClient.connect(running.port)
        broker = Broker(client)
        await coordinator_is_there(broker)
        by_kafka: dict[str, Outcome] = {name: await broker.describe(name) for name in (*NAMES, "prepared")}
        ongoing = await broker.end("ongoing-ä", producers["ongoing-ä"], True, 5)
        await client.close()
    assert by_kafka == {name: ours.describe(name) for name in (*NAMES, "prepared")}
    assert by_kafka["prepared"][0] == "CompleteCommit"
    assert ongoing == ours.end("ongoing-ä", producers["ongoing-ä"], True, 5)


async def test_markers_have_the_epochs_that_those_of_a_broker_have(tmp_path: Path) -> None:
    """A transaction of each version, and one that another producer ends."""
    ours = Ours(Harness())
    async with KafkaBroker(tmp_path, SETTINGS, {"t": 1}) as running:
        client = await KafkaClient.connect(running.port)
        broker = Broker(client)
        await coordinator_is_there(broker)
        for each in (broker, ours):
            await _three_transactions(each)
        await client.close()
        await running.stop()
        log = _open(running.partition_dir(1))
        theirs = [
            (batch.producer_epoch, decode_control(record.key, record.value))
            for batch in log.read_batches(0)
            if batch.is_control
            for record in batch.records()
        ]
        log.close()
    asked = [(each.producer_epoch, EndTxnMarker(each.committed, 0)) for each in ours.harness.writer.asked]
    assert asked == theirs
    assert [epoch for epoch, _ in asked] == [0, 1, 2]


async def _three_transactions(server: Broker | Ours) -> None:
    """All in offsets partition 1, each complete before the next one."""

    async def call(what: Any) -> Outcome:
        result: Outcome = await what if inspect.isawaitable(what) else what
        return result

    _, producer_id, epoch = await call(server.init("x", NO_PRODUCER))
    for version in (4, 5):
        await call(server.add("x", (producer_id, epoch), 1, 3 if version == 4 else 5))
        await call(server.end("x", (producer_id, epoch), True, version))
        await call(server.describe("x"))
    await call(server.add("x", (producer_id, epoch + 1), 1, 5))
    await call(server.init("x", NO_PRODUCER))
    await call(server.describe("x"))


def _write_segment(harness: Harness, directory: Path) -> None:
    directory.mkdir(parents=True)
    batches = [
        encode_batch(
            [(entry.key, entry.value)], base_offset=entry.offset, leader_epoch=0, timestamp_ms=entry.timestamp_ms
        )
        for entry in harness.log
    ]
    (directory / f"{0:020}.log").write_bytes(b"".join(batches))


async def _check_dump(directory: Path) -> None:
    code, output = await run_tool(*DUMP, str(directory / f"{0:020}.log"))
    assert code == 0, output[-2000:]
    for complaint in ("Exception", "Non-consecutive", "Mismatches", "isvalid: false"):
        assert complaint not in output, output[-2000:]
    for text in ("ongoing-ä", "__consumer_offsets"):
        assert text in output, output[-3000:]
