"""Whatever bytes come, a decoder gives a request or a WireError: it never hangs, grows, or lets another error out."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Iterator

import pytest
from tests.unit.wire.golden import FRAMES

from muster_coordinator.wire.api import Api, RequestHeader
from muster_coordinator.wire.apis import APIS
from muster_coordinator.wire.errors import WireError
from muster_coordinator.wire.framing import FrameReader, read_header

EVERY_VERSION = [(api, version) for api in APIS.values() for version in range(api.min_version, api.max_version + 1)]
LENGTHS = [bytes.fromhex(claim) for claim in ("7fffffff", "ffffffff", "80000000", "ffffffff0f", "ffffffff7f")]


def survives(frame: bytes) -> bool:
    """True if the frame was a request."""
    try:
        header = read_header(frame)
        header.api.decode_request(header, frame, "/127.0.0.1")
    except WireError:
        return False
    return True


def random_frames(seed: int, count: int) -> Iterator[bytes]:
    source = random.Random(seed)
    for _ in range(count):
        yield source.randbytes(source.choice([0, 3, 8, 10, 14, 50, 300]))


def test_random_bytes_are_refused() -> None:
    for frame in random_frames(1, 2000):
        survives(frame)


def test_random_bodies_under_a_valid_header_are_requests_or_refused() -> None:
    source, accepted = random.Random(2), 0
    for round_ in range(60):
        for api, version in EVERY_VERSION:
            tags = b"\0" if api.flexible(version) else b""
            # Small bytes make plausible lengths, so that decoders get far.
            alphabet = 256 if round_ % 3 == 0 else 4
            body = bytes(source.randrange(alphabet) for _ in range(source.randrange(60)))
            accepted += survives(struct.pack(">hhih", api.key, version, 1, 0) + tags + body)
    assert accepted > 100  # else the decoders were hardly reached


def test_damaged_requests_of_real_clients_are_requests_or_refused() -> None:
    source = random.Random(3)
    for _ in range(30):
        for frame in FRAMES.values():
            damaged = bytearray(frame)
            for _ in range(source.randint(1, 3)):
                position = source.randrange(4, len(damaged))
                if source.random() < 0.5:
                    damaged[position] = source.randrange(256)
                else:
                    damaged[position : position + 4] = source.choice(LENGTHS)
            survives(bytes(damaged))


def test_random_stream_ends_in_frames_or_an_error() -> None:
    for chunk in random_frames(4, 2000):
        try:
            for frame in FrameReader(1000).feed(chunk):
                survives(frame)
        except WireError:
            continue


def claiming_header(api: Api, version: int) -> bytes:
    return struct.pack(">hhih", api.key, version, 1, 0) + (b"\0" if api.flexible(version) else b"")


@pytest.mark.parametrize("claim", LENGTHS)
def test_claimed_lengths_cost_neither_memory_nor_time(claim: bytes) -> None:
    """A loop over a claimed count of 2^31 would end in the test's timeout."""
    tracemalloc.start()
    for api, version in EVERY_VERSION:
        for zeros in range(40):
            survives(claiming_header(api, version) + bytes(zeros) + claim + bytes(20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


def test_many_empty_elements_are_bounded_by_the_frame() -> None:
    """An element of an array is a byte or more: a frame of 100,000 zeros is at most so many elements."""
    for api, version in EVERY_VERSION:
        if api.flexible(version):
            survives(claiming_header(api, version) + b"\xa0\x8d\x06" + b"\x01" * 100_000)


def test_header_is_given_to_decoders_unchanged_by_their_failure() -> None:
    header = RequestHeader(APIS[8], 9, 1, "", 4)
    with pytest.raises(WireError, match="ends too early"):
        APIS[8].decode_request(header, b"\0\0\0\0", "/127.0.0.1")
