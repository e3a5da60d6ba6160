"""Segments that a real Kafka broker wrote, with transactions, compaction, compression: read, re-sharded, compared."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.kafka import KafkaClient
from tests.support.kafka_broker import KafkaBroker, why_no_kafka_yet
from tests.unit.pipeline.test_kafka_python import by_kafka_python, by_numpy

from muster_cli.main import cli
from muster_coordinator.records.partitioner import partition_for
from muster_pipeline.decode.bytes_source import FileBytes
from muster_pipeline.decode.decoder import Decoder
from muster_pipeline.reshard.route import read_fates
from muster_pipeline.source.files import SegmentFile, find_segments

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet()),
    pytest.mark.timeout(400),
]

PARTITIONS = 3
METADATA_CHARS = 3000
GROUPS = [f"group-{number}" for number in range(9)]
SETTINGS = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "offsets.topic.segment.bytes": str(1 << 20),  # the least that a topic of Kafka 4.1 may have
    "offsets.topic.compression.codec": "1",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.io.buffer.size": "2097152",
    "group.initial.rebalance.delay.ms": "0",
}
Offsets = dict[tuple[str, int], tuple[int, int]]


async def all_offsets(port: int) -> Offsets:
    client = await KafkaClient.connect(port)
    try:
        return {(group, each): await client.fetch(group, partition=each) for group in GROUPS for each in range(3)}
    finally:
        await client.close()


def transactions(bootstrap: str) -> None:
    """For the first three groups: one transaction commits offset 7000, a later one with 8000 is aborted."""
    for group in GROUPS[:3]:
        config = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
        consumer = Consumer(config)
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{group}"})
        producer.init_transactions(60)
        for offset, end in ((7000, producer.commit_transaction), (8000, producer.abort_transaction)):
            producer.begin_transaction()
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction([TopicPartition("t", 0, offset)], metadata, 60)
            end(60)
        consumer.close()


async def filled(broker: KafkaBroker) -> Offsets:
    client = await KafkaClient.connect(broker.port)
    for turn in range(60):
        for group in GROUPS:
            assert await client.commit(group, turn, partition=turn % 3) == 0
    await client.close()
    await asyncio.to_thread(transactions, f"127.0.0.1:{broker.port}")
    await asyncio.to_thread(commit_large, f"127.0.0.1:{broker.port}")
    return await all_offsets(broker.port)


def commit_large(bootstrap: str) -> None:
    """Enough bytes that do not compress well to close segments, so that the cleaner has something to clean."""
    chance = random.Random(4)
    for group in GROUPS:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
        for turn in range(250):
            text = "".join(chr(chance.randrange(33, 126)) for _ in range(METADATA_CHARS))
            consumer.commit(offsets=[TopicPartition("t", 2, 9000 + turn, metadata=text)], asynchronous=False)
        consumer.close()


def cleaned(directory: Path) -> bool:
    return "__consumer_offsets" in (directory / "kafka" / "cleaner-offset-checkpoint").read_text()


async def test_logs_of_a_kafka_broker_are_read_right_and_resharded(tmp_path: Path) -> None:
    async with KafkaBroker(tmp_path / "broker", SETTINGS, {"t": 3}) as broker:
        expected = await filled(broker)
        async with asyncio.timeout(60):
            while not cleaned(broker.directory):
                await asyncio.sleep(0.2)
        await broker.stop()
    logs = tmp_path / "logs"
    for number in range(PARTITIONS):
        name = f"__consumer_offsets-{number}"
        shutil.copytree(broker.data_dir / name, logs / name)
    segments = find_segments([str(logs)])
    assert len(segments) > PARTITIONS
    for segment in segments:
        data = Path(segment.path).read_bytes()
        assert by_numpy(data) == by_kafka_python(data)
    assert any(data[22] & 7 for segment in segments if (data := Path(segment.path).read_bytes())), "nothing compressed"
    assert replayed(segments) == expected
    output = tmp_path / "new"
    result = CliRunner().invoke(cli, ["reshard", str(logs), "--partitions", "7", "--output", str(output)])
    assert result.exit_code == 0, result.output
    resharded = find_segments([str(output)])
    assert replayed(resharded) == expected
    for row in rows(resharded):
        assert partition_for(row["group"], 7) == row["offsets_partition"]
    assert await offsets_of_a_broker_on(output, tmp_path / "second") == expected


async def offsets_of_a_broker_on(logs: Path, directory: Path) -> Offsets:
    """What Kafka answers when the logs took the place of those of its new, empty offsets topic."""
    partitions = len(list(logs.glob("__consumer_offsets-*")))
    async with KafkaBroker(directory, SETTINGS | {"offsets.topic.num.partitions": str(partitions)}, {"t": 3}) as broker:
        await broker.stop()
        for number in range(partitions):
            place = broker.partition_dir(number)
            for file in place.iterdir():
                if file.name != "partition.metadata":
                    file.unlink()
            shutil.copytree(logs / place.name, place, dirs_exist_ok=True)
        await broker.start()
        return await all_offsets(broker.port)


def rows(segments: list[SegmentFile]) -> Iterator[dict[str, Any]]:
    for segment in segments:
        with FileBytes(segment.path) as source:
            for batch in Decoder(fail_fast=True).decode(source, segment.origin()):
                yield from batch.to_pylist()


def replayed(segments: list[SegmentFile]) -> Offsets:
    """What a fetch must answer: per key the record with the highest offset that counts; (-1, 0) where there is none."""
    sizes = {each.path: Path(each.path).stat().st_size for each in segments}
    fates = {
        partition: read_fates([each for each in segments if each.offsets_partition == partition], sizes)
        for partition in {each.offsets_partition for each in segments}
    }
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for row in rows(segments):
        if row["kind"] not in ("offset_commit", "offset_tombstone"):
            continue
        transactional = (row["producer_id"] or -1) >= 0
        if transactional and fates[row["offsets_partition"]].of(row["producer_id"], row["offset"]) is not None:
            continue
        key = (row["group"], row["partition"])
        found[key] = max(found.get(key, (-1, -1)), (row["offset"], row["committed_offset"]))
    return {(group, each): (found.get((group, each), (0, -1))[1], 0) for group in GROUPS for each in range(3)}
