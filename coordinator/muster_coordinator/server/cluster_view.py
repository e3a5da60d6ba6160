"""What this pod knows of the cluster: the metadata image that the operator pushed last (ADR-0002)."""

from __future__ import annotations

import uuid

from muster_coordinator.groups.partitioner import partition_for
from muster_coordinator.podapi.models import Broker, MetadataImage

OFFSETS_TOPIC = "__consumer_offsets"
_TOPIC_ID_NAMESPACE = uuid.UUID("6e7b6f2c-0a4c-5d7e-9b1a-4d7573746572")
_ROUTES_MAX = 200_000  # group ids whose partition is remembered; then the memory starts anew


def topic_id(name: str) -> bytes:
    """The id of a declared topic, the same on every pod: a name-based UUID (Kafka gives random ones)."""
    return uuid.uuid5(_TOPIC_ID_NAMESPACE, name).bytes


class ClusterView:
    """Implements ``groups.config.TopicCatalog``. Empty until the first image arrives."""

    def __init__(self) -> None:
        self.image: MetadataImage | None = None
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[str, int] = {}
        self.topic_names: dict[bytes, str] = {}
        self._leaders: dict[int, int] = {}
        self._any_topic = False
        self._partition_count = 0
        self._routes: dict[str, int] = {}

    def update(self, image: MetadataImage) -> bool:
        """Take ``image`` unless it is older than the current one. Order: (token, version)."""
        current = self.image
        if current is not None and (image.token, image.version) < (current.token, current.version):
            return False
        self.image = image
        self.brokers = {b.node_id: b for b in image.brokers}
        self.topics = {t.name: t.partitions for t in image.topics}
        self.topic_names = {topic_id(t.name): t.name for t in image.topics}
        self._leaders = {p.partition: p.node_id for p in image.leaders if p.node_id in self.brokers}
        self._any_topic = image.any_topic
        if image.offsets_partitions != self._partition_count:
            self._partition_count = image.offsets_partitions
            self._routes.clear()
        return True

    def lacks_any_of(self, topics: dict[str, int]) -> bool:
        """Whether one of these (name -> partitions) is gone or has fewer partitions now."""
        return not self._any_topic and any(self.topics.get(name, 0) < count for name, count in topics.items())

    def has(self, topic: str, partition: int) -> bool:
        """Whether groups may commit offsets of this partition."""
        count = self.topics.get(topic)
        if count is not None:
            return 0 <= partition < count
        if topic == OFFSETS_TOPIC:
            return 0 <= partition < self._partition_count
        return self._any_topic and partition >= 0

    def partition_count_of(self, topic: str) -> int | None:
        """Partitions of a topic as Metadata tells them; None: the topic does not exist. Any other name has one when any
        topic is accepted."""
        count = self.topics.get(topic)
        if count is None and self._any_topic and is_legal_topic_name(topic):
            return 1
        return count

    def name_of(self, identifier: bytes) -> str | None:
        return self.topic_names.get(identifier)

    def remember_topic(self, name: str) -> bytes:
        """The id of ``name``, remembered so that a Fetch by id finds an undeclared topic again."""
        identifier = topic_id(name)
        if len(self.topic_names) < _ROUTES_MAX:
            self.topic_names[identifier] = name
        return identifier

    def partition_of(self, group_id: str) -> int | None:
        """The offsets partition of a group; None before the first image."""
        partition = self._routes.get(group_id)
        if partition is None:
            if not self._partition_count:
                return None
            if len(self._routes) >= _ROUTES_MAX:
                self._routes.clear()
            partition = self._routes[group_id] = partition_for(group_id, self._partition_count)
        return partition

    def leader_of(self, partition: int) -> Broker | None:
        node_id = self._leaders.get(partition)
        return None if node_id is None else self.brokers.get(node_id)


def is_legal_topic_name(name: str) -> bool:
    """Kafka's rule (Topic#validate): 1 to 249 of [a-zA-Z0-9._-], and neither "." nor ".."."""
    return (
        0 < len(name) <= 249
        and name not in (".", "..")
        and all(c.isascii() and (c.isalnum() or c in "._-") for c in name)
    )
