"""Fetch (1), versions 4 to 18, flexible from 12. Answers never hold records: a coordinator has none.
A mirror asks brokers for theirs, in version 13.

- v4: isolation_level, last stable offset and aborted transactions (KIP-98; v0 to v3 are gone: KIP-896)
- v5: log_start_offset (KIP-107)
- v6: as v5; KAFKA_STORAGE_ERROR
- v7: fetch sessions, error_code at the top of the response (KIP-227)
- v8: as v7; a throttled answer is sent at once (KIP-219)
- v9: current_leader_epoch (KIP-320)
- v10: as v9; zstd (KIP-110)
- v11: rack_id, preferred_read_replica (KIP-392)
- v12: flexible; last_fetched_epoch (KIP-595); cluster id and diverging epoch in tagged fields
- v13: topic_id instead of the topic's name (KIP-516)
- v14: as v13; OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405)
- v15: replica_id moves to a tagged field, which consumers leave out (KIP-903)
- v16: as v15; addresses of new leaders in a tagged field of the response (KIP-951)
- v17: as v16; directory id of a replica in a tagged field (KIP-853)
- v18: as v17; high watermark of a replica in a tagged field (KIP-1166)
"""

from __future__ import annotations

from collections.abc import Iterator

from muster_coordinator.records.structs import NO_TOPIC_ID
from muster_coordinator.requests.cluster import FetchRequest, FetchResponse, FetchTopic
from muster_coordinator.requests.slices import SLICE_ENTRIES
from muster_coordinator.requests.upstream import (
    FetchedRecords,
    FetchRecordsRequest,
    FetchRecordsResponse,
    PartitionToFetch,
)
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, SlicedWriter, Writer

RECORDS_VERSION = 13
"""The first version that names the topic by its id: a broker that has another topic of that name says so."""
_DIVERGING = 0  # tag of a partition in an answer


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> FetchRequest:
    version = header.api_version
    reader = Reader(frame, header.body_position, header.flexible)

    def topic() -> FetchTopic:
        name, topic_id = (None, reader.uuid()) if version >= 13 else (reader.string(), NO_TOPIC_ID)
        partitions = reader.array(lambda: _partition(reader, version))
        reader.tagged_fields()
        return FetchTopic(name, topic_id, partitions)

    def forgotten_topic() -> None:
        _ = reader.uuid() if version >= 13 else reader.string()
        reader.array(reader.int32)
        reader.tagged_fields()

    if version <= 14:
        reader.int32()  # replica_id
    max_wait_ms = reader.int32()
    min_bytes = reader.int32()
    reader.int32()  # max_bytes
    reader.int8()  # isolation_level
    session_id, session_epoch = (reader.int32(), reader.int32()) if version >= 7 else (0, -1)
    topics = reader.array(topic)
    if version >= 7:
        reader.array(forgotten_topic)
    if version >= 11:
        reader.string()  # rack_id
    reader.tagged_fields()
    return FetchRequest(max_wait_ms, min_bytes, session_id, session_epoch, topics)


def _partition(reader: Reader, version: int) -> tuple[int, int, int]:
    index = reader.int32()
    current_leader_epoch = reader.int32() if version >= 9 else -1
    fetch_offset = reader.int64()
    if version >= 12:
        reader.int32()  # last_fetched_epoch
    if version >= 5:
        reader.int64()  # log_start_offset, of a follower
    reader.int32()  # partition_max_bytes
    reader.tagged_fields()
    return index, current_leader_epoch, fetch_offset


def encode_response(version: int, response: FetchResponse) -> bytes:
    return b"".join(_slices(version, response))


def slices(version: int, response: FetchResponse) -> Iterator[bytes] | None:
    entries = sum([1 + len(topic.partitions) for topic in response.topics])
    return _slices(version, response) if entries > SLICE_ENTRIES else None


def _slices(version: int, response: FetchResponse) -> Iterator[bytes]:
    writer = SlicedWriter(API.flexible(version))
    writer.int32(0)
    if version >= 7:
        writer.int16(response.error_code)
        writer.int32(response.session_id)
    writer.array_length(len(response.topics))
    for value in response.topics:
        if version >= 13:
            writer.uuid(value.topic_id)
        else:
            writer.string(value.name or "")
        writer.array_length(len(value.partitions))
        for partition in value.partitions:
            _answered_partition(writer, version, partition)
            if writer.is_full():
                yield writer.taken()
        writer.tagged_fields()
    yield writer.done()


def _answered_partition(writer: Writer, version: int, value: tuple[int, int, int]) -> None:
    index, error_code, high_watermark = value
    writer.int32(index)
    writer.int16(error_code)
    writer.int64(high_watermark)
    writer.int64(high_watermark)  # last_stable_offset: no transaction is ever open
    if version >= 5:
        writer.int64(-1 if error_code else 0)  # log_start_offset
    if error_code:
        writer.array((), writer.int32)  # aborted_transactions: empty with an error, otherwise null, as in Kafka
    else:
        writer.null_array()
    if version >= 11:
        writer.int32(-1)  # preferred_read_replica
    writer.byte_string(b"")  # records: empty, not null, as Kafka sends it
    writer.tagged_fields()


def encode_request(request: FetchRecordsRequest) -> bytes:
    """The body of a request for records to a broker, in RECORDS_VERSION."""
    writer = Writer(API.flexible(RECORDS_VERSION))

    def partition(value: PartitionToFetch) -> None:
        writer.int32(value.partition)
        writer.int32(value.leader_epoch)
        writer.int64(value.offset)
        writer.int32(value.last_epoch)
        writer.int64(-1)  # log_start_offset, of a follower
        writer.int32(request.partition_max_bytes)
        writer.tagged_fields()

    def topic(partitions: tuple[PartitionToFetch, ...]) -> None:
        writer.uuid(request.topic_id)
        writer.array(partitions, partition)
        writer.tagged_fields()

    writer.int32(-1)  # replica_id: a consumer
    writer.int32(request.max_wait_ms)
    writer.int32(1)  # min_bytes
    writer.int32(request.max_bytes)
    writer.int8(0)  # isolation_level: read_uncommitted
    writer.int32(0)  # session_id
    writer.int32(-1)  # session_epoch
    writer.array((request.partitions,), topic)
    writer.array((), writer.int32)  # forgotten_topics_data
    writer.string("")  # rack_id
    return writer.done()


def decode_response(reader: Reader) -> FetchRecordsResponse:
    """A broker's answer of RECORDS_VERSION. Raises what `Reader` raises."""

    def aborted() -> None:
        reader.int64()
        reader.int64()
        reader.tagged_fields()

    def partition() -> FetchedRecords:
        index, code, high_watermark = reader.int32(), reader.int16(), reader.int64()
        reader.int64()  # last_stable_offset
        reader.int64()  # log_start_offset
        reader.nullable_array(aborted)
        reader.int32()  # preferred_read_replica
        records = reader.nullable_bytes() or b""
        diverging = reader.tagged_values().get(_DIVERGING)
        return FetchedRecords(index, code, high_watermark, _epoch_and_end(diverging), records)

    def topic() -> tuple[FetchedRecords, ...]:
        reader.uuid()
        value = reader.array(partition)
        reader.tagged_fields()
        return value

    reader.int32()  # throttle time
    code = reader.int16()
    reader.int32()  # session id
    topics = reader.array(topic)
    return FetchRecordsResponse(code, tuple(each for partitions in topics for each in partitions))


def _epoch_and_end(diverging: bytes | None) -> tuple[int, int] | None:
    if diverging is None:
        return None
    reader = Reader(diverging, 0, flexible=True)
    return reader.int32(), reader.int64()


API = Api(1, "Fetch", 4, 18, 12, decode_request, encode_response, slices)
