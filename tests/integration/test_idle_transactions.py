"""A producer of librdkafka whose group's pod dies between two transactions, against `muster local up`."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.support.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

TRANSACTIONS = 4
CALL_S = 30.0
LONGEST_S = 90.0
"""librdkafka waits past its own time-outs where it waits for good."""


def kill_the_leader_of(partition: int, cluster: LocalCluster) -> None:
    status = cluster.status()
    (leader,) = [each["leader"] for each in status["partitions"] if each["partition"] == partition]
    (pid,) = [each["pid"] for each in status["pods"] if each["name"] == leader]
    os.kill(pid, signal.SIGKILL)


def committed(consumer: Consumer, partition: TopicPartition) -> int:
    """The offset. A client that asked for its coordinator in the moment in which that died may be told of it once more,
    and come back to it when it has restarted: librdkafka raises what a pod without leadership says then, from Kafka's
    own brokers too (docs/measurements.md, "After the death of a coordinator"), and has looked again for the next call.
    """
    deadline = time.monotonic() + CALL_S
    while True:
        try:
            (found,) = consumer.committed([partition], CALL_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_COORDINATOR or time.monotonic() > deadline:
                raise
        else:
            return int(found.offset)


def test_next_transaction_finds_the_new_coordinator_of_a_group_whose_pod_was_killed(tmp_path: Path) -> None:
    """Clients are told of the pod while it is down. librdkafka waits for good for a coordinator that Metadata does not
    name any more, and for one that it has dropped to bootstrap anew, which the setting here prevents.
    """
    small = ("--partitions", "1", "--transaction-partitions", "1", "--any-topic")
    with LocalCluster(tmp_path / "data", *small) as cluster:
        common = {"bootstrap.servers": cluster.wait_ready(), "metadata.recovery.strategy": "none", "log_level": 0}
        producer = Producer(common | {"transactional.id": "tx"})
        consumer = Consumer(common | {"group.id": "g", "enable.auto.commit": False})
        done: list[int] = []

        def transaction(offset: int) -> None:
            producer.begin_transaction()
            position = [TopicPartition("t", 0, offset)]
            producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), CALL_S)
            producer.commit_transaction(CALL_S)
            done.append(offset)

        producer.init_transactions(CALL_S)
        for offset in range(TRANSACTIONS):
            waits = threading.Thread(target=transaction, args=(offset,), daemon=True)
            waits.start()
            waits.join(LONGEST_S)
            assert done == [*range(offset + 1)], "the producer waits for good"
            kill_the_leader_of(0, cluster)
        assert committed(consumer, TopicPartition("t", 0)) == TRANSACTIONS - 1
        consumer.close()
