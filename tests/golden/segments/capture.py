"""Captures segments that a real Kafka broker wrote: `PYTHONPATH=bench python -m tests.golden.segments.capture`.

A Kafka 4.1.0 broker with two offsets partitions serves real clients: members that join and leave, plain commits with
and without metadata, transactions that commit and that abort, a deleted group, a group of the consumer protocol
(KIP-848); once with and once without compression. Its segments are kept as they are, and beside each what Kafka's own
DumpLogSegments says of it. Not run by the tests.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import builds
import servers
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

HERE = Path(__file__).parent
PARTITIONS = 2
CODECS = {"plain": 0, "zstd": 4, "gzip": 1, "lz4": 3}


@contextmanager
def broker(directory: Path, codec: int) -> Iterator[str]:
    java = ["java", "-Xmx512m", "-cp", f"{builds.kafka_jars()}/*"]
    port, controller = servers.free_port(), servers.free_port()
    properties = directory / "kafka.properties"
    properties.write_text(
        servers.KAFKA_PROPERTIES.format(
            port=port, controller=controller, data=directory / "kafka", partitions=PARTITIONS
        )
        + f"offsets.topic.compression.codec={codec}\n"
        + "transaction.state.log.num.partitions=1\n"
    )
    identity = servers.storage_tool(java, "random-uuid").strip()
    servers.storage_tool(java, "format", "-t", identity, "-c", str(properties))
    with servers.process([*java, "kafka.Kafka", str(properties)], directory / "kafka.out") as started:
        servers.wait_for_kafka(started, f"127.0.0.1:{port}", 4, directory / "kafka.out")
        yield f"127.0.0.1:{port}"


def work(bootstrap: str) -> None:
    for group in ("payments", "billing-ü", "audit"):
        members = [member(bootstrap, group) for _ in range(2)]
        wait_for_assignments(members)
        for offset in range(3):
            for each in members:
                each.commit(
                    offsets=[
                        TopicPartition(one.topic, one.partition, offset * 10, "note-ö" if offset == 2 else "")
                        for one in each.assignment()
                    ],
                    asynchronous=False,
                )
        for each in members:
            each.close()
    for number, commits in enumerate([True, False, True]):
        transaction(bootstrap, f"tx-{number}", commits)
    modern = member(bootstrap, "modern", protocol="consumer")
    wait_for_assignments([modern])
    modern.commit(offsets=[TopicPartition(servers.TOPIC, 1, 77)], asynchronous=False)
    modern.close()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_consumer_groups(["audit"])["audit"].result(timeout=10)


def member(bootstrap: str, group: str, protocol: str = "classic") -> Consumer:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "group.protocol": protocol}
    )
    consumer.subscribe([servers.TOPIC])
    return consumer


def wait_for_assignments(members: list[Consumer]) -> None:
    deadline = time.monotonic() + 30
    while not all(each.assignment() for each in members):
        assert time.monotonic() < deadline
        for each in members:
            each.poll(0.1)


def transaction(bootstrap: str, transactional_id: str, commits: bool) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "streams-app"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        [TopicPartition(servers.TOPIC, partition, 500 + partition) for partition in range(3)],
        consumer.consumer_group_metadata(),
        20,
    )
    if commits:
        producer.commit_transaction(20)
    else:
        producer.abort_transaction(20)
    consumer.close()


def keep(directory: Path, name: str) -> None:
    for partition in range(PARTITIONS):
        segment = directory / "kafka" / f"__consumer_offsets-{partition}" / "00000000000000000000.log"
        target = HERE / f"kafka-4.1.0-{name}-{partition}.log"
        target.write_bytes(segment.read_bytes())
        command = ["java", "-cp", f"{builds.kafka_jars()}/*", "org.apache.kafka.tools.DumpLogSegments"]
        dump = subprocess.run(
            [*command, "--offsets-decoder", "--files", str(segment)], capture_output=True, text=True, check=True
        ).stdout
        kept = [line for line in dump.splitlines() if line.startswith(("| ", "baseOffset"))]
        target.with_suffix(".dump").write_text("\n".join(kept) + "\n")


def main() -> None:
    for name, codec in CODECS.items():
        with tempfile.TemporaryDirectory() as directory:
            with broker(Path(directory), codec) as bootstrap:
                work(bootstrap)
            keep(Path(directory), name)


if __name__ == "__main__":
    main()
