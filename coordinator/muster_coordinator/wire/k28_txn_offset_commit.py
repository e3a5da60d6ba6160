"""TxnOffsetCommit (28), versions 0 to 5 and with Kafka 4.4 to 6, flexible from 3.

- v1: as v0; a throttled answer is sent at once (KIP-219)
- v2: committed_leader_epoch (KIP-320). A client of v0 or v1 does not know COORDINATOR_LOAD_IN_PROGRESS here and is
  answered COORDINATOR_NOT_AVAILABLE in its place
- v3: flexible; generation_id, member_id, group_instance_id (KIP-447)
- v4: TRANSACTION_ABORTABLE (KIP-890)
- v5: adds the partition to the transaction by itself (KIP-890)
- v6: topic ids instead of names; a decoded request is then another type. GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH
  (KIP-1319)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests.groups import (
    PartitionResults,
    TxnOffsetCommitByIdRequest,
    TxnOffsetCommitByIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer

MIRROR_VERSION = 3
"""The version that a mirror sends to brokers, which have it from Kafka 2.5 on."""

_BY_ID_SINCE = 6

_Partition = tuple[int, int, int, str | None]


@guarded
def decode_request(
    header: RequestHeader, frame: bytes, client_host: str
) -> TxnOffsetCommitRequest | TxnOffsetCommitByIdRequest:
    version = header.api_version
    reader = Reader(frame, header.body_position, header.flexible)

    def partition() -> _Partition:
        value = (reader.int32(), reader.int64(), reader.int32() if version >= 2 else -1, reader.nullable_string())
        reader.tagged_fields()
        return value

    def topic() -> tuple[str, tuple[_Partition, ...]]:
        value = (reader.string(), reader.array(partition))
        reader.tagged_fields()
        return value

    def topic_by_id() -> tuple[bytes, tuple[_Partition, ...]]:
        value = (reader.uuid(), reader.array(partition))
        reader.tagged_fields()
        return value

    transactional_id, group_id = reader.string(), reader.string()
    producer_id, producer_epoch = reader.int64(), reader.int16()
    generation_id, member_id, group_instance_id = (
        (reader.int32(), reader.string(), reader.nullable_string()) if version >= 3 else (-1, "", None)
    )
    first = (transactional_id, group_id, producer_id, producer_epoch, generation_id, member_id, group_instance_id)
    request: TxnOffsetCommitRequest | TxnOffsetCommitByIdRequest
    if version >= _BY_ID_SINCE:
        request = TxnOffsetCommitByIdRequest(*first, reader.array(topic_by_id), version)
    else:
        request = TxnOffsetCommitRequest(*first, reader.array(topic), version)
    reader.tagged_fields()
    return request


def encode_response(version: int, response: TxnOffsetCommitResponse | TxnOffsetCommitByIdResponse) -> bytes:
    writer = Writer(API.flexible(version))

    def partition(value: tuple[int, int]) -> None:
        index, error_code = value
        if version < 2 and error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        writer.int32(index)
        writer.int16(error_code)
        writer.tagged_fields()

    def partitions(results: PartitionResults) -> None:
        writer.array(tuple(results), partition)
        writer.tagged_fields()

    def topic(value: tuple[str, PartitionResults]) -> None:
        writer.string(value[0])
        partitions(value[1])

    def topic_by_id(value: tuple[bytes, PartitionResults]) -> None:
        writer.uuid(value[0])
        partitions(value[1])

    writer.int32(0)
    if isinstance(response, TxnOffsetCommitByIdResponse):
        writer.array(response.topics, topic_by_id)
    else:
        writer.array(response.topics, topic)
    return writer.done()


def encode_request(
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    group_id: str,
    topics: Sequence[tuple[str, Sequence[_Partition]]],
) -> bytes:
    """The body of a request to a broker, in MIRROR_VERSION, of nobody who is a member. `topics`: for each its
    (partition, offset, leader epoch, metadata)."""
    writer = Writer(API.flexible(MIRROR_VERSION))
    writer.string(transactional_id)
    writer.string(group_id)
    writer.int64(producer_id)
    writer.int16(producer_epoch)
    writer.int32(-1)  # generation
    writer.string("")  # member
    writer.nullable_string(None)  # group instance
    writer.array(topics, partial(_write_topic, writer))
    return writer.done()


def _write_topic(writer: Writer, topic: tuple[str, Sequence[_Partition]]) -> None:
    writer.string(topic[0])
    writer.array(topic[1], partial(_write_partition, writer))
    writer.tagged_fields()


def _write_partition(writer: Writer, partition: _Partition) -> None:
    index, offset, leader_epoch, metadata = partition
    writer.int32(index)
    writer.int64(offset)
    writer.int32(leader_epoch)
    writer.nullable_string(metadata)
    writer.tagged_fields()


def decode_response(reader: Reader) -> tuple[tuple[str, tuple[tuple[int, int], ...]], ...]:
    """A broker's answer of MIRROR_VERSION: for each topic its (partition, error code). Raises what `Reader` raises."""
    reader.int32()  # throttle time
    return reader.array(partial(_read_results, reader))


def _read_results(reader: Reader) -> tuple[str, tuple[tuple[int, int], ...]]:
    value = (reader.string(), reader.array(partial(_read_result, reader)))
    reader.tagged_fields()
    return value


def _read_result(reader: Reader) -> tuple[int, int]:
    value = (reader.int32(), reader.int16())
    reader.tagged_fields()
    return value


API = Api(28, "TxnOffsetCommit", 0, 5, 3, decode_request, encode_response)
API_4_4 = replace(API, max_version=6)
