"""OffsetCommit and OffsetFetch in one piece: what is read and written of many partitions at once is what is read and
written one by one."""

from __future__ import annotations

import struct

import pytest

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests.cluster import OffsetFetchByIdResponses, OffsetFetchResponses
from muster_coordinator.requests.groups import (
    FetchedPartitions,
    OffsetCommitByIdRequest,
    OffsetCommitByIdResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchByIdResponse,
    OffsetFetchResponse,
)
from muster_coordinator.requests.packed_offsets import AcceptedOffsets, FoundOffsets, PackedOffsets
from muster_coordinator.requests.refusals import refusal
from muster_coordinator.wire import k09_offset_fetch
from muster_coordinator.wire.errors import WireError
from muster_coordinator.wire.framing import read_header
from muster_coordinator.wire.k08_offset_commit import API

Partition = tuple[int, int, int, str | None]
PACKED_SINCE = 6
FLEXIBLE_SINCE = 8
BY_ID_SINCE = 10
COUNTS = [0, 1, 5, 6, 50, 500, 501]


def uvarint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + uvarint(value >> 7)


def text(value: str | None, flexible: bool) -> bytes:
    raw = (value or "").encode()
    if flexible:
        return (b"\0" if value is None else uvarint(len(raw) + 1)) + raw
    return struct.pack(">h", -1 if value is None else len(raw)) + raw


def frame_of(version: int, topics: list[tuple[str, list[Partition]]]) -> bytes:
    """An OffsetCommit without its length; a topic's id is its name, filled with dots. Every section of tagged fields
    that follows a topic has a field."""
    flexible = version >= FLEXIBLE_SINCE
    tags = b"\0" if flexible else b""

    def count(number: int) -> bytes:
        return uvarint(number + 1) if flexible else struct.pack(">i", number)

    parts = [struct.pack(">hhih", 8, version, 1, -1), tags, text("group", flexible), struct.pack(">i", 5)]
    parts.append(text("member", flexible))
    if version >= 7:
        parts.append(text(None, flexible))
    elif version <= 4:
        parts.append(struct.pack(">q", -1))
    parts.append(count(len(topics)))
    for topic, partitions in topics:
        parts += [topic_id(topic) if version >= BY_ID_SINCE else text(topic, flexible), count(len(partitions))]
        for index, offset, epoch, metadata in partitions:
            parts.append(struct.pack(">iq", index, offset) + (struct.pack(">i", epoch) if version >= 6 else b""))
            parts += [text(metadata, flexible), tags]
        parts.append(b"\x01\x07\x02ab" if flexible else b"")
    return b"".join([*parts, tags])


def topic_id(topic: str) -> bytes:
    return topic.encode().ljust(16, b".")


def decode(frame: bytes) -> OffsetCommitRequest | OffsetCommitByIdRequest:
    request = API.decode_request(read_header(frame), frame, "/h")
    assert isinstance(request, OffsetCommitRequest | OffsetCommitByIdRequest)
    return request


def partitions_of(count: int, metadata: str | None = "") -> list[Partition]:
    return [(7 * number, (number << 40) - 1, number - 1, metadata) for number in range(count)]


def packed(count: int, version: int) -> bool:
    return version >= PACKED_SINCE and 6 <= count <= 500


@pytest.mark.parametrize("version", range(2, 11))
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("metadata", ["", None], ids=["empty", "null"])
def test_partitions_without_metadata_are_read_as_they_are(version: int, count: int, metadata: str | None) -> None:
    expected = partitions_of(count, metadata)
    if version < 6:
        expected = [(index, offset, -1, text) for index, offset, _, text in expected]
    request = decode(frame_of(version, [("a", expected), ("b", expected[:1])]))
    assert [tuple(partitions) for _, partitions in request.topics] == [tuple(expected), tuple(expected[:1])]
    assert request.topics[0][1] == tuple(expected)
    assert isinstance(request.topics[0][1], PackedOffsets) is packed(count, version)
    assert request.api_version == version


@pytest.mark.parametrize("version", range(6, 11))
@pytest.mark.parametrize("place", [0, 25, 49])
@pytest.mark.parametrize("metadata", ["m", "m" * 200, None])
def test_topic_with_metadata_is_read_one_by_one(version: int, place: int, metadata: str | None) -> None:
    expected = partitions_of(50)
    expected[place] = (*expected[place][:3], metadata)
    request = decode(frame_of(version, [("a", expected), ("b", partitions_of(50))]))
    assert [tuple(partitions) for _, partitions in request.topics] == [tuple(expected), tuple(partitions_of(50))]
    assert [isinstance(partitions, PackedOffsets) for _, partitions in request.topics] == [False, True]


@pytest.mark.parametrize("version", [6, 7, 8, 10])
def test_request_that_ends_too_early_is_refused_wherever_it_ends(version: int) -> None:
    frame = frame_of(version, [("a", partitions_of(10)), ("b", partitions_of(10, None))])
    for end in range(10, len(frame)):
        with pytest.raises(WireError):
            decode(frame[:end])
    assert decode(frame).topics[1][1] == tuple(partitions_of(10, None))


@pytest.mark.parametrize("version", range(2, 11))
@pytest.mark.parametrize("count", [6, 50, 500])
def test_answer_to_packed_partitions_has_the_bytes_of_the_answer_to_each(version: int, count: int) -> None:
    committed = decode(frame_of(9, [("a", partitions_of(count))])).topics[0][1]
    assert isinstance(committed, PackedOffsets)
    accepted = AcceptedOffsets(committed)
    one_by_one = tuple((index, 0) for index, _, _, _ in partitions_of(count))
    refused = ((3, 25), (4, 0))
    assert (accepted, len(accepted)) == (one_by_one, count)
    if version >= BY_ID_SINCE:
        ids = topic_id("a"), topic_id("b")
        quick = OffsetCommitByIdResponse(((ids[0], accepted), (ids[1], refused)))
        plain = OffsetCommitByIdResponse(((ids[0], one_by_one), (ids[1], refused)))
        assert API.encode_response(version, quick) == API.encode_response(version, plain)
    else:
        assert API.encode_response(
            version, OffsetCommitResponse((("a", accepted), ("b", refused)))
        ) == API.encode_response(version, OffsetCommitResponse((("a", one_by_one), ("b", refused))))


@pytest.mark.parametrize("version", [7, 9])
def test_refusal_of_packed_partitions_names_each(version: int) -> None:
    request = decode(frame_of(version, [("a", partitions_of(6)), ("b", partitions_of(1))]))
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    expected = (("a", tuple((7 * number, int(code)) for number in range(6))), ("b", ((0, int(code)),)))
    assert refusal(request, code) == OffsetCommitResponse(expected)


def test_packed_offsets_differ_from_others() -> None:
    one, other = (decode(frame_of(7, [("a", partitions_of(count))])).topics[0][1] for count in (6, 7))
    assert one != other
    assert one != 6
    assert repr(one) == repr(tuple(partitions_of(6)))
    assert isinstance(one, PackedOffsets)
    assert isinstance(other, PackedOffsets)
    assert AcceptedOffsets(one) != AcceptedOffsets(other)
    assert repr(AcceptedOffsets(one)) == repr(tuple((each[0], 0) for each in partitions_of(6)))


@pytest.mark.parametrize("version", range(1, 11))
@pytest.mark.parametrize("count", [6, 50, 500])
def test_answer_with_found_offsets_has_the_bytes_of_the_answer_with_each(version: int, count: int) -> None:
    each = tuple((7 * number, (number << 40) + 5, number - 1, "", 0) for number in range(count))
    found = FoundOffsets(*(list(column) for column in list(zip(*each, strict=True))[:3]))
    assert (found, len(found), repr(found)) == (each, count, repr(each))
    others = ((3, -1, -1, "", 0), (4, 9, 2, "metadata", 0))

    def encode(first: FetchedPartitions) -> bytes:
        if version >= BY_ID_SINCE:
            by_id = ((topic_id("a"), first), (topic_id("b"), others))
            groups = OffsetFetchByIdResponses((OffsetFetchByIdResponse("g", 0, by_id),))
            return k09_offset_fetch.API.encode_response(version, groups)
        response = OffsetFetchResponse("g", 0, (("a", first), ("b", others)))
        return k09_offset_fetch.API.encode_response(version, OffsetFetchResponses((response,)))

    assert encode(found) == encode(each)
    assert encode(FoundOffsets([*found.partitions[:-1], 1], found.offsets, found.leader_epochs)) != encode(each)


def test_found_offsets_differ_from_others() -> None:
    assert FoundOffsets([1], [2], [3]) != FoundOffsets([1], [2], [4])
    assert FoundOffsets([1], [2], [3]) != [(1, 2, 3, "", 0)]
