"""The primitive types at their edges."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.wire import primitives
from muster_coordinator.wire.codec import Reader
from muster_coordinator.wire.errors import WireError


@given(st.integers(0, 2**31 - 1))
def test_uvarint_is_read_as_written(value: int) -> None:
    raw = primitives.encode_uvarint(value)
    assert primitives.uvarint(b"\x01" + raw + b"\x02", 1) == (value, 1 + len(raw))


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param("808080808000", id="six bytes of a small number"),
        pytest.param("ffffffffff01", id="more than 32 bits"),
        pytest.param("8080808008", id="2^31"),
        pytest.param("ffffffff0f", id="2^32 - 1"),
    ],
)
def test_uvarint_beyond_any_length_is_refused(raw: str) -> None:
    with pytest.raises(WireError, match="varint"):
        primitives.uvarint(bytes.fromhex(raw), 0)


@pytest.mark.parametrize("raw", ["", "80", "ffffff"])
def test_uvarint_that_is_cut_is_an_index_error(raw: str) -> None:
    with pytest.raises(IndexError):
        primitives.uvarint(bytes.fromhex(raw), 0)


@pytest.mark.parametrize("read", [primitives.string, primitives.nullable_string])
@pytest.mark.parametrize("raw", ["fffe", "8000", "0001", "00036162"])
def test_string_with_a_length_that_is_none_is_refused(
    read: Callable[[bytes, int], tuple[str | None, int]], raw: str
) -> None:
    with pytest.raises(WireError, match="a string of length"):
        read(bytes.fromhex(raw), 0)


def test_null_is_refused_where_the_schema_has_none() -> None:
    with pytest.raises(WireError, match="a string of length -1"):
        primitives.string(b"\xff\xff", 0)
    with pytest.raises(WireError, match="null in place of a string"):
        primitives.compact_string(b"\x00", 0)
    with pytest.raises(WireError, match="an array of length -1"):
        primitives.array_length(b"\xff\xff\xff\xff", 0)
    with pytest.raises(WireError, match="an array of length -1"):
        primitives.compact_array_length(b"\x00", 0)


@pytest.mark.parametrize(("flexible", "null"), [(False, b"\xff\xff\xff\xff"), (True, b"\x00")])
def test_reader_refuses_null_bytes_and_arrays(flexible: bool, null: bytes) -> None:
    with pytest.raises(WireError, match="in place of bytes"):
        Reader(null, 0, flexible).byte_string()
    reader = Reader(null, 0, flexible)
    with pytest.raises(WireError, match="null in place of an array"):
        reader.array(reader.int8)
    reader = Reader(null + b"\x07", 0, flexible)
    reader.skip_nullable_bytes()
    assert reader.int8() == 7


def test_array_of_more_elements_than_bytes_is_refused_before_the_first() -> None:
    with pytest.raises(WireError, match="an array of length 3"):
        primitives.array_length(b"\x00\x00\x00\x03ab", 0)
    with pytest.raises(WireError, match="an array of length 3"):
        primitives.compact_array_length(b"\x04ab", 0)
    for flexible, raw in ((False, b"\x00\x00\x00\x03ab"), (True, b"\x04ab")):
        reader = Reader(raw, 0, flexible)
        with pytest.raises(WireError, match="an array of 3"):
            reader.array(reader.int8)


@pytest.mark.parametrize("length", [-2, -(2**31)])
def test_reader_refuses_negative_lengths(length: int) -> None:
    raw = length.to_bytes(4, "big", signed=True) + bytes(10)
    for read in (Reader(raw, 0, False).byte_string, Reader(raw, 0, False).skip_nullable_bytes):
        with pytest.raises(WireError):
            read()


def test_compact_null_and_tagged_fields() -> None:
    assert primitives.compact_nullable_string(b"\x00", 0) == (None, 1)
    assert primitives.skip_tagged_fields(b"\x00", 0) == 1
    assert primitives.skip_tagged_fields(b"\x01\x05\x02ab!", 0) == 5
    with pytest.raises(WireError, match="a tagged field of length 2"):
        primitives.skip_tagged_fields(b"\x01\x05\x02a", 0)
