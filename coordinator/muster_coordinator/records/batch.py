"""Record batch v2 (magic 2), as Kafka keeps it in segments and on the wire.

Layout, big-endian: baseOffset i64 | length i32 (of all after it) | partitionLeaderEpoch i32 | magic i8 | crc u32
(CRC-32C from attributes to the end) | attributes i16 | lastOffsetDelta i32 | baseTimestamp i64 | maxTimestamp i64 |
producerId i64 | producerEpoch i16 | baseSequence i32 | recordsCount i32 | records.
Record: length varint | attributes i8 | timestampDelta varint | offsetDelta varint | key length varint (-1 null) | key |
value length varint (-1 null) | value | headers count varint | headers. Varints are zig-zag.
Attributes of the batch: bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon.

Source: org.apache.kafka.common.record.DefaultRecordBatch, DefaultRecord; reference, section 3.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Any, Protocol, TypeAlias, TypeVar

from crc32c import crc32c

from muster_coordinator.records.compression import decompress
from muster_coordinator.records.structs import BatchRecord
from muster_coordinator.records.varint import SMALL, encode_varint, read_varint

HEADER_BYTES = 61
RECORD_OVERHEAD_BYTES = 21
"""The most bytes of a record beside key and value (DefaultRecord.MAX_RECORD_OVERHEAD)."""
LENGTH_OVERHEAD = 12
"""Bytes in front of what the length field counts: the base offset and the length itself."""

_CRC_START = 21
_PREFIX = Struct(">qiibI")  # base offset, length, leader epoch, magic, crc
_SUFFIX = Struct(">hiqqqhii")  # attributes ... records count: the start of what the CRC covers
_HEADER = Struct(">qiibIhiqqqhii")
_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_NO_SEQUENCE = -1
_SMALL_COUNT = len(SMALL)
_NULL = encode_varint(-1)


class RecordRun(Protocol):
    """Records that lie side by side in a batch, and are encoded together."""

    @property
    def count(self) -> int:
        """The number of records."""
        ...

    @property
    def bytes_max(self) -> int:
        """Upper bound of their size in a batch, as `batch_bytes` has it."""
        ...

    def encode(self, first_delta: int) -> bytes:
        """The records as they lie in a batch, the first of them with this offset delta."""
        ...


Encodable: TypeAlias = tuple[Any, ...] | RecordRun
"""One record, a tuple that begins with key and value (None: a tombstone), or several records."""

_EncodableT = TypeVar("_EncodableT", bound=Encodable)


class CorruptBatchError(Exception):
    """The bytes at `position` of the buffer are no whole, undamaged batch.

    `truncated`: the buffer ends before the batch does, and nothing else is known to be wrong: the caller may have to
    read on.
    """

    def __init__(self, position: int, reason: str, *, truncated: bool = False) -> None:
        super().__init__(f"at byte {position}: {reason}")
        self.position = position
        self.reason = reason
        self.truncated = truncated


class RecordBatch:
    """One batch whose CRC was checked. `data` is all of it; records are decoded only when asked for."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp_ms",
        "crc",
        "data",
        "last_offset_delta",
        "leader_epoch",
        "max_timestamp_ms",
        "producer_epoch",
        "producer_id",
        "records_count",
    )

    def __init__(
        self,
        data: bytes,
        base_offset: int,
        leader_epoch: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp_ms: int,
        max_timestamp_ms: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        records_count: int,
    ) -> None:
        self.data = data
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp_ms = base_timestamp_ms
        self.max_timestamp_ms = max_timestamp_ms
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.records_count = records_count

    @property
    def end_offset(self) -> int:
        """Offset after the batch. Compaction keeps it even where it removed the last records."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    def records(self) -> list[BatchRecord]:
        """All records, decompressed. Raises CorruptBatchError (position 0: within this batch) if they do not parse."""
        return [record for records in self.slices(self.records_count or 1) for record in records]

    def slices(self, size: int) -> Iterator[list[BatchRecord]]:
        """The same, `size` records at a time: a batch of a megabyte is some milliseconds of work. Nothing is said
        about those that follow.
        """
        try:
            yield from self._decode_records(size)
        except (IndexError, ValueError) as exc:
            raise CorruptBatchError(
                0, f"records of the batch at offset {self.base_offset} do not parse: {exc}"
            ) from exc

    def _decode_records(self, size: int) -> Iterator[list[BatchRecord]]:
        codec = self.attributes & _CODEC_MASK
        body, position = (self.data, HEADER_BYTES) if codec == 0 else (decompress(codec, self.data[HEADER_BYTES:]), 0)
        end = len(body)
        fixed_time = self.max_timestamp_ms if self.attributes & _LOG_APPEND_TIME else None
        # with the delete-horizon bit the base timestamp is the purge time; deltas still count from it
        # Varints of one byte are read in place: nearly all are, and this loop is half of what a load does.
        base_offset, base_timestamp_ms = self.base_offset, self.base_timestamp_ms
        for start in range(0, self.records_count, size):
            out: list[BatchRecord] = []
            for _ in range(min(size, self.records_count - start)):
                length, position = read_varint(body, position)
                record_end = position + length
                if length < 0 or record_end > end:
                    raise ValueError(f"record of {length} bytes at byte {position} of {end}")
                at = position + 2
                delta_ms = body[at - 1]
                if delta_ms < 0x80:
                    delta_ms = (delta_ms >> 1) ^ -(delta_ms & 1)
                else:
                    delta_ms, at = read_varint(body, at - 1)
                offset_delta = body[at]
                if offset_delta < 0x80:
                    offset_delta = (offset_delta >> 1) ^ -(offset_delta & 1)
                    at += 1
                else:
                    offset_delta, at = read_varint(body, at)
                key, at = _read_bytes(body, at, record_end)
                value, at = _read_bytes(body, at, record_end)
                timestamp_ms = base_timestamp_ms + delta_ms if fixed_time is None else fixed_time
                out.append(BatchRecord(base_offset + offset_delta, timestamp_ms, key, value))
                position = record_end
            yield out
        if position != end:
            raise ValueError(f"{end - position} bytes after the last record")


def _read_bytes(body: bytes, position: int, limit: int) -> tuple[bytes | None, int]:
    length = body[position]
    if length < 0x80:
        length = (length >> 1) ^ -(length & 1)
        position += 1
    else:
        length, position = read_varint(body, position)
    if length < 0:
        return None, position
    end = position + length
    if end > limit:
        raise ValueError(f"field of {length} bytes at byte {position} leaves its record")
    return body[position:end], end


def encode_record(offset_delta: int, key: bytes, value: bytes | None) -> bytes:
    """One record as it lies in a batch. A value of None is a tombstone."""
    delta = SMALL[offset_delta] if offset_delta < _SMALL_COUNT else encode_varint(offset_delta)
    key_size = len(key)
    key_length = SMALL[key_size] if key_size < _SMALL_COUNT else encode_varint(key_size)
    if value is None:
        value_length = _NULL
        value = b""
    else:
        value_size = len(value)
        value_length = SMALL[value_size] if value_size < _SMALL_COUNT else encode_varint(value_size)
    # attributes and timestamp delta are one zero byte each; so is the count of headers at the end
    size = len(delta) + len(key_length) + key_size + len(value_length) + len(value) + 3
    length = SMALL[size] if size < _SMALL_COUNT else encode_varint(size)
    return b"%b\0\0%b%b%b%b%b\0" % (length, delta, key_length, key, value_length, value)


def encode_batch(
    records: Sequence[Encodable],
    *,
    base_offset: int,
    leader_epoch: int,
    timestamp_ms: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = 0,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """One uncompressed batch of one record or more.

    All records get `timestamp_ms` (create time). As Kafka's coordinator writes them (MemoryRecordsBuilder; reference,
    section 3.4), `base_sequence` is 0 even without a producer id, and -1 in every control batch.
    """
    parts: list[bytes] = [b""]
    delta = 0
    for record in records:
        if isinstance(record, tuple):
            parts.append(encode_record(delta, record[0], record[1]))
            delta += 1
        else:
            parts.append(record.encode(delta))
            delta += record.count
    if not delta:
        raise ValueError("a batch needs at least one record")
    attributes = _TRANSACTIONAL if transactional else 0
    if control:
        attributes |= _CONTROL
        base_sequence = _NO_SEQUENCE
    parts[0] = _SUFFIX.pack(
        attributes, delta - 1, timestamp_ms, timestamp_ms, producer_id, producer_epoch, base_sequence, delta
    )
    checked = b"".join(parts)
    return _PREFIX.pack(base_offset, len(checked) + 9, leader_epoch, 2, crc32c(checked)) + checked


def count_of(records: Iterable[Encodable]) -> int:
    """The number of records."""
    count = 0
    for record in records:
        count += 1 if isinstance(record, tuple) else record.count
    return count


def placed(batch: RecordBatch, base_offset: int, leader_epoch: int) -> bytes:
    """The bytes of `batch` at another offset and in another epoch, neither of which its CRC covers."""
    data = batch.data
    return base_offset.to_bytes(8, "big") + data[8:12] + leader_epoch.to_bytes(4, "big", signed=True) + data[16:]


def batch_bytes(records: Iterable[Encodable]) -> int:
    """Upper bound of the size of a batch, as Kafka estimates it before it writes one
    (AbstractRecords#estimateSizeInBytes)."""
    size = HEADER_BYTES
    for record in records:
        if isinstance(record, tuple):
            size += RECORD_OVERHEAD_BYTES + len(record[0]) + len(record[1] or b"")
        else:
            size += record.bytes_max
    return size


def split_records(records: Iterable[_EncodableT], bytes_max: int) -> Iterator[list[_EncodableT]]:
    """Splits records, in order, into as few batches of at most `bytes_max` as hold them; what is encoded together
    stays together, and may be larger alone."""
    part: list[_EncodableT] = []
    size = HEADER_BYTES
    for record in records:
        added = batch_bytes((record,)) - HEADER_BYTES
        if part and size + added > bytes_max:
            yield part
            part, size = [], HEADER_BYTES
        part.append(record)
        size += added
    if part:
        yield part


def read_batch(buffer: bytes, position: int = 0) -> RecordBatch:
    """The batch at `position`; its size is `len(result.data)`. Raises CorruptBatchError."""
    available = len(buffer) - position
    if available < HEADER_BYTES:
        raise CorruptBatchError(position, f"{available} bytes are no batch header", truncated=True)
    fields = _HEADER.unpack_from(buffer, position)
    base_offset, length, leader_epoch, magic, crc = fields[:5]
    if magic != 2:
        raise CorruptBatchError(position, f"magic {magic}, expected 2")
    size = length + LENGTH_OVERHEAD
    if size < HEADER_BYTES:
        raise CorruptBatchError(position, f"length {length} is less than a batch header")
    if size > available:
        raise CorruptBatchError(position, f"batch of {size} bytes, {available} are there", truncated=True)
    data = buffer[position : position + size]
    if crc32c(memoryview(data)[_CRC_START:]) != crc:
        raise CorruptBatchError(position, f"CRC-32C of the batch at offset {base_offset} does not match")
    if base_offset < 0 or fields[6] < 0 or fields[12] < 0:
        raise CorruptBatchError(position, "negative base offset, last offset delta or record count")
    return RecordBatch(data, base_offset, leader_epoch, crc, *fields[5:])


def iter_batches(buffer: bytes, position: int = 0) -> Iterator[RecordBatch]:
    """All batches from `position` to the end of the buffer. Raises CorruptBatchError where one is damaged or cut
    off.
    """
    end = len(buffer)
    while position < end:
        batch = read_batch(buffer, position)
        yield batch
        position += len(batch.data)
