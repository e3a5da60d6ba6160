"""Control records: what a control batch holds instead of offsets and groups.

Key: version i16 (0) | type i16. Values by type:
- 0, 1: EndTxnMarker (ABORT, COMMIT): version i16 (0) | coordinatorEpoch i32.
- 2: LeaderChange: KRaft's LeaderChangeMessage version 0, which Kafka's tools can read: version i16 | leaderId i32 |
  voters | grantingVoters | tagged fields. leaderId is -1 and the voters are empty: a replica of ours is a log id, which
  Kafka has no field for. Ours are in tagged field 9000: leader, replicas, previousReplicas, each a compact array of
  compact strings; then, once a person has accepted a loss of data, the epoch of that election, likewise, in decimal.
- 9000: ReplicaSet: version i16 (0) | replicas, a compact array of compact strings. Kafka skips unknown control types.
- 9001: Fence: version i16 (0) | reshard i32 | flags i8 (1: closed, 2: complete) | imported i64.

Source: ControlRecordType, EndTxnMarker.json, LeaderChangeMessage.json; KIP-595; replication.md, "Sets and their
change".
"""

from __future__ import annotations

from struct import Struct
from typing import TypeAlias

import msgspec

from muster_coordinator.records.compact import encode_strings, read_strings, read_tagged
from muster_coordinator.records.errors import RecordDecodeError, UnsupportedValueVersionError
from muster_coordinator.records.varint import encode_unsigned, read_unsigned

ABORT_TYPE = 0
COMMIT_TYPE = 1
LEADER_CHANGE_TYPE = 2
REPLICA_SET_TYPE = 9000
FENCE_TYPE = 9001
SETS_TAG = 9000
"""Far above what Kafka assigns; tags and control types of Kafka count up from 0."""

_KEY = Struct(">hh")
_END_TXN = Struct(">hi")
_LEADER_CHANGE_HEAD = Struct(">hi")
_NO_LEADER_ID = -1
_FENCE = Struct(">hibq")
_CLOSED, _COMPLETE = 1, 2

NOT_IMPORTING = -1


class EndTxnMarker(msgspec.Struct, frozen=True, gc=False):
    """COMMIT or ABORT of the producer that the batch names."""

    committed: bool
    coordinator_epoch: int


class LeaderChange(msgspec.Struct, frozen=True, gc=False):
    """Opens an epoch. All are log ids; `previous_replicas` is empty unless a change of the set is under way."""

    leader: str
    replicas: tuple[str, ...]
    previous_replicas: tuple[str, ...] = ()
    loss_epoch: int = -1
    """The last epoch whose leader was elected in spite of a loss of data; -1: none was."""


class ReplicaSet(msgspec.Struct, frozen=True, gc=False):
    """Ends a change of the set: from here on `replicas` (log ids) alone count."""

    replicas: tuple[str, ...]


class Fence(msgspec.Struct, frozen=True, gc=False):
    """A re-shard closes the partition to clients, or opens it again; see docs/resharding.md.

    `reshard` numbers the re-shard; a later one has a higher number. `imported`: how many records of its new log the
    partition has taken in, NOT_IMPORTING for one that takes none; `complete`: those were all.
    """

    reshard: int
    closed: bool
    imported: int = NOT_IMPORTING
    complete: bool = False


class UnknownControl(msgspec.Struct, frozen=True, gc=False):
    """A control record of another type; readers skip it."""

    type: int


ControlRecord: TypeAlias = EndTxnMarker | LeaderChange | ReplicaSet | Fence | UnknownControl


def encode_end_txn_marker(marker: EndTxnMarker) -> tuple[bytes, bytes]:
    """(key, value)."""
    return _KEY.pack(0, COMMIT_TYPE if marker.committed else ABORT_TYPE), _END_TXN.pack(0, marker.coordinator_epoch)


def encode_leader_change(change: LeaderChange) -> tuple[bytes, bytes]:
    """(key, value)."""
    sets = encode_strings((change.leader,)) + encode_strings(change.replicas) + encode_strings(change.previous_replicas)
    if change.loss_epoch >= 0:
        sets += encode_strings((str(change.loss_epoch),))
    no_voters = b"\x01\x01"  # two empty compact arrays
    tagged = b"\x01" + encode_unsigned(SETS_TAG) + encode_unsigned(len(sets)) + sets
    return _KEY.pack(0, LEADER_CHANGE_TYPE), _LEADER_CHANGE_HEAD.pack(0, _NO_LEADER_ID) + no_voters + tagged


def encode_replica_set(replica_set: ReplicaSet) -> tuple[bytes, bytes]:
    """(key, value)."""
    return _KEY.pack(0, REPLICA_SET_TYPE), b"\x00\x00" + encode_strings(replica_set.replicas)


def encode_fence(fence: Fence) -> tuple[bytes, bytes]:
    """(key, value)."""
    flags = (_CLOSED if fence.closed else 0) | (_COMPLETE if fence.complete else 0)
    return _KEY.pack(0, FENCE_TYPE), _FENCE.pack(0, fence.reshard, flags, fence.imported)


def decode_control(key: bytes | None, value: bytes | None) -> ControlRecord:
    """Raises RecordDecodeError, UnsupportedValueVersionError. A LeaderChange of Kafka's own has empty sets."""
    if key is None or len(key) < _KEY.size:
        raise RecordDecodeError(f"control record with the key {key!r}")
    _, control_type = _KEY.unpack_from(key)
    if control_type in (ABORT_TYPE, COMMIT_TYPE):
        if value is None or len(value) < _END_TXN.size:
            raise RecordDecodeError(f"EndTxnMarker with the value {value!r}")
        return EndTxnMarker(control_type == COMMIT_TYPE, _END_TXN.unpack_from(value)[1])
    if control_type == FENCE_TYPE:
        return _decode_fence(value)
    if control_type not in (LEADER_CHANGE_TYPE, REPLICA_SET_TYPE):
        return UnknownControl(control_type)
    if value is None or len(value) < 2:
        raise RecordDecodeError(f"control record of type {control_type} with the value {value!r}")
    try:
        return _decode_leader_change(value) if control_type == LEADER_CHANGE_TYPE else _decode_replica_set(value)
    except (IndexError, ValueError) as exc:
        raise RecordDecodeError(f"control record of type {control_type} is cut off or no text: {exc}") from exc


def _decode_leader_change(value: bytes) -> LeaderChange:
    version = int.from_bytes(value[:2], "big", signed=True)
    if version not in (0, 1):
        raise UnsupportedValueVersionError("LeaderChangeMessage", version)
    position = _LEADER_CHANGE_HEAD.size
    for _ in range(2):  # voters, granting voters
        count, position = read_unsigned(value, position)
        for _ in range(count - 1):
            position += 4 if version == 0 else 20  # id i32; from version 1 on a directory uuid as well
            _, position = read_tagged(value, position, SETS_TAG)
    sets, _ = read_tagged(value, position, SETS_TAG)
    if sets is None:
        return LeaderChange("", ())
    leader, at = read_strings(sets, 0)
    replicas, at = read_strings(sets, at)
    previous, at = read_strings(sets, at)
    loss_epoch = int(read_strings(sets, at)[0][0]) if at < len(sets) else -1
    return LeaderChange(leader[0], replicas, previous, loss_epoch)


def _decode_replica_set(value: bytes) -> ReplicaSet:
    version = int.from_bytes(value[:2], "big", signed=True)
    if version != 0:
        raise UnsupportedValueVersionError("ReplicaSet", version)
    return ReplicaSet(read_strings(value, 2)[0])


def _decode_fence(value: bytes | None) -> Fence:
    if value is None or len(value) < _FENCE.size:
        raise RecordDecodeError(f"Fence with the value {value!r}")
    version, reshard, flags, imported = _FENCE.unpack_from(value)
    if version != 0:
        raise UnsupportedValueVersionError("Fence", version)
    return Fence(reshard, bool(flags & _CLOSED), imported, bool(flags & _COMPLETE))
