"""DescribeClientQuotas (48), versions 0 to 1, flexible from 1 (KIP-546). There are no quotas; without an answer Kafka's
kafka-configs would not show users either.

- v1: flexible
"""

from __future__ import annotations

from muster_coordinator.requests.security import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> DescribeClientQuotasRequest:
    """Decodes a request of which nothing matters: there is no quota to be told."""
    reader = Reader(frame, header.body_position, header.flexible)

    def component() -> None:
        reader.string()
        reader.int8()
        reader.nullable_string()
        reader.tagged_fields()

    reader.array(component)
    reader.boolean()
    reader.tagged_fields()
    return DescribeClientQuotasRequest()


def encode_response(version: int, response: DescribeClientQuotasResponse) -> bytes:
    writer = Writer(API.flexible(version))
    writer.int32(0)
    writer.int16(response.error_code)
    writer.nullable_string(response.error_message)
    if response.error_code:
        writer.null_array()
    else:
        writer.array((), lambda _: None)
    return writer.done()


API = Api(48, "DescribeClientQuotas", 0, 1, 1, decode_request, encode_response)
