"""Frames and headers: whole, byte by byte, in every cut, too large, not ours."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.wire.apis import APIS
from muster_coordinator.wire.errors import FrameTooLargeError, UnsupportedRequestError, WireError
from muster_coordinator.wire.framing import KEPT_BYTES, FrameReader, encode_response_frame, read_header

LIMIT = 1000


def prefixed(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


def header(key: int, version: int, client_id: bytes | None, tags: bytes = b"") -> bytes:
    length = -1 if client_id is None else len(client_id)
    return struct.pack(">hhih", key, version, 5, length) + (client_id or b"") + tags


def test_one_chunk_with_several_frames_gives_all() -> None:
    reader = FrameReader(LIMIT)
    assert reader.feed(prefixed(b"one", b"", b"three")) == [b"one", b"", b"three"]
    assert reader.held == 0


def test_byte_by_byte_gives_each_frame_with_its_last_byte() -> None:
    reader = FrameReader(LIMIT)
    data = prefixed(b"one", b"two")
    given_at = {i: frames for i, byte in enumerate(data) if (frames := reader.feed(bytes((byte,))))}
    assert given_at == {6: [b"one"], 13: [b"two"]}


@given(frames=st.lists(st.binary(max_size=60), max_size=6), seed=st.integers(0, 2**32))
def test_any_cut_of_a_stream_gives_the_same_frames(frames: list[bytes], seed: int) -> None:
    reader, cut, data, found = FrameReader(LIMIT), random.Random(seed), prefixed(*frames), []
    while data:
        size = cut.randint(1, 40)
        chunk, data = data[:size], data[size:]
        found += reader.feed(chunk)
    assert found == frames
    assert reader.held == 0


def test_frame_of_exactly_the_limit_passes() -> None:
    assert FrameReader(LIMIT).feed(prefixed(bytes(LIMIT))) == [bytes(LIMIT)]


@pytest.mark.parametrize("length", [LIMIT + 1, -1, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("pieces", [1, 2])
def test_length_beyond_the_limit_is_refused_before_its_bytes_come(length: int, pieces: int) -> None:
    reader = FrameReader(LIMIT)
    data = prefixed(b"good") + struct.pack(">i", length)
    if pieces == 2:
        assert reader.feed(data[:10]) == [b"good"]
        data = data[10:]
    with pytest.raises(FrameTooLargeError, match=str(length)) as caught:
        reader.feed(data)
    assert caught.value.answer is None


def test_claimed_length_allocates_nothing() -> None:
    reader = FrameReader(2**31 - 1)
    tracemalloc.start()
    reader.feed(struct.pack(">i", 2**31 - 1) + b"x")
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


def test_a_large_frame_in_small_chunks_is_looked_at_once() -> None:
    reader = FrameReader(2**31 - 1)
    reader.feed(struct.pack(">i", 4_000_000))
    chunk = bytes(1000)
    for _ in range(3999):
        assert reader.feed(chunk) == []
    (frame,) = reader.feed(chunk + prefixed(b"")[:2])
    assert len(frame) == 4_000_000
    assert reader.held == 2


@pytest.mark.parametrize("pieces", [1, 3])
def test_chunk_does_not_stay_for_the_few_bytes_at_its_end(pieces: int) -> None:
    """Nobody counts it: thousands of connections would fill the memory of a pod so."""
    data = prefixed(*[bytes(60)] * 4000) + b"\0"
    tracemalloc.start()
    try:
        readers = [FrameReader(LIMIT) for _ in range(20)]
        for reader in readers:
            cut = len(data) // pieces + 1
            for start in range(0, len(data), cut):
                reader.push(data[start : start + cut] + b"")
            while reader.take() is not None:
                pass
        assert tracemalloc.get_traced_memory()[0] < len(readers) * 3 * KEPT_BYTES
    finally:
        tracemalloc.stop()
    assert {reader.held for reader in readers} == {1}


class Naive:
    """A reader that joins all that comes."""

    def __init__(self, limit: int) -> None:
        self.data, self.limit = b"", limit

    def take(self) -> bytes | str | None:
        if len(self.data) < 4:
            return None
        length = struct.unpack(">i", self.data[:4])[0]
        if not 0 <= length <= self.limit:
            return "too large"
        if len(self.data) < 4 + length:
            return None
        frame, self.data = self.data[4 : 4 + length], self.data[4 + length :]
        return frame


@given(seed=st.integers(0, 2**32), limit=st.sampled_from([0, 30, 9_000]), takes=st.integers(1, 5))
def test_reader_is_as_one_that_joins_all_that_comes(seed: int, limit: int, takes: int) -> None:
    """Also of frames beyond the limit, and when only some of those that have come are taken between two chunks."""
    chance, reader, naive = random.Random(seed), FrameReader(limit), Naive(limit)
    sizes = [chance.choice([0, 1, 25, limit, chance.randint(0, limit)]) for _ in range(chance.randint(0, 30))]
    data = prefixed(*[chance.randbytes(size) for size in sizes])
    data += chance.choice([b"", b"\0", prefixed(bytes(limit + 1)), struct.pack(">i", -1) + b"abc"])
    while data:
        size = chance.choice([1, 3, 40, 5_000, 100_000])
        chunk, data = data[:size], data[size:]
        reader.push(chunk)
        naive.data += chunk
        for _ in range(chance.randint(0, takes) if data else 50):
            assert reader.held == len(naive.data)
            assert reader.rest() == naive.data
            has_frame, expected = reader.has_frame(), naive.take()
            assert has_frame is (expected is not None)
            if expected == "too large":
                with pytest.raises(FrameTooLargeError):
                    reader.take()
                return
            assert reader.take() == expected


def test_header_of_a_plain_version() -> None:
    frame = header(8, 7, b"me") + b"body"
    found = read_header(frame)
    assert (found.api, found.api_version, found.correlation_id, found.client_id) == (APIS[8], 7, 5, "me")
    assert frame[found.body_position :] == b"body"


@pytest.mark.parametrize("tags", [b"\x00", b"\x01\x09\x02ab", b"\x02\x00\x00\xff\x01\x80\x01" + bytes(128)])
def test_header_of_a_flexible_version_skips_tagged_fields(tags: bytes) -> None:
    frame = header(8, 9, b"me", tags) + b"body"
    assert frame[read_header(frame).body_position :] == b"body"


def test_null_client_id_is_empty_as_in_kafka() -> None:
    found = read_header(header(8, 7, None))
    assert found.client_id == ""
    assert found.body_position == 10


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00",
        header(8, 9, b"me"),  # no tagged fields
        header(8, 9, b"me", b"\x01\x09\x05ab"),  # a tagged field that is cut
        header(8, 9, b"me", b"\xff\xff\xff\xff\xff\x01"),
        struct.pack(">hhih", 8, 7, 5, 3) + b"me",
        struct.pack(">hhih", 8, 7, 5, -2) + b"me",
    ],
)
def test_broken_header_is_refused(frame: bytes) -> None:
    with pytest.raises(WireError) as caught:
        read_header(frame)
    assert caught.value.answer is None


@pytest.mark.parametrize(("key", "version"), [(8, 1), (8, 11), (8, -1), (-1, 0), (9999, 0), (27, 0)])
def test_unserved_key_or_version_closes_the_connection(key: int, version: int) -> None:
    with pytest.raises(UnsupportedRequestError) as caught:
        read_header(header(key, version, b"me", b"\x00"))
    assert (caught.value.api_key, caught.value.api_version, caught.value.answer) == (key, version, None)


@pytest.mark.parametrize("version", [5, 32767, -1])
def test_unknown_api_versions_version_is_answered_with_the_known_ones(version: int) -> None:
    """KIP-511: a v0 body with UNSUPPORTED_VERSION (35) and the range of ApiVersions."""
    with pytest.raises(UnsupportedRequestError) as caught:
        read_header(header(18, version, b"me", b"\x00"))
    body = struct.pack(">ihihhh", 5, 35, 1, 18, 0, 4)
    assert caught.value.answer == struct.pack(">i", len(body)) + body


def test_response_header_follows_flexibility_but_for_api_versions() -> None:
    assert encode_response_frame(APIS[8], 7, 9, b"body") == prefixed(struct.pack(">i", 9) + b"body")
    assert encode_response_frame(APIS[8], 8, 9, b"body") == prefixed(struct.pack(">i", 9) + b"\0body")
    assert encode_response_frame(APIS[18], 4, 9, b"body") == prefixed(struct.pack(">i", 9) + b"body")
    assert encode_response_frame(APIS[47], 0, 9, b"body") == prefixed(struct.pack(">i", 9) + b"body")
