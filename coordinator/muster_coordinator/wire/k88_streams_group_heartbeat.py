"""StreamsGroupHeartbeat (88), version 0, flexible: Streams groups (KIP-1071).

Always refused: UNSUPPORTED_VERSION, and a text. Kafka answers so where the protocol is switched off, and clients tell
their application so.
"""

from __future__ import annotations

from muster_coordinator.requests.cluster import OtherProtocolRequest, OtherProtocolResponse
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> OtherProtocolRequest:
    reader = Reader(frame, header.body_position, header.flexible)
    request = OtherProtocolRequest(reader.string(), reader.string())
    reader.int32()  # member_epoch
    reader.int32()  # endpoint_information_epoch
    reader.nullable_string()  # instance_id
    reader.nullable_string()  # rack_id
    reader.int32()  # rebalance_timeout_ms
    if reader.int8() >= 0:
        _skip_topology(reader)
    for _ in range(3):
        reader.nullable_array(lambda: _skip_task_ids(reader))  # active, standby, warm-up
    reader.nullable_string()  # process_id
    if reader.int8() >= 0:  # user_endpoint
        reader.string()
        reader.int16()
        reader.tagged_fields()
    reader.nullable_array(lambda: _skip_pair(reader))  # client_tags
    for _ in range(2):
        reader.nullable_array(lambda: _skip_task_offset(reader))  # offsets, end offsets
    reader.boolean()  # shutdown_application
    reader.tagged_fields()
    return request


def _skip_topology(reader: Reader) -> None:
    reader.int32()  # epoch
    reader.nullable_array(lambda: _skip_subtopology(reader))
    reader.tagged_fields()


def _skip_subtopology(reader: Reader) -> None:
    reader.string()
    reader.array(reader.string)  # source_topics
    reader.array(reader.string)  # source_topic_regex
    reader.array(lambda: _skip_topic(reader))  # state_changelog_topics
    reader.array(reader.string)  # repartition_sink_topics
    reader.array(lambda: _skip_topic(reader))  # repartition_source_topics
    reader.array(lambda: _skip_copartition_group(reader))
    reader.tagged_fields()


def _skip_topic(reader: Reader) -> None:
    reader.string()
    reader.int32()  # partitions
    reader.int16()  # replication_factor
    reader.array(lambda: _skip_pair(reader))  # topic_configs
    reader.tagged_fields()


def _skip_copartition_group(reader: Reader) -> None:
    for _ in range(3):
        reader.array(reader.int16)  # of source topics, of their expressions, of repartition topics
    reader.tagged_fields()


def _skip_task_ids(reader: Reader) -> None:
    reader.string()  # subtopology_id
    reader.array(reader.int32)
    reader.tagged_fields()


def _skip_task_offset(reader: Reader) -> None:
    reader.string()  # subtopology_id
    reader.int32()  # partition
    reader.int64()
    reader.tagged_fields()


def _skip_pair(reader: Reader) -> None:
    reader.string()
    reader.string()
    reader.tagged_fields()


def encode_response(version: int, response: OtherProtocolResponse) -> bytes:
    writer = Writer(API.flexible(version))
    writer.int32(0)
    writer.int16(response.error_code)
    writer.nullable_string(response.error_message)
    writer.string("")  # member_id
    for _ in range(4):
        writer.int32(0)  # member_epoch, heartbeat_interval_ms, acceptable_recovery_lag, task_offset_interval_ms
    writer.array((), writer.int8)  # status
    for _ in range(3):
        writer.null_array()  # active, standby and warm-up tasks
    writer.int32(0)  # endpoint_information_epoch
    writer.null_array()  # partitions_by_user_endpoint
    return writer.done()


API = Api(88, "StreamsGroupHeartbeat", 0, 0, 0, decode_request, encode_response)
