"""Encodes the durable state of a partition in parts, which a checkpoint stores, and restores it from them.

Parts are small, so that encoding or restoring one takes well below a millisecond. Their order does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

import msgspec

from muster_coordinator.groups.classic.tables import GroupTables, pack_group
from muster_coordinator.groups.consumer.tables import configs_record
from muster_coordinator.groups.offset_store import pack, unpack
from muster_coordinator.groups.packed import GROUP_BEGINS, Offset, decode_group, decode_offsets, encode_offsets
from muster_coordinator.records.consumer_group_codec import decode_consumer_group_record

SNAPSHOT_VERSION = 6
"""Raise it whenever a part's shape or meaning changes: older checkpoints are then ignored."""

_NIL = msgspec.Raw(b"\xc0")

_Group = tuple[str, msgspec.Raw, int, msgspec.Raw]


class _StatePart(msgspec.Struct, array_like=True, gc=False):
    """One part of the durable state. Most fields of a part are empty.

    `groups`: (group id, what is known of the group, number of offsets, committed offsets), both packed as the state
    holds them, or nil: a group with many offsets comes several times.
    `consumers`: keys and values of records of groups of the consumer protocol, and of configs.
    `pending`: (producer id, group id, topic, topic id, offsets).
    `producer_epochs`, `coordinator_epochs`: (producer id, epoch), the one seen last at the end.
    """

    groups: list[_Group] = []
    pending: list[tuple[int, str, str, bytes, list[Offset]]] = []
    consumers: list[tuple[bytes, bytes]] = []
    producer_epochs: list[tuple[int, int]] = []
    coordinator_epochs: list[tuple[int, int]] = []


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_StatePart).decode


def snapshot_parts(state: GroupTables, size: int) -> Iterator[bytes]:
    """Returns all of the durable state, encoded, with about `size` entries in each part. The state must not change
    until the last part is taken."""
    return map(_encode, _parts(state, size))


def _parts(state: GroupTables, size: int) -> Iterator[_StatePart]:
    groups: list[_Group] = []
    entries = 0
    for each in _groups(state, size):
        groups.append(each)
        entries += max(each[2], 1)
        if entries >= size:
            yield _StatePart(groups=groups)
            groups, entries = [], 0
    if groups:
        yield _StatePart(groups=groups)
    own = state.consumers.own_configs
    of_groups = chain.from_iterable(each.records() for each in state.consumers.groups.values())
    of_configs = (configs_record(group_id, configs) for group_id, configs in own.items())
    consumers = ((key, value or b"") for key, value, _ in chain(of_groups, of_configs))
    while records := list(islice(consumers, size)):
        yield _StatePart(consumers=records)
    offsets = state.offsets
    for producer_id, of_producer in offsets.pending.items():
        for group_id, of_group in of_producer.items():
            yield _StatePart(
                pending=[(producer_id, group_id, topic, topic_id, packed) for topic, topic_id, packed in pack(of_group)]
            )
    producers = iter(offsets.producer_epochs.items())
    while epochs := list(islice(producers, size)):
        coordinators = [(p, offsets.coordinator_epochs[p]) for p, _ in epochs if p in offsets.coordinator_epochs]
        yield _StatePart(producer_epochs=epochs, coordinator_epochs=coordinators)


def _groups(state: GroupTables, size: int) -> Iterator[_Group]:
    committed = state.offsets.committed
    for group_id, group in state.groups.items():
        if isinstance(group, bytes):
            packed = msgspec.Raw(group)
        elif group.logged:
            packed = msgspec.Raw(pack_group(group.durable, group.state_timestamp_ms))
        else:
            packed = _NIL  # no record mentions it
        if group_id in committed:
            for count, offsets in _committed(state, group_id, size):
                yield group_id, packed, count, offsets
                packed = _NIL
        elif packed != _NIL:
            yield group_id, packed, 0, _NIL
    for group_id in committed:
        if group_id not in state.groups:  # a group of consumers, or one whose record a compacted log has no more
            for count, offsets in _committed(state, group_id, size):
                yield group_id, _NIL, count, offsets


def _committed(state: GroupTables, group_id: str, size: int) -> Iterator[tuple[int, msgspec.Raw]]:
    topics = state.offsets.packed(group_id)
    count = sum(len(offsets) for _, _, offsets in topics)
    if count <= size:
        yield count, msgspec.Raw(encode_offsets(topics))
        return
    for topic, topic_id, offsets in topics:
        for start in range(0, len(offsets), size):
            taken = offsets[start : start + size]
            yield len(taken), msgspec.Raw(encode_offsets([(topic, topic_id, taken)]))


def check_part(data: bytes) -> None:
    """Raises msgspec.MsgspecError for a part that `restore_part` must not get."""
    for _, group, count, offsets in _decode(data).groups:
        if group != _NIL:
            decode_group(group)
            if bytes(group)[:1] != GROUP_BEGINS:
                raise msgspec.ValidationError("a group that is packed in another way")
        found = [] if offsets == _NIL else decode_offsets(offsets)
        if sum(len(of_topic) for _, _, of_topic in found) != count:
            raise msgspec.ValidationError("another number of offsets")


def restore_part(state: GroupTables, data: bytes) -> None:
    """Put a part, which was checked, into a state that was empty before the first one."""
    part = _decode(data)
    offsets = state.offsets
    for group_id, group, count, packed in part.groups:
        if group != _NIL:
            state.put_packed(group_id, bytes(group))
        if count:
            offsets.restore(group_id, count, bytes(packed))
    for key, record_value in part.consumers:
        state.consumers.replay(decode_consumer_group_record(key, record_value))
    for producer_id, group_id, topic, topic_id, pending in part.pending:
        for partition, stored in unpack([(topic, topic_id, pending)])[topic].items():
            offsets.restore_pending(producer_id, group_id, topic, partition, stored)
    offsets.producer_epochs.update(part.producer_epochs)
    offsets.coordinator_epochs.update(part.coordinator_epochs)
