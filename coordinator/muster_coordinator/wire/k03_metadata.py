"""Metadata (3), versions 0 to 13, flexible from 9.

- v0: no topics asks for all of them
- v1: null topics asks for all of them, none for none; controller_id, rack, is_internal in the response
- v2: cluster_id in the response
- v3: throttle_time_ms in the response
- v4: allow_auto_topic_creation
- v5: offline_replicas in the response (KIP-112)
- v6: as v5; a throttled answer is sent at once (KIP-219)
- v7: leader_epoch in the response (KIP-320)
- v8: authorized operations (KIP-430)
- v9: flexible
- v10: topic_id (KIP-516)
- v11: authorized operations of the cluster are gone (DescribeCluster has them: KIP-700)
- v12: topics by id, with a null name (KIP-516)
- v13: error_code at the top of the response (KIP-1102)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from muster_coordinator.records.structs import NO_TOPIC_ID
from muster_coordinator.requests.cluster import (
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
    SpreadPartitions,
)
from muster_coordinator.requests.slices import SLICE_ENTRIES
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, SlicedWriter, Writer

MIRROR_VERSION = 12
"""The version in which a mirror asks brokers."""
_BY_ID_SINCE = 12


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> MetadataRequest:
    version = header.api_version
    reader = Reader(frame, header.body_position, header.flexible)

    def topic() -> MetadataRequestTopic:
        topic_id = reader.uuid() if version >= 10 else NO_TOPIC_ID
        # v10 and v11 have the null name in their schema already; Kafka's clients use it from v12.
        name = reader.nullable_string() if version >= 10 else reader.string()
        reader.tagged_fields()
        return MetadataRequestTopic(name, topic_id)

    topics = reader.nullable_array(topic) if version >= 1 else (reader.array(topic) or None)
    if topics and version >= _BY_ID_SINCE:
        topics = _by_id(topics) or topics
    auto_creation = reader.boolean() if version >= 4 else True
    cluster_operations = reader.boolean() if 8 <= version <= 10 else False
    topic_operations = reader.boolean() if version >= 8 else False
    reader.tagged_fields()
    return MetadataRequest(topics, auto_creation, cluster_operations, topic_operations)


def _by_id(topics: tuple[MetadataRequestTopic, ...]) -> tuple[MetadataRequestTopic, ...]:
    """The topics that have an id, without names: these do not count then (KafkaApis), and Java's consumers send ""."""
    return tuple([MetadataRequestTopic(None, each.topic_id) for each in topics if each.topic_id != NO_TOPIC_ID])


def encode_response(version: int, response: MetadataResponse) -> bytes:
    return b"".join(_slices(version, response))


def slices(version: int, response: MetadataResponse) -> Iterator[bytes] | None:
    return _slices(version, response) if len(response.topics) > SLICE_ENTRIES else None


def _slices(version: int, response: MetadataResponse) -> Iterator[bytes]:
    writer = SlicedWriter(API.flexible(version))

    def broker(value: MetadataBroker) -> None:
        writer.int32(value.node_id)
        writer.string(value.host)
        writer.int32(value.port)
        if version >= 1:
            writer.nullable_string(value.rack)
        writer.tagged_fields()

    if version >= 3:
        writer.int32(0)
    writer.array(response.brokers, broker)
    if version >= 2:
        writer.nullable_string(response.cluster_id)
    if version >= 1:
        writer.int32(response.controller_id)
    writer.array_length(len(response.topics))
    for value in response.topics:
        _topic(writer, version, value)
        if writer.is_full():
            yield writer.taken()
    if 8 <= version <= 10:
        writer.int32(response.cluster_authorized_operations)
    if version >= 13:
        writer.int16(response.error_code)
    yield writer.done()


def _topic(writer: Writer, version: int, value: MetadataTopic) -> None:
    writer.int16(value.error_code)
    writer.nullable_string(value.name if version >= 12 else value.name or "")
    if version >= 10:
        writer.uuid(value.topic_id)
    if version >= 1:
        writer.boolean(value.is_internal)
    partitions = value.partitions
    if isinstance(partitions, SpreadPartitions):
        writer.packed_array(partitions.count, _spread(version, partitions))
    else:
        writer.array_length(len(partitions))
        for each in partitions:
            _partition(writer, version, each)
    if version >= 8:
        writer.int32(value.authorized_operations)
    writer.tagged_fields()


def _partition(writer: Writer, version: int, value: MetadataPartition) -> None:
    writer.int16(value.error_code)
    writer.int32(value.partition)
    writer.int32(value.leader_id)
    if version >= 7:
        writer.int32(value.leader_epoch)
    writer.int32_array(value.replicas)
    writer.int32_array(value.isr)
    if version >= 5:
        writer.int32_array(value.offline_replicas)
    writer.tagged_fields()


_ENCODED: dict[tuple[int, tuple[int, ...]], tuple[int, bytes]] = {}
"""The size (bytes) of one encoded partition, and the encoded partitions of the topic that has most of them, by version
and nodes. The partitions of a smaller topic are the first of these."""

_ENCODED_MAX = 32
"""Versions that clients ask with, by listeners and sets of pods; then the memory starts anew."""

_INDEX = struct.Struct(">i")
_INDEX_START, _INDEX_END = 2, 6
"""The place of the index in an element of the array of partitions: behind the error code, in all versions."""


def _spread(version: int, partitions: SpreadPartitions) -> bytes:
    """The elements of the array of partitions. They are made once, as many clients ask for the same topics."""
    key = (version, partitions.nodes)
    size, found = _ENCODED.get(key, (0, b""))
    if not size or len(found) < size * partitions.count:
        if len(_ENCODED) >= _ENCODED_MAX:
            _ENCODED.clear()
        size, found = _ENCODED[key] = len(_element(version, partitions, 0)), _elements(version, partitions)
    return found[: size * partitions.count]


def _elements(version: int, partitions: SpreadPartitions) -> bytes:
    """The encoded partitions. Those that the same node leads differ only in their index."""
    period = max(1, len(partitions.nodes))
    samples = [_element(version, partitions, index) for index in range(period)]
    heads = [sample[:_INDEX_START] for sample in samples]
    rests = [sample[_INDEX_END:] for sample in samples]
    pack = _INDEX.pack
    return b"".join([heads[index % period] + pack(index) + rests[index % period] for index in range(partitions.count)])


def _element(version: int, partitions: SpreadPartitions, index: int) -> bytes:
    writer = Writer(API.flexible(version))
    _partition(writer, version, partitions.partition(index))
    return writer.so_far()


def encode_request(names: tuple[str, ...] | None) -> bytes:
    """The body of a request to a broker for topics by their names, or for all of them, in MIRROR_VERSION."""
    return _request_body(None if names is None else [(NO_TOPIC_ID, name) for name in names])


def encode_request_by_id(topic_ids: tuple[bytes, ...]) -> bytes:
    """The body of a request to a broker for topics by their ids, in MIRROR_VERSION."""
    return _request_body([(topic_id, None) for topic_id in topic_ids])


def _request_body(topics: Sequence[tuple[bytes, str | None]] | None) -> bytes:
    writer = Writer(API.flexible(MIRROR_VERSION))

    def topic(value: tuple[bytes, str | None]) -> None:
        writer.uuid(value[0])
        writer.nullable_string(value[1])
        writer.tagged_fields()

    if topics is None:
        writer.null_array()
    else:
        writer.array(topics, topic)
    writer.boolean(False)  # allow_auto_topic_creation
    writer.boolean(False)  # include_topic_authorized_operations
    return writer.done()


def decode_response(reader: Reader) -> MetadataResponse:
    """A broker's answer of MIRROR_VERSION. Raises what `Reader` raises."""

    def broker() -> MetadataBroker:
        value = MetadataBroker(reader.int32(), reader.string(), reader.int32(), reader.nullable_string())
        reader.tagged_fields()
        return value

    def partition() -> MetadataPartition:
        code = reader.int16()
        index, leader, epoch = reader.int32(), reader.int32(), reader.int32()
        replicas = (reader.array(reader.int32), reader.array(reader.int32), reader.array(reader.int32))
        reader.tagged_fields()
        return MetadataPartition(index, leader, code, epoch, *replicas)

    def topic() -> MetadataTopic:
        code, name, topic_id = reader.int16(), reader.nullable_string(), reader.uuid()
        internal, partitions = reader.boolean(), reader.array(partition)
        value = MetadataTopic(name, topic_id, code, internal, partitions, reader.int32())
        reader.tagged_fields()
        return value

    reader.int32()  # throttle time
    brokers = reader.array(broker)
    cluster_id, controller_id = reader.nullable_string(), reader.int32()
    return MetadataResponse(brokers, cluster_id, controller_id, reader.array(topic))


API = Api(3, "Metadata", 0, 13, 9, decode_request, encode_response, slices)
