"""This pod's knowledge of the cluster: the metadata image that the operator pushed last (ADR 2)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Protocol

import msgspec

from muster_coordinator.partition_numbers import INTERNAL_TOPICS, OFFSETS, TRANSACTIONS
from muster_coordinator.podapi.image import Broker, MetadataImage
from muster_coordinator.records.partitioner import partition_for
from muster_coordinator.records.structs import NO_TOPIC_ID

_TOPIC_ID_NAMESPACE = uuid.UUID("6e7b6f2c-0a4c-5d7e-9b1a-4d7573746572")
_ROUTES_MAX = 200_000  # group ids whose partition is remembered; then the memory starts anew
_ROUTED_LENGTH_MAX = 128  # longer group ids are not remembered: a client may make up any, of 32 KB


def topic_id(name: str) -> bytes:
    """The id of a declared topic, the same on every pod: a name-based UUID (Kafka gives random ones)."""
    return uuid.uuid5(_TOPIC_ID_NAMESPACE, name).bytes


class LeaderKnowledge(Protocol):
    """Replication's knowledge of leaders: a pod with a replica knows a new leader before the operator has told it."""

    def promised(self, partition: int) -> tuple[int, str] | None:
        """Epoch that the replica here promised and the pod it promised it to, "" if that does not lead as far as this
        pod can see; None: no replica is here."""
        ...

    def is_lost(self, pod: str) -> bool:
        """This pod should hear that one, and does not."""
        ...


class ClusterView:
    """Implements `groups.topics.TopicCatalog` and `transactions.ports.MarkedTopics`. Empty until the first image
    arrives.

    `pod`: name of this pod. `recalled`: the image is one that an earlier run got. `offsets_partitions`,
    `transaction_partitions`: our numbers of the partitions of the two topics. `has_transactions`: whether the cluster
    has a transaction coordinator, by the last image, also of an earlier run. Before the first one it may have one: a
    client that finds no EndTxn announced gives up for good, and one that finds no coordinator yet asks again.
    """

    def __init__(self, pod: str = "", knowledge: LeaderKnowledge | None = None) -> None:
        self.image: MetadataImage | None = None
        self.recalled = False
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[str, int] = {}
        self.topics_version = 0  # goes up when `topics` changes
        self._topic_ids: dict[str, bytes] = {}
        self._topic_names: dict[bytes, str] = {}
        self.pod = pod
        self._knowledge = knowledge
        self._leaders: dict[int, tuple[int, int]] = {}  # partition -> (epoch, node id)
        self._by_pod: dict[str, Broker] = {}
        self._any_topic = False
        self.offsets_partitions = range(0)
        self.transaction_partitions = range(0)
        self.has_transactions = True
        self._current: tuple[range, ...] = ()
        self._routes: dict[str, int] = {}
        self._when_known: list[Callable[[], None]] = []

    def when_known(self, then: Callable[[], None]) -> None:
        """Call `then` once, with the first image, before anything else is asked of it."""
        self._when_known.append(then)

    def update(self, image: MetadataImage) -> bool:
        """Take `image` unless it is older than the current one. Order: (token, version)."""
        current = self.image
        if (
            current is not None
            and not self.recalled
            and (image.token, image.version) < (current.token, current.version)
        ):
            return False
        self.recalled = False
        self._take(image)
        return True

    def recall(self, image: MetadataImage) -> None:
        """Go on with what an earlier run knew. Who leads is not part of that: only replication knows it now. The next
        image replaces it, whatever its version."""
        self._take(msgspec.structs.replace(image, leaders=()))
        self.recalled = True

    def expect(self, image: MetadataImage) -> None:
        """`image` is the last one of an earlier run. It says which pods and coordinators there are, and nothing else
        yet. librdkafka forgets pods that Metadata does not name, for good where it remembers a coordinator.
        """
        self.has_transactions = image.transaction_partitions > 0
        self._take_brokers(image)

    def _take(self, image: MetadataImage) -> None:
        self.image = image
        self.has_transactions = image.transaction_partitions > 0
        self._take_brokers(image)
        topics = {t.name: t.partitions for t in image.topics}
        if topics != self.topics:
            self.topics = topics
            self.topics_version += 1
        self._topic_ids = {name: topic_id(name) for name in (*self.topics, *INTERNAL_TOPICS)}
        self._topic_names = {identifier: name for name, identifier in self._topic_ids.items()}
        self._leaders = {p.partition: (p.epoch, p.node_id) for p in image.leaders if p.node_id in self.brokers}
        self._any_topic = image.any_topic
        first = image.transaction_base
        transactions = range(first, first + image.transaction_partitions)
        self.transaction_partitions = transactions if self.has_transactions else range(0)
        partitions = range(image.offsets_base, image.offsets_base + image.offsets_partitions)
        self._current = (partitions, transactions)
        if partitions != self.offsets_partitions:
            self.offsets_partitions = partitions
            self._routes.clear()
        waiting, self._when_known = self._when_known, []
        for then in waiting:
            then()

    def _take_brokers(self, image: MetadataImage) -> None:
        self.brokers = {b.node_id: b for b in image.brokers}
        self._by_pod = {b.pod: b for b in image.brokers}

    def is_another_server(self, cluster_id: str | None, node_id: int) -> bool:
        """True if a client that means this node of this cluster has reached another one. None: it does not say. Before
        the first image, and while the image lacks this pod, nothing is held against it."""
        me = self._by_pod.get(self.pod)
        if cluster_id is None or self.image is None or me is None:
            return False
        return cluster_id != self.image.cluster_id or node_id != me.node_id

    def lacks_any_of(self, topics: dict[str, int]) -> bool:
        """True if one of these (name -> partitions) is gone or has fewer partitions now."""
        return not self._any_topic and any(self.topics.get(name, 0) < count for name, count in topics.items())

    def has(self, topic: str, partition: int) -> bool:
        """True if groups may commit offsets of this partition."""
        count = self.topics.get(topic)
        if count is not None:
            return 0 <= partition < count
        if topic == OFFSETS.name:
            return 0 <= partition < len(self.offsets_partitions)
        return self._any_topic and partition >= 0

    def partition_count_of(self, topic: str) -> int | None:
        """Partitions of a topic as Metadata tells them; None: the topic does not exist. Any other name has one when any
        topic is accepted."""
        count = self.topics.get(topic)
        if count is None and self._any_topic and is_legal_topic_name(topic):
            return 1
        return count

    def id_of(self, topic: str) -> bytes:
        """The id of a declared topic. NO_TOPIC_ID for any other: clients then name it, which every pod understands,
        whereas an id says nothing to a pod that has not heard the name."""
        return self._topic_ids.get(topic, NO_TOPIC_ID)

    def name_of(self, identifier: bytes) -> str | None:
        """The topic that `id_of` gives this id."""
        return self._topic_names.get(identifier)

    def partition_of(self, group_id: str) -> int | None:
        """The offsets partition of a group; None before the first image."""
        partition = self._routes.get(group_id)
        if partition is None:
            if not self.offsets_partitions:
                return None
            partition = self.own_index(partition_for(group_id, len(self.offsets_partitions)))
            if len(group_id) <= _ROUTED_LENGTH_MAX:
                if len(self._routes) >= _ROUTES_MAX:
                    self._routes.clear()
                self._routes[group_id] = partition
        return partition

    def partition_of_transactional_id(self, transactional_id: str) -> int | None:
        """The number of the transaction partition of an id; None: the cluster has none, as far as is known."""
        here = self.transaction_partitions
        return here[partition_for(transactional_id, len(here))] if here else None

    def takes_markers(self, topic: str) -> bool:
        """True if partitions of the topic can be part of transactions: those with the offsets of groups."""
        return topic == OFFSETS.name

    @property
    def holds_transactions(self) -> bool:
        """No transaction may begin now: the partitions that it would name are about to be others."""
        return self.image is not None and self.image.holds_transactions

    def partition_of_group(self, group_id: str) -> tuple[str, int] | None:
        """Topic and partition with the group's offsets, by the number that clients know; None before the first
        image."""
        number = self.partition_of(group_id)
        return None if number is None else (OFFSETS.name, number - self.offsets_partitions.start)

    def partitions_of(self, internal_topic: str) -> range:
        """Our numbers of the partitions of an internal topic; empty while they are not known, or if there are none."""
        numbers = {OFFSETS.name: self.offsets_partitions, TRANSACTIONS.name: self.transaction_partitions}
        return numbers[internal_topic]

    @property
    def current_partitions(self) -> tuple[int, ...]:
        """Our numbers of the partitions of both topics as they are now."""
        return (*self.offsets_partitions, *self.transaction_partitions)

    def is_current(self, number: int) -> bool:
        """True if the partition is of the present layout: no re-shard has replaced it, and none is still filling it."""
        return any(number in numbers for numbers in self._current)

    def own_index(self, number: int) -> int:
        """Returns our index of the offsets partition `number` of clients: after a re-shard ours begin higher."""
        return self.offsets_partitions.start + number

    def leader_of(self, partition: int) -> Broker | None:
        """Returns the leader of `partition` by the image, or by the promise of the replica here if that is newer. In
        the same epoch the image knows better, except about this pod: who called for promises may never have led, and
        nobody corrects a replica of no set. None: there is no leader, or this pod does not hear it, so a client that is
        sent there would wait in vain."""
        return self.led_by(partition)[1]

    def led_by(self, partition: int) -> tuple[int, Broker | None]:
        """(epoch, leader) like `leader_of`; the epoch is -1 if none is known."""
        epoch, node_id = self._leaders.get(partition, (-1, -1))
        leader = self.brokers.get(node_id)
        if self._knowledge is None:
            return epoch, leader
        promise = self._knowledge.promised(partition)
        if promise is not None and promise[0] >= epoch:
            if promise[1] and (promise[0] > epoch or leader is None or self.pod in (promise[1], leader.pod)):
                return promise[0], self._by_pod.get(promise[1])
            if leader is not None and leader.pod == self.pod:
                return epoch, None  # this pod led, and does not any more
        return epoch, None if leader is not None and self._knowledge.is_lost(leader.pod) else leader


def is_legal_topic_name(name: str) -> bool:
    """Kafka's rule (Topic#validate): 1 to 249 of [a-zA-Z0-9._-], and neither "." nor ".."."""
    return (
        0 < len(name) <= 249
        and name not in (".", "..")
        and all(c.isascii() and (c.isalnum() or c in "._-") for c in name)
    )
