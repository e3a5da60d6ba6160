"""Decompression of record batches that a Kafka broker wrote; the coordinator itself writes uncompressed ones.

Codecs by the low three bits of the batch attributes: 1 gzip, 2 snappy (xerial's framing, or a raw block as some clients
write it), 3 lz4 (frame format), 4 zstd. Source: org.apache.kafka.common.record.CompressionType; snappy-java's
SnappyOutputStream.
"""

from __future__ import annotations

import cramjam

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16  # magic, then two int32: version and lowest compatible version


def decompress(codec: int, data: bytes) -> bytes:
    """Raises ValueError on an unknown codec or bytes that do not decompress."""
    try:
        if codec == 1:
            return bytes(cramjam.gzip.decompress(data))
        if codec == 2:
            return _decompress_snappy(data)
        if codec == 3:
            return bytes(cramjam.lz4.decompress(data))
        if codec == 4:
            return bytes(cramjam.zstd.decompress(data))
    except cramjam.DecompressionError as exc:
        raise ValueError(f"codec {codec}: {exc}") from exc
    raise ValueError(f"unknown compression codec {codec}")


def _decompress_snappy(data: bytes) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return bytes(cramjam.snappy.decompress_raw(data))
    out: list[bytes] = []
    position = _XERIAL_HEADER_BYTES
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        position += 4
        if size < 0 or position + size > len(data):
            raise ValueError(f"snappy block of {size} bytes at byte {position} of {len(data)}")
        out.append(bytes(cramjam.snappy.decompress_raw(data[position : position + size])))
        position += size
    return b"".join(out)
