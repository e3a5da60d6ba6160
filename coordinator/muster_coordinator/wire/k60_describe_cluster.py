"""DescribeCluster (60), versions 0 to 2, flexible (KIP-700).

- v1: endpoint_type (KIP-919)
- v2: fenced brokers (KIP-1073)
"""

from __future__ import annotations

from muster_coordinator.requests.cluster import DescribeClusterRequest, DescribeClusterResponse, MetadataBroker
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer

ENDPOINT_TYPE_BROKERS = 1


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> DescribeClusterRequest:
    version = header.api_version
    reader = Reader(frame, header.body_position, header.flexible)
    include_cluster_authorized_operations = reader.boolean()
    endpoint_type = reader.int8() if version >= 1 else ENDPOINT_TYPE_BROKERS
    include_fenced_brokers = reader.boolean() if version >= 2 else False
    reader.tagged_fields()
    return DescribeClusterRequest(include_cluster_authorized_operations, endpoint_type, include_fenced_brokers)


def encode_response(version: int, response: DescribeClusterResponse) -> bytes:
    writer = Writer(API.flexible(version))

    def broker(value: MetadataBroker) -> None:
        writer.int32(value.node_id)
        writer.string(value.host)
        writer.int32(value.port)
        writer.nullable_string(value.rack)
        if version >= 2:
            writer.boolean(value.is_fenced)
        writer.tagged_fields()

    writer.int32(0)
    writer.int16(response.error_code)
    writer.nullable_string(response.error_message)
    if version >= 1:
        writer.int8(response.endpoint_type)
    writer.string(response.cluster_id)
    writer.int32(response.controller_id)
    writer.array(response.brokers, broker)
    writer.int32(response.cluster_authorized_operations)
    return writer.done()


API = Api(60, "DescribeCluster", 0, 2, 0, decode_request, encode_response)
