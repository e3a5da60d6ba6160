"""The side that serves a group that has moved: a record of Muster's own in a partition that mirrors one of Kafka's.

Key: type i16 (9102) | groupId str. Value: version i16 (0) | epoch i32 | side i8 (0: Kafka, 1: Muster). Kafka counts
record types up from 0, and its readers skip unknown ones. Compaction keeps the last one of each group.
Source: docs/adr/0048.
"""

from __future__ import annotations

from struct import Struct

import msgspec

from muster_coordinator.records.errors import RecordDecodeError, UnsupportedValueVersionError
from muster_coordinator.records.primitives import INT16, Cursor, encode_string

KEY_TYPE = 9102

_TYPE = INT16.pack(KEY_TYPE)
_VALUE = Struct(">hib")
_AT_KAFKA, _AT_MUSTER = 0, 1


class GroupRoute(msgspec.Struct, frozen=True, gc=False):
    """`epoch` grows by one with each change."""

    group_id: str
    epoch: int
    at_muster: bool


def is_route_key(key: bytes | None) -> bool:
    return key is not None and key.startswith(_TYPE)


def encode_route(route: GroupRoute) -> tuple[bytes, bytes]:
    """(key, value). ValueError if the group's id does not fit its int16 length."""
    side = _AT_MUSTER if route.at_muster else _AT_KAFKA
    return _TYPE + encode_string(route.group_id), _VALUE.pack(0, route.epoch, side)


def decode_route(key: bytes, value: bytes | None) -> GroupRoute:
    """Raises RecordDecodeError, UnsupportedValueVersionError. There are no tombstones: a group that goes back has a
    route to Kafka."""
    group_id = Cursor(key, len(_TYPE), "GroupRouteKey").string()
    if value is None or len(value) < _VALUE.size:
        raise RecordDecodeError(f"the route of group {group_id[:100]!r} with the value {value!r}")
    version, epoch, side = _VALUE.unpack_from(value)
    if version != 0:
        raise UnsupportedValueVersionError("GroupRoute", version)
    if side not in (_AT_KAFKA, _AT_MUSTER):
        raise RecordDecodeError(f"the route of group {group_id[:100]!r} with the side {side}")
    return GroupRoute(group_id, epoch, side == _AT_MUSTER)
