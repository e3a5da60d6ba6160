"""A large request that is decoded in slices is the request that is decoded in one go."""

from __future__ import annotations

import gc
import struct
import weakref
from collections.abc import Iterable
from itertools import count
from uuid import UUID

import pytest
from greenlet import getcurrent
from tests.conformance.requests import build
from tests.support.kafka import encode_request

from muster_coordinator.requests.slices import SLICE_ENTRIES
from muster_coordinator.wire.errors import WireError
from muster_coordinator.wire.framing import read_header
from muster_coordinator.wire.slicing import Decoding, pause

ENTRIES = 4 * SLICE_ENTRIES + 7
FEW = 3


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def array(elements: Iterable[bytes]) -> bytes:
    made = list(elements)
    return struct.pack(">i", len(made)) + b"".join(made)


def names(many: int = ENTRIES) -> bytes:
    return array(string(f"name-{each}") for each in range(many))


def topics(partition: bytes, many: int, of_each: int) -> bytes:
    return array(string(f"topic-{each}") + array([partition] * of_each) for each in range(many))


FETCHED = struct.pack(">iqi", 0, 0, 1 << 20)
ASKED = struct.pack(">iq", 0, -1)
COMMITTED = struct.pack(">iqih", 0, 1, -1, -1)
FETCH = struct.pack(">iiiib", -1, 100, 1, 1 << 20, 0)
COMMIT = string("g") + struct.pack(">i", -1) + string("") + struct.pack(">h", -1)
LARGE = {
    "Fetch of many topics": (1, 4, FETCH + topics(FETCHED, ENTRIES, 1)),
    "Fetch of many partitions": (1, 4, FETCH + topics(FETCHED, 1, ENTRIES)),
    "Fetch of many topics with some partitions": (1, 4, FETCH + topics(FETCHED, SLICE_ENTRIES // 5, 21)),
    "ListOffsets": (2, 1, struct.pack(">i", -1) + topics(ASKED, ENTRIES, 1)),
    "Metadata": (3, 1, names()),
    "OffsetCommit of many topics": (8, 7, COMMIT + topics(COMMITTED, ENTRIES, 1)),
    "OffsetCommit of many topics with some partitions": (8, 7, COMMIT + topics(COMMITTED, SLICE_ENTRIES // 5, 21)),
    "OffsetCommit with metadata": (8, 7, COMMIT + topics(COMMITTED[:-2] + string("m"), 1, ENTRIES)),
    "OffsetFetch": (9, 1, string("g") + topics(struct.pack(">i", 0), ENTRIES, 1)),
    "DescribeGroups": (15, 0, names()),
    "DeleteGroups": (42, 0, names()),
}


def frame(key: int, version: int, body: bytes) -> bytes:
    return struct.pack(">hhih", key, version, 1, -1) + body


def decoded(decoding: Decoding) -> tuple[object, int]:
    """The request, and the number of slices that it took."""
    for slices in count(1):
        request = decoding.step()
        if request is not None:
            return request, slices
    raise AssertionError


@pytest.mark.parametrize("name", LARGE)
def test_slices_give_the_request_of_one_go(name: str) -> None:
    data = frame(*LARGE[name])
    header = read_header(data)
    whole = header.api.decode_request(header, data, "/host")
    request, slices = decoded(Decoding(header, data, "/host"))
    assert request == whole
    assert slices >= 4


def test_commits_of_flexible_versions_are_decoded_in_slices() -> None:
    partitions = [{"partition_index": 1, "committed_offset": 1, "committed_metadata": "m"}] * ENTRIES
    for version, name in ((8, {"name": "t"}), (10, {"topic_id": UUID(int=1)})):
        for made in ([name | {"partitions": partitions}], [name | {"partitions": partitions[:1]}] * ENTRIES):
            fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": made}
            data = encode_request(build("offset_commit", version, fields), 7)[4:]
            header = read_header(data)
            assert decoded(Decoding(header, data, "/host"))[1] >= 4


def test_a_small_request_takes_one_slice() -> None:
    data = frame(15, 0, names(FEW))
    assert decoded(Decoding(read_header(data), data, "/host"))[1] == 1


def test_the_end_of_a_large_request_is_missed() -> None:
    data = frame(15, 0, names())[:-1]
    decoding = Decoding(read_header(data), data, "/host")
    with pytest.raises(WireError, match="of length"):
        decoded(decoding)


def test_a_decoding_that_is_forgotten_ends() -> None:
    data = frame(15, 0, names())
    decoding = Decoding(read_header(data), data, "/host")
    decoding.step()
    decoder = weakref.ref(decoding._worker)
    del decoding
    gc.collect()
    assert decoder() is None


def test_a_pause_of_nobody_is_none() -> None:
    before = getcurrent()
    pause()
    assert getcurrent() is before
