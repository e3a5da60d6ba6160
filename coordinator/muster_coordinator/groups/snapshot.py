"""Encodes the durable state of a partition in parts, which a checkpoint stores, and restores it from them.

Parts are small, so that encoding or restoring one takes well below a millisecond. Their order does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

import msgspec

from muster_coordinator.groups.consumer.tables import configs_record
from muster_coordinator.groups.offsets import pack, unpack
from muster_coordinator.groups.packed import Offset
from muster_coordinator.groups.tables import GroupTables
from muster_coordinator.records.consumer_group import decode_consumer_group_record
from muster_coordinator.records.group_metadata import GroupMetadataValue

SNAPSHOT_VERSION = 5
"""Raise it whenever a part's shape or meaning changes: older checkpoints are then ignored."""


class _StatePart(msgspec.Struct, array_like=True, gc=False):
    """One part of the durable state. Most fields of a part are empty.

    `groups`: (group id, time of its state in ms, its last record or None for a group that only its offsets imply).
    `consumers`: keys and values of records of groups of the consumer protocol, and of configs.
    `committed`: (group id, topic, topic id, offsets). `pending`: (producer id, group id, topic, topic id, offsets).
    `producer_epochs`, `coordinator_epochs`: (producer id, epoch), the one seen last at the end.
    """

    groups: list[tuple[str, int, GroupMetadataValue | None]] = []
    committed: list[tuple[str, str, bytes, list[Offset]]] = []
    pending: list[tuple[int, str, str, bytes, list[Offset]]] = []
    consumers: list[tuple[bytes, bytes]] = []
    producer_epochs: list[tuple[int, int]] = []
    coordinator_epochs: list[tuple[int, int]] = []


_encode = msgspec.msgpack.Encoder().encode
decode_part = msgspec.msgpack.Decoder(_StatePart).decode


def snapshot_parts(state: GroupTables, size: int) -> Iterator[bytes]:
    """Returns all of the durable state, encoded, with about `size` entries in each part. The state must not change
    until the last part is taken."""
    return map(_encode, _parts(state, size))


def _parts(state: GroupTables, size: int) -> Iterator[_StatePart]:
    groups = ((g.group_id, g.state_timestamp_ms, g.durable) for g in state.groups.values() if g.logged)
    while taken := list(islice(groups, size)):
        yield _StatePart(groups=taken)
    own = state.consumers.own_configs
    of_groups = chain.from_iterable(each.records() for each in state.consumers.groups.values())
    of_configs = (configs_record(group_id, configs) for group_id, configs in own.items())
    consumers = ((key, value or b"") for key, value, _ in chain(of_groups, of_configs))
    while records := list(islice(consumers, size)):
        yield _StatePart(consumers=records)
    offsets = state.offsets
    committed: list[tuple[str, str, bytes, list[Offset]]] = []
    entries = 0
    for group_id in offsets.committed:
        for topic, topic_id, packed in offsets.packed(group_id):
            for start in range(0, len(packed), size):
                committed.append((group_id, topic, topic_id, packed[start : start + size]))
                entries += len(committed[-1][3])
                if entries >= size:
                    yield _StatePart(committed=committed)
                    committed, entries = [], 0
    if committed:
        yield _StatePart(committed=committed)
    for producer_id, of_producer in offsets.pending.items():
        for group_id, of_group in of_producer.items():
            yield _StatePart(
                pending=[(producer_id, group_id, topic, topic_id, packed) for topic, topic_id, packed in pack(of_group)]
            )
    producers = iter(offsets.producer_epochs.items())
    while epochs := list(islice(producers, size)):
        coordinators = [(p, offsets.coordinator_epochs[p]) for p, _ in epochs if p in offsets.coordinator_epochs]
        yield _StatePart(producer_epochs=epochs, coordinator_epochs=coordinators)


def restore_part(state: GroupTables, data: bytes) -> None:
    """Put a part into a state that was empty before the first one. Raises msgspec.MsgspecError."""
    part = decode_part(data)
    for group_id, timestamp_ms, value in part.groups:
        group = state.add_group(group_id, timestamp_ms)
        group.logged = True
        if value is not None:
            group.restore(value)
    for key, record_value in part.consumers:
        state.consumers.replay(decode_consumer_group_record(key, record_value))
    offsets = state.offsets
    for group_id, topic, topic_id, packed in part.committed:
        offsets.put_all(group_id, topic, unpack([(topic, topic_id, packed)])[topic].items())
    for producer_id, group_id, topic, topic_id, packed in part.pending:
        for partition, stored in unpack([(topic, topic_id, packed)])[topic].items():
            offsets.restore_pending(producer_id, group_id, topic, partition, stored)
    offsets.producer_epochs.update(part.producer_epochs)
    offsets.coordinator_epochs.update(part.coordinator_epochs)
