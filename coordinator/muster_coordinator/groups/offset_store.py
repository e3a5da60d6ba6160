"""Committed and pending offsets of one offsets partition (Kafka: the storage half of OffsetMetadataManager).

All of it is durable state: only replay calls what changes it. Offsets are kept apart from the groups, because a
compacted log may hold a group's tombstone before or after those of its offsets.

Committed offsets of groups that nobody changes are packed (`packed`). A change unpacks those of its group; a question
leaves them packed. How they are held is no state: only time and memory depend on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from muster_coordinator.groups.packed import Offset, PackedTopic, decode_offsets, encode_offsets
from muster_coordinator.records.offset_commit import shared_topic_id
from muster_coordinator.records.structs import OffsetCommitValue

Stored = tuple[int, OffsetCommitValue]
"""(offset of the record in the log, value). The record's offset decides between a transactional and a plain commit."""

GroupOffsets = dict[str, dict[int, Stored]]
"""topic -> partition -> stored offset. Holds no empty topics."""

SMALL_GROUP_OFFSETS = 4
"""A group with more offsets is packed only when it has not changed for long: packing and unpacking take longer than all
else that a commit does, and save less. Kafka takes 560 bytes for each offset of a large group, unpacked ones 260."""
LONG_RECORDS = 100_000
"""The number of records in the log that count as long: more than a partition with a million offsets gets while its
groups commit a few times."""
PACKED_OFFSETS_MAX = 500
"""A group with more offsets stays unpacked: unpacking takes less than half a millisecond."""
_LOOKED_AT = 2
"""Groups that a look takes from the old end of the clock: with fewer than two, more and more would stay unpacked."""


class Unpacked:
    """Offsets of a group that was changed lately: by the record at `changed_at`; that was `seen_at` when `OffsetStore`
    last looked. `key_prefixes`: topic -> OffsetCommitKey up to the partition, of topics that it has committed again."""

    __slots__ = ("changed_at", "group_id", "key_prefixes", "seen_at", "topics")

    def __init__(self, group_id: str, topics: GroupOffsets, changed_at: int) -> None:
        self.group_id = group_id
        self.topics = topics
        self.changed_at = changed_at
        self.seen_at = changed_at
        self.key_prefixes: dict[str, bytes] = {}

    @property
    def count(self) -> int:
        return sum([len(of_topic) for of_topic in self.topics.values()])


def _pack_one(partition: int, stored: Stored) -> Offset:
    at, value = stored
    return (
        partition,
        at,
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp_ms,
        value.expire_timestamp_ms,
    )


def pack(topics: GroupOffsets) -> list[PackedTopic]:
    packed: list[PackedTopic] = []
    for topic, of_topic in topics.items():
        by_id: dict[bytes, list[Offset]] = {}
        for partition, stored in of_topic.items():
            offset = _pack_one(partition, stored)
            topic_id = stored[1].topic_id
            of_id = by_id.get(topic_id)
            if of_id is None:
                by_id[topic_id] = [offset]
            else:
                of_id.append(offset)
        for topic_id, offsets in by_id.items():
            packed.append((topic, topic_id, offsets))
    return packed


def unpack(packed: list[PackedTopic]) -> GroupOffsets:
    topics: GroupOffsets = {}
    for topic, topic_id, offsets in packed:
        shared_id = shared_topic_id(topic_id)
        of_topic = topics.get(topic)
        if of_topic is None:
            of_topic = topics[topic] = {}
        for partition, at, offset, leader_epoch, metadata, commit_ms, expire_ms in offsets:
            of_topic[partition] = (
                at,
                OffsetCommitValue(offset, leader_epoch, metadata, commit_ms, expire_ms, shared_id),
            )
    return topics


def _remove(topics: GroupOffsets, topic: str, partition: int) -> bool:
    of_topic = topics.get(topic)
    if of_topic is None or of_topic.pop(partition, None) is None:
        return False
    if not of_topic:
        del topics[topic]
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
        "unpacked",
        "unpacked_min",
    )

    def __init__(self, producers_max: int, unpacked_min: int) -> None:
        """`unpacked_min`: groups that are unpacked before any is packed again."""
        self.producers_max = producers_max
        self.unpacked_min = unpacked_min
        self.committed: dict[str, Unpacked | bytes] = {}  # no group without offsets
        self.unpacked: deque[Unpacked] = deque()  # and some whose offsets have all been removed
        self.count = 0
        self.pending: dict[int, dict[str, GroupOffsets]] = {}  # producer id -> group -> offsets
        self.open_transactions: dict[str, set[int]] = {}  # group -> producer ids with pending offsets
        self.producer_epochs: dict[int, int] = {}  # highest epoch of a producer; last seen comes last
        self.coordinator_epochs: dict[int, int] = {}  # highest epoch of a producer's transaction coordinator
        self.marker_offsets: dict[int, int] = {}  # of a producer's last marker; not in snapshots, which come before it

    # -- changes, by replay only ---------------------------------------------------------------------------------------

    def put(self, group_id: str, topic: str, partition: int, stored: Stored) -> None:
        of_group = self.committed.get(group_id)
        if of_group is None and len(self.unpacked) >= self.unpacked_min:  # often nobody changes it any more
            self.committed[group_id] = encode_offsets([(topic, stored[1].topic_id, [_pack_one(partition, stored)])])
            self.count += 1
            return
        of_topic = self._of_topic(group_id, of_group, topic, stored[0])
        if partition not in of_topic:
            self.count += 1
        of_topic[partition] = stored

    def put_all(self, group_id: str, topic: str, stored: Iterable[tuple[int, Stored]], at: int) -> None:
        """`stored`: (partition, what is stored of it), one or more; the last one of a partition stays. `at`: the offset
        of the first record in the log."""
        of_topic = self._of_topic(group_id, self.committed.get(group_id), topic, at)
        before = len(of_topic)
        of_topic.update(stored)
        self.count += len(of_topic) - before

    def _of_topic(self, group_id: str, of_group: Unpacked | bytes | None, topic: str, at: int) -> dict[int, Stored]:
        topics = self._unpacked(group_id, of_group, at).topics
        of_topic = topics.get(topic)
        if of_topic is None:
            of_topic = topics[topic] = {}
        return of_topic

    def _unpacked(self, group_id: str, of_group: Unpacked | bytes | None, at: int) -> Unpacked:
        """Returns the offsets of a group, to be changed by the record at `at`. `of_group`: as they are held; None if
        there are none yet."""
        if isinstance(of_group, Unpacked):
            of_group.changed_at = at
            return of_group
        self._pack_others(at)
        topics: GroupOffsets = {} if of_group is None else unpack(decode_offsets(of_group))
        unpacked = self.committed[group_id] = Unpacked(group_id, topics, at)
        self.unpacked.append(unpacked)
        return unpacked

    def _pack_others(self, now_at: int) -> None:
        """Pack what was not changed since the last look at it, or for long: a clock that turns when a group is
        unpacked. `now_at`: the offset that the log has reached."""
        unpacked = self.unpacked
        for _ in range(_LOOKED_AT):
            if len(unpacked) < self.unpacked_min:
                return
            of_group = unpacked.popleft()
            if self.committed.get(of_group.group_id) is not of_group:
                continue
            count = of_group.count
            if count > PACKED_OFFSETS_MAX:
                continue
            patience = 0 if count <= SMALL_GROUP_OFFSETS else LONG_RECORDS
            if of_group.changed_at > of_group.seen_at or now_at - of_group.changed_at < patience:
                of_group.seen_at = of_group.changed_at
                unpacked.append(of_group)
            else:
                self.committed[of_group.group_id] = encode_offsets(pack(of_group.topics))

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

    def remove(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """A tombstone at `offset`: the committed offset goes, and so does every pending one of the partition."""
        of_group = self.committed.get(group_id)
        if of_group is not None:
            topics = self._unpacked(group_id, of_group, offset).topics
            if _remove(topics, topic, partition):
                self.count -= 1
                if not topics:
                    del self.committed[group_id]
        for producer_id in tuple(self.open_transactions.get(group_id, ())):
            of_producer = self.pending[producer_id]
            if _remove(of_producer[group_id], topic, partition):
                if not of_producer[group_id]:
                    del of_producer[group_id]
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
        committed = self.of_group(group_id)  # unpacked once
        for topic, of_topic in of_group.items():
            for partition, stored in of_topic.items():
                existing = committed.get(topic, {}).get(partition)
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

    def of_group(self, group_id: str) -> GroupOffsets:
        """The committed offsets of a group, which the caller must not change; empty if it has none."""
        of_group = self.committed.get(group_id)
        if of_group is None:
            return {}
        return of_group.topics if isinstance(of_group, Unpacked) else unpack(decode_offsets(of_group))

    def packed(self, group_id: str) -> list[PackedTopic]:
        """The committed offsets of a group, which has some."""
        of_group = self.committed[group_id]
        return pack(of_group.topics) if isinstance(of_group, Unpacked) else decode_offsets(of_group)

    def restore(self, group_id: str, count: int, packed: bytes) -> None:
        """Take `count` offsets from a snapshot, which may have others of the group in other parts."""
        if group_id not in self.committed:
            self.committed[group_id] = packed
            self.count += count
            return
        for topic, of_topic in unpack(decode_offsets(packed)).items():
            self.put_all(group_id, topic, of_topic.items(), 0)

    def get(self, group_id: str, topic: str, partition: int) -> Stored | None:
        return self.of_group(group_id).get(topic, {}).get(partition)

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """True if an open transaction has an offset for this partition."""
        return any(
            partition in self.pending[producer_id][group_id].get(topic, ())
            for producer_id in self.open_transactions.get(group_id, ())
        )

    def pending_topic_ids(self, group_id: str, topic: str, partition: int) -> set[bytes]:
        """The topic ids of the offsets of this partition in open transactions."""
        pending = [
            self.pending[producer_id][group_id].get(topic, {}).get(partition)
            for producer_id in self.open_transactions.get(group_id, ())
        ]
        return {each[1].topic_id for each in pending if each is not None}

    def pending_partitions(self, group_id: str) -> Iterator[tuple[str, int]]:
        """(topic, partition) with an offset in an open transaction; twice if two transactions have one."""
        for producer_id in self.open_transactions.get(group_id, ()):
            for topic, of_topic in self.pending[producer_id][group_id].items():
                for partition in of_topic:
                    yield topic, partition

    def has_open_transactions(self, group_id: str) -> bool:
        return group_id in self.open_transactions
