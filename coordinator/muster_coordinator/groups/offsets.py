"""Committed and pending offsets of one offsets partition (Kafka: the storage half of OffsetMetadataManager).

All of it is durable state: only replay calls what changes it. Offsets are kept apart from the groups, because a
compacted log may hold a group's tombstone before or after those of its offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from muster_coordinator.records.structs import OffsetCommitValue

Stored = tuple[int, OffsetCommitValue]
"""(offset of the record in the log, value). The record's offset decides between a transactional and a plain commit."""

GroupOffsets = dict[str, dict[int, Stored]]
"""topic -> partition -> stored offset. Holds no empty topics."""


def _remove(offsets: dict[str, GroupOffsets], group_id: str, topic: str, partition: int) -> bool:
    of_group = offsets.get(group_id)
    of_topic = of_group.get(topic) if of_group is not None else None
    if of_group is None or of_topic is None or of_topic.pop(partition, None) is None:
        return False
    if not of_topic:
        del of_group[topic]
        if not of_group:
            del offsets[group_id]
    return True


class OffsetStore:
    __slots__ = (
        "committed",
        "coordinator_epochs",
        "count",
        "marker_offsets",
        "open_transactions",
        "pending",
        "producer_epochs",
        "producers_max",
    )

    def __init__(self, producers_max: int) -> None:
        self.producers_max = producers_max
        self.committed: dict[str, GroupOffsets] = {}
        self.count = 0
        self.pending: dict[int, dict[str, GroupOffsets]] = {}  # producer id -> group -> offsets
        self.open_transactions: dict[str, set[int]] = {}  # group -> producer ids with pending offsets
        self.producer_epochs: dict[int, int] = {}  # highest epoch of a producer; last seen comes last
        self.coordinator_epochs: dict[int, int] = {}  # highest epoch of a producer's transaction coordinator
        self.marker_offsets: dict[int, int] = {}  # of a producer's last marker; not in snapshots, which come before it

    # -- changes, by replay only ---------------------------------------------------------------------------------------

    def put(self, group_id: str, topic: str, partition: int, stored: Stored) -> None:
        of_topic = self._of_topic(group_id, topic)
        if partition not in of_topic:
            self.count += 1
        of_topic[partition] = stored

    def put_all(self, group_id: str, topic: str, stored: Iterable[tuple[int, Stored]]) -> None:
        """`stored`: (partition, what is stored of it), one or more; the last one of a partition stays."""
        of_topic = self._of_topic(group_id, topic)
        before = len(of_topic)
        of_topic.update(stored)
        self.count += len(of_topic) - before

    def _of_topic(self, group_id: str, topic: str) -> dict[int, Stored]:
        of_group = self.committed.get(group_id)
        if of_group is None:
            of_group = self.committed[group_id] = {}
        of_topic = of_group.get(topic)
        if of_topic is None:
            of_topic = of_group[topic] = {}
        return of_topic

    def put_pending(
        self, producer_id: int, producer_epoch: int, group_id: str, topic: str, partition: int, stored: Stored
    ) -> None:
        self.restore_pending(producer_id, group_id, topic, partition, stored)
        self._see_producer(producer_id, producer_epoch)

    def restore_pending(self, producer_id: int, group_id: str, topic: str, partition: int, stored: Stored) -> None:
        """Take from a snapshot, which has the producer's epoch separately."""
        of_group = self.pending.setdefault(producer_id, {}).setdefault(group_id, {})
        of_group.setdefault(topic, {})[partition] = stored
        self.open_transactions.setdefault(group_id, set()).add(producer_id)

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """A tombstone: the committed offset goes, and so does every pending one of the partition."""
        if _remove(self.committed, group_id, topic, partition):
            self.count -= 1
        for producer_id in tuple(self.open_transactions.get(group_id, ())):
            if _remove(self.pending[producer_id], group_id, topic, partition):
                self._forget_settled(producer_id, group_id)

    def end_transaction(
        self, producer_id: int, producer_epoch: int, committed: bool, coordinator_epoch: int, offset: int
    ) -> None:
        """A marker at `offset`: pending offsets of the producer become committed, unless a later record overtook
        them, or vanish."""
        self._see_producer(producer_id, producer_epoch)
        self.coordinator_epochs[producer_id] = max(coordinator_epoch, self.coordinator_epochs.get(producer_id, -1))
        self.marker_offsets[producer_id] = offset
        for group_id, of_group in self.pending.pop(producer_id, {}).items():
            producers = self.open_transactions[group_id]
            producers.discard(producer_id)
            if not producers:
                del self.open_transactions[group_id]
            if committed:
                self._materialise(group_id, of_group)

    def _materialise(self, group_id: str, of_group: GroupOffsets) -> None:
        for topic, of_topic in of_group.items():
            for partition, stored in of_topic.items():
                existing = self.get(group_id, topic, partition)
                if existing is None or stored[0] > existing[0]:
                    self.put(group_id, topic, partition, stored)

    def _forget_settled(self, producer_id: int, group_id: str) -> None:
        if group_id not in self.pending[producer_id]:
            producers = self.open_transactions[group_id]
            producers.discard(producer_id)
            if not producers:
                del self.open_transactions[group_id]
        if not self.pending[producer_id]:
            del self.pending[producer_id]

    def _see_producer(self, producer_id: int, producer_epoch: int) -> None:
        """Bounded by forgetting who was not seen for longest: the log alone decides, so that all replicas agree."""
        epochs = self.producer_epochs
        epochs[producer_id] = max(producer_epoch, epochs.pop(producer_id, -1))
        if len(epochs) > self.producers_max:
            forgotten = next(iter(epochs))
            del epochs[forgotten]
            self.coordinator_epochs.pop(forgotten, None)
            self.marker_offsets.pop(forgotten, None)

    # -- questions -----------------------------------------------------------------------------------------------------

    def get(self, group_id: str, topic: str, partition: int) -> Stored | None:
        return self.committed.get(group_id, {}).get(topic, {}).get(partition)

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has an offset for this partition."""
        return any(
            partition in self.pending[producer_id][group_id].get(topic, ())
            for producer_id in self.open_transactions.get(group_id, ())
        )

    def topic_ids(self, group_id: str, topic: str, partition: int) -> set[bytes]:
        """The topic ids of the committed offset of this partition, and of those in open transactions."""
        pending = [
            self.pending[producer_id][group_id].get(topic, {}).get(partition)
            for producer_id in self.open_transactions.get(group_id, ())
        ]
        stored = [self.get(group_id, topic, partition), *pending]
        return {each[1].topic_id for each in stored if each is not None}

    def pending_partitions(self, group_id: str) -> Iterator[tuple[str, int]]:
        """(topic, partition) with an offset in an open transaction; twice if two transactions have one."""
        for producer_id in self.open_transactions.get(group_id, ()):
            for topic, of_topic in self.pending[producer_id][group_id].items():
                for partition in of_topic:
                    yield topic, partition

    def has_open_transactions(self, group_id: str) -> bool:
        return group_id in self.open_transactions
