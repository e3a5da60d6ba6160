"""The stream of a client, cut into requests."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.gateway import frames

from muster_gateway import apis
from muster_gateway.errors import ClientError
from muster_gateway.requests import RequestCutter, RequestHead
from muster_gateway.slots import framed

FEW = settings(max_examples=25)

LIMIT = 5000


class Recorded:
    """Implements `RequestSink`."""

    def __init__(self) -> None:
        self.heads: list[RequestHead] = []
        self.passed = bytearray()
        self.wholes: list[bytes] = []
        self.unknown: list[int] = []

    def begin(self, head: RequestHead) -> None:
        self.heads.append(head)

    def forward(self, chunk: bytes | memoryview) -> None:
        self.passed += chunk

    def whole(self, head: RequestHead, frame: bytes) -> None:
        self.heads.append(head)
        self.wholes.append(frame)

    def unknown_api_versions(self, correlation_id: int) -> None:
        self.unknown.append(correlation_id)


def cut(pieces: list[bytes]) -> Recorded:
    sink = Recorded()
    cutter = RequestCutter(sink, LIMIT)
    for piece in pieces:
        cutter.feed(piece)
    assert cutter.held == 0
    return sink


def cut_with_stops(pieces: list[bytes], stops: list[bool]) -> Recorded:
    """Before a request the cutter stops as often as `stops` says so."""
    sink, left = Recorded(), list(stops)
    cutter = RequestCutter(sink, LIMIT, lambda: not (left and left.pop()))
    for piece in pieces:
        cutter.feed(piece)
    while cutter.stopped:
        cutter.resume()
    assert cutter.held == 0
    return sink


def produce(version: int, acks: int, transactional_id: str | None, records: int, correlation_id: int) -> bytes:
    topics = [{"name": "orders", "partition_data": [{"index": 0, "records": bytes(records)}]}]
    return frames.request(
        apis.PRODUCE,
        version,
        {"transactional_id": transactional_id, "acks": acks, "timeout": 1000, "topic_data": topics},
        correlation_id,
    )


PASSED = (
    produce(3, 1, None, 6000, 1),
    produce(9, 0, "t" * 300, 40_000, 2),
    produce(11, -1, None, 10, 4),
    struct.pack(">hhi", 38, 2, 5) + b"\x00\x04user" + bytes(100),
)
READ = (
    frames.request(apis.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]}, 6),
    struct.pack(">hhi", apis.HEARTBEAT, 3, 7) + b"\x00\x04user" + bytes(1000),
)
UNKNOWN_VERSION = struct.pack(">hhih", apis.API_VERSIONS, 5, 8, -1) + b"\x00"


@FEW
@given(data=st.data())
def test_every_cut_of_the_stream_gives_the_same(data: st.DataObject) -> None:
    order = data.draw(st.permutations([*PASSED, *READ, UNKNOWN_VERSION]))
    pieces = data.draw(frames.chunks(b"".join(framed(each) for each in order)))
    sink = cut_with_stops(pieces, data.draw(st.lists(st.booleans(), max_size=20)))

    assert bytes(sink.passed) == b"".join(framed(each) for each in order if each in PASSED)
    assert sink.wholes == [each for each in order if each in READ]
    assert sink.unknown == [8]
    numbers = [struct.unpack_from(">i", each, 4)[0] for each in order if each is not UNKNOWN_VERSION]
    assert [each.correlation_id for each in sink.heads] == numbers
    assert {each.correlation_id for each in sink.heads if not each.answered} == {2}


def test_a_request_that_passes_is_given_on_before_it_is_complete() -> None:
    sink = Recorded()
    cutter = RequestCutter(sink, LIMIT)
    request = framed(produce(9, 1, None, 1_000_000, 1))
    cutter.feed(request[:300])
    assert bytes(sink.passed) == request[:300]
    assert cutter.held == 0


@pytest.mark.parametrize("cut_at", [2, 9, 14, 17, 20])
def test_what_is_kept_of_a_request_is_what_came(cut_at: int) -> None:
    sink = Recorded()
    cutter = RequestCutter(sink, LIMIT)
    cutter.feed(framed(produce(9, 1, None, 100, 1))[:cut_at])
    assert (cutter.held, bytes(sink.passed)) == (cut_at, b"")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">i", -1), "malformed_request"),
        (struct.pack(">i", 7) + bytes(7), "malformed_request"),
        (struct.pack(">ihhi", 100, 999, 0, 1), "unsupported_request"),
        (struct.pack(">ihhi", 100, apis.FETCH, 19, 1), "unsupported_request"),
        (struct.pack(">ihhi", 100, apis.FETCH, -1, 1), "unsupported_request"),
        (struct.pack(">ihhi", LIMIT + 1, apis.METADATA, 1, 1), "frame_too_large"),
        (struct.pack(">ihhih", 12, apis.PRODUCE, 3, 1, 500) + bytes(2), "malformed_request"),
        (struct.pack(">ihhih", 1 << 30, apis.PRODUCE, 3, 1, -2) + bytes(30), "malformed_request"),
        # 2^28 tagged fields of no bytes in the header: read no further than acks may stand
        (
            struct.pack(">ihhih", 1 << 30, apis.PRODUCE, 9, 1, -1) + b"\xff\xff\xff\x7f" + bytes(250_000),
            "malformed_request",
        ),
    ],
)
def test_what_is_no_request_is_an_error(data: bytes, reason: str) -> None:
    for pieces in ([data], [*frames.one_by_one(data[:2000]), data[2000:]]):
        with pytest.raises(ClientError) as error:
            cut(pieces)
        assert error.value.reason == reason
