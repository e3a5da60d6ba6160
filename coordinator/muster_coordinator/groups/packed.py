"""Groups that nobody asks for, as they are kept: bytes, of which objects are made when somebody does.

Python's objects for a group of one committed offset take ten times as much. Not compiled: msgspec needs types as Python
sees them (ADR 13).
"""

from __future__ import annotations

import msgspec

from muster_coordinator.records.group_metadata import GroupMetadataValue

Offset = tuple[int, int, int, int, str, int, int]
"""partition, offset of the record in the log, committed offset, leader epoch, metadata, commit and expire timestamp."""

PackedTopic = tuple[str, bytes, list[Offset]]
"""topic, its id, offsets. A topic comes once for each id that its offsets have: nearly always once."""


class PackedGroup(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A classic group as its log has it. `value`: its last record; None for a group that only its offsets imply, whose
    state began when `since_ms` says, and which has neither members nor a protocol.
    """

    has_members: bool
    protocol_type: str = ""
    since_ms: int = -1
    value: GroupMetadataValue | None = None


class PackedGroupHead(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The part of a group that a list shows: the rest is not looked at."""

    has_members: bool
    protocol_type: str


encode_group = msgspec.msgpack.Encoder().encode
decode_group = msgspec.msgpack.Decoder(PackedGroup).decode
decode_group_head = msgspec.msgpack.Decoder(PackedGroupHead).decode

GROUP_BEGINS = b"\x94"
"""A msgpack array of four fields, the first of which is the second byte then (`tables.WITH_MEMBERS`)."""

encode_offsets = msgspec.msgpack.Encoder().encode
decode_offsets = msgspec.msgpack.Decoder(list[PackedTopic]).decode
