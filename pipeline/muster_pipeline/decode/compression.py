"""Decompression with a limit: a few kilobytes of a damaged or hostile file must not become gigabytes.

The codecs are those of `muster_coordinator.records.compression`; snappy's framing is read there, after its claimed
sizes were added up here.
"""

from __future__ import annotations

import cramjam

from muster_coordinator.records.compression import decompress as decompress_snappy

_SNAPPY = 2
_INTO = {1: cramjam.gzip.decompress_into, 3: cramjam.lz4.decompress_into, 4: cramjam.zstd.decompress_into}
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_GUESSED_RATIO = 8


class TooLargeError(ValueError):
    """The data decompresses to more than the limit."""


def decompress(codec: int, data: bytes, limit: int) -> bytes:
    """Decompress to at most `limit` bytes. Raises TooLargeError; ValueError on an unknown codec or damaged bytes."""
    if codec == _SNAPPY:
        if _snappy_size(data) > limit:
            raise TooLargeError(f"snappy data of {_snappy_size(data)} bytes, the limit is {limit}")
        try:
            return decompress_snappy(codec, data)
        except OverflowError as exc:
            raise ValueError(f"codec {codec}: {exc}") from exc
    into = _INTO.get(codec)
    if into is None:
        raise ValueError(f"unknown compression codec {codec}")
    room = min(limit, max(4096, _GUESSED_RATIO * len(data)))
    while True:
        out = bytearray(room)
        try:
            return bytes(memoryview(out)[: into(data, out)])
        except cramjam.DecompressionError as exc:
            if "whole buffer" not in str(exc):  # what cramjam says when the output does not fit
                raise ValueError(f"codec {codec}: {exc}") from exc
            if room >= limit:
                raise TooLargeError(f"more than {limit} bytes decompressed") from exc
        room = min(limit, 4 * room)


def _snappy_size(data: bytes) -> int:
    """Return the decompressed size that the blocks claim; 0 if they do not parse. Decompression then fails."""
    try:
        if not data.startswith(_XERIAL_MAGIC):
            return int(cramjam.snappy.decompress_raw_len(data))
        total = 0
        position = _XERIAL_HEADER_BYTES
        while position + 4 <= len(data):
            size = int.from_bytes(data[position : position + 4], "big", signed=True)
            position += 4
            if size <= 0:
                break
            total += int(cramjam.snappy.decompress_raw_len(data[position : position + size]))
            position += size
    except cramjam.DecompressionError:
        return 0
    return total
