"""Requests of the load: whole frames, encoded once per group by kio's codecs, of which only a few bytes change."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from kio.serial import entity_reader
from tests.support.kafka import commit_request, encode_request, entity, schema

TOPIC = "chaos"
OFFSET_COMMIT_VERSION = 7
OFFSET_FETCH_VERSION = 7
_SENTINEL = 0x1122334455667788
_CORRELATION = 8  # where the correlation id stands in a frame: length, API key and version come before it
_MAX_INT32 = 0x7FFFFFFF


class Frame:
    """A request that is sent again and again under new correlation ids."""

    def __init__(self, request: Any) -> None:
        self._frame = bytearray(encode_request(request, 0, client_id="chaos"))

    def numbered(self, correlation_id: int) -> bytes:
        struct.pack_into(">i", self._frame, _CORRELATION, correlation_id & _MAX_INT32)
        return bytes(self._frame)


class CommitFrame(Frame):
    """OffsetCommit of partition 0 of the topic by a group without members."""

    def __init__(self, group: str) -> None:
        super().__init__(commit_request(group, [(TOPIC, 0, _SENTINEL)], OFFSET_COMMIT_VERSION))
        self._offset_at = self._frame.index(_SENTINEL.to_bytes(8, "big"))

    def of(self, offset: int, correlation_id: int) -> bytes:
        struct.pack_into(">q", self._frame, self._offset_at, offset)
        return self.numbered(correlation_id)


def commit_error(frame: bytes) -> int:
    """The error code of an answer to a CommitFrame: its last two bytes, since it has one partition."""
    return int.from_bytes(frame[-2:], "big", signed=True)


def fetch_frame(group: str) -> Frame:
    m = schema("offset_fetch", OFFSET_FETCH_VERSION)
    topic = m.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=(0,))
    return Frame(m.OffsetFetchRequest(group_id=group, topics=(topic,), require_stable=False))


_FETCH_RESPONSE = entity("offset_fetch", OFFSET_FETCH_VERSION, "response")
_read_fetch_header = entity_reader(_FETCH_RESPONSE.__header_schema__)
_read_fetch = entity_reader(_FETCH_RESPONSE)


def fetched(frame: bytes) -> tuple[int, int]:
    """(offset, error code) of the answer to a fetch_frame, without its length; -1: the group has no offset."""
    _, header_size = _read_fetch_header(frame, 0)
    response, _ = _read_fetch(frame, header_size)
    if response.error_code:
        return -1, int(response.error_code)
    found = response.topics[0].partitions[0]
    return int(found.committed_offset), int(found.error_code)


def find_coordinators(groups: Sequence[str]) -> Any:
    """A FindCoordinator request for all of these groups."""
    m = schema("find_coordinator", 4)
    return m.FindCoordinatorRequest(key_type=0, coordinator_keys=tuple(groups))


def metadata() -> Any:
    """A Metadata request that names no topic: who the brokers are."""
    m = schema("metadata", 12)
    return m.MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)
