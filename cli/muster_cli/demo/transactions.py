"""An application of the demo that commits what it has consumed in transactions."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Producer, TopicPartition

from muster_cli.demo.consumers import client


class TransactionalApplication:
    """`group`: the group whose offsets it commits. Calls raise KafkaException after `timeout_s`."""

    def __init__(self, bootstrap: str, group: str, topic: str, timeout_s: float) -> None:
        self._topic = topic
        self._timeout_s = timeout_s
        self._consumer = client(bootstrap, group, "application")
        settings = {"bootstrap.servers": bootstrap, "transactional.id": f"{group}-1", "log_level": 0}
        self._producer = Producer({**settings, "metadata.recovery.strategy": "none"})
        self._producer.init_transactions(timeout_s)

    def transaction(self, offsets: Mapping[int, int], *, commit: bool) -> None:
        """Commit these offsets, by partition, and end the transaction so."""
        self._producer.begin_transaction()
        positions = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]
        metadata = self._consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(positions, metadata, self._timeout_s)
        end = self._producer.commit_transaction if commit else self._producer.abort_transaction
        end(self._timeout_s)

    def close(self) -> None:
        self._consumer.close()
