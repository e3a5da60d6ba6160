"""Bytes of a journal file.

A file is a sequence of frames, one per write, and after them zeros or what is left of the file's earlier use.
Frame, big-endian: magic "MJF1" | hash of the file's sequence, 8 bytes | write number i64 | payload bytes u32 | payload
CRC-32C u32 | CRC-32C of the 28 bytes before u32 | payload. Write numbers count up by one, over all files.
Payload: entries, each: kind i8 | partition i32 | log id hash i64 | base offset i64 | end offset i64 | data bytes u32 |
data.

kind      base offset        end offset           data
APPEND    of the batch       after the batch     the record batch; none: the log goes on after, without records
TRUNCATE  0                  new end of the log   none
END       0                  end of the log       none: what the log held durably before this file or run
START     last write number  0                    boot id, ASCII: a run of the pod begins, or a file; END of every log
follows

The sequence's hash in each frame tells it from frames of the file's earlier use; a hash, because a search for bytes
that are mostly zeros, in a file that is mostly zeros, is slow. One frame per write, with one CRC, makes a torn write
a frame that is not valid and has no valid frame of a higher write number after it: the next write starts only when
this one is durable.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct

import msgspec
from crc32c import crc32c

APPEND = 1
TRUNCATE = 2
END = 3
START = 4

MAGIC = b"MJF1"
ENTRY = Struct(">biqqqI")
_HEAD = Struct(">12sqII")
_CRC = Struct(">I")
FRAME_BYTES = _HEAD.size + _CRC.size


class Entry(msgspec.Struct, frozen=True, gc=False):
    """`position` and `size`: of the data, within the file."""

    kind: int
    partition: int
    log_hash: int
    base_offset: int
    end_offset: int
    position: int
    data: bytes


class Frame(msgspec.Struct, frozen=True, gc=False):
    """`position`: of the frame, within the file."""

    write_number: int
    position: int
    payload: bytes


class FrameScan(msgspec.Struct, frozen=True):
    """`end`: after the last valid frame. `holes`: frames between which something acknowledged is unreadable, as
    (index of the first frame after it, position).
    """

    frames: list[Frame]
    end: int
    holes: list[tuple[int, int]]


def hash_log_id(log_id: str) -> int:
    return int.from_bytes(blake2b(log_id.encode(), digest_size=8).digest(), "big", signed=True)


def file_mark(sequence: int) -> bytes:
    """The first bytes of every frame of file `sequence`."""
    return MAGIC + blake2b(sequence.to_bytes(8, "big"), digest_size=8).digest()


def encode_frame_head(mark: bytes, write_number: int, payload: bytes) -> bytes:
    head = _HEAD.pack(mark, write_number, len(payload), crc32c(payload))
    return head + _CRC.pack(crc32c(head))


def scan_frames(data: bytes, sequence: int) -> FrameScan:
    """All valid frames of a file's content."""
    frames: list[Frame] = []
    holes: list[tuple[int, int]] = []
    position = end = 0
    mark = file_mark(sequence)
    while True:
        frame = _frame_at(data, position, mark)
        if frame is not None and (not frames or frame.write_number > frames[-1].write_number):
            if end != position or (frames and frame.write_number != frames[-1].write_number + 1):
                holes.append((len(frames), end))
            frames.append(frame)
            position = end = position + FRAME_BYTES + len(frame.payload)
            continue
        position = data.find(mark, position + 1)
        if position < 0:
            return FrameScan(frames, end, holes)


def _frame_at(data: bytes, position: int, mark: bytes) -> Frame | None:
    start = position + FRAME_BYTES
    if start > len(data):
        return None
    found_mark, write_number, size, payload_crc = _HEAD.unpack_from(data, position)
    if found_mark != mark or start + size > len(data):
        return None
    if crc32c(data[position : position + _HEAD.size]) != _CRC.unpack_from(data, position + _HEAD.size)[0]:
        return None
    payload = data[start : start + size]
    return Frame(write_number, position, payload) if crc32c(payload) == payload_crc else None


def entries_of(frame: Frame) -> Iterator[Entry]:
    """Entries of a frame whose CRC was checked."""
    payload = frame.payload
    at = 0
    while at < len(payload):
        kind, partition, log_hash, base, end, size = ENTRY.unpack_from(payload, at)
        at += ENTRY.size
        yield Entry(kind, partition, log_hash, base, end, frame.position + FRAME_BYTES + at, payload[at : at + size])
        at += size
