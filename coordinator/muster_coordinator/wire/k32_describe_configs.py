"""DescribeConfigs (32), versions 1 to 4, flexible from 4.

- v2: as v1; a throttled answer is sent at once (KIP-219)
- v3: config_type and documentation (KIP-569)
- v4: flexible
"""

from __future__ import annotations

from muster_coordinator.requests.configs import (
    ConfigResource,
    ConfigSynonym,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribedConfig,
    DescribedResource,
)
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer

MIRROR_VERSION = 4
"""The one in which brokers are asked for the configs of a group that moves."""


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> DescribeConfigsRequest:
    reader = Reader(frame, header.body_position, header.flexible)

    def resource() -> ConfigResource:
        value = ConfigResource(reader.int8(), reader.string(), reader.nullable_array(reader.string))
        reader.tagged_fields()
        return value

    resources = reader.array(resource)
    include_synonyms = reader.boolean()
    include_documentation = reader.boolean() if header.api_version >= 3 else False
    reader.tagged_fields()
    return DescribeConfigsRequest(resources, include_synonyms, include_documentation)


def encode_response(version: int, response: DescribeConfigsResponse) -> bytes:
    writer = Writer(API.flexible(version))

    def resource(value: DescribedResource) -> None:
        writer.int16(value.error_code)
        writer.nullable_string(value.error_message)
        writer.int8(value.resource_type)
        writer.string(value.name)
        writer.array(value.configs, lambda each: _config(writer, version, each))
        writer.tagged_fields()

    writer.int32(0)
    writer.array(response.results, resource)
    return writer.done()


def _config(writer: Writer, version: int, value: DescribedConfig) -> None:
    writer.string(value.name)
    writer.nullable_string(value.value)
    writer.boolean(value.read_only)
    writer.int8(value.source)
    writer.boolean(value.sensitive)
    writer.array(value.synonyms, lambda each: _synonym(writer, each))
    if version >= 3:
        writer.int8(value.config_type)
        writer.nullable_string(value.documentation)
    writer.tagged_fields()


def _synonym(writer: Writer, value: ConfigSynonym) -> None:
    writer.string(value.name)
    writer.nullable_string(value.value)
    writer.int8(value.source)
    writer.tagged_fields()


def encode_request(version: int, request: DescribeConfigsRequest) -> bytes:
    """The body of a request to another pod or a broker, from version 3 on."""
    writer = Writer(API.flexible(version))

    def resource(value: ConfigResource) -> None:
        writer.int8(value.resource_type)
        writer.string(value.name)
        if value.keys is None:
            writer.null_array()
        else:
            writer.array(value.keys, writer.string)
        writer.tagged_fields()

    writer.array(request.resources, resource)
    writer.boolean(request.include_synonyms)
    writer.boolean(request.include_documentation)
    return writer.done()


def decode_response(reader: Reader) -> DescribeConfigsResponse:
    """The answer of another pod or a broker, from version 3 on. Raises what `Reader` raises."""

    def synonym() -> ConfigSynonym:
        value = ConfigSynonym(reader.string(), reader.nullable_string(), reader.int8())
        reader.tagged_fields()
        return value

    def config() -> DescribedConfig:
        value = DescribedConfig(
            reader.string(),
            reader.nullable_string(),
            read_only=reader.boolean(),
            source=reader.int8(),
            sensitive=reader.boolean(),
            synonyms=reader.array(synonym),
            config_type=reader.int8(),
            documentation=reader.nullable_string(),
        )
        reader.tagged_fields()
        return value

    def resource() -> DescribedResource:
        code, message = reader.int16(), reader.nullable_string()
        value = DescribedResource(reader.int8(), reader.string(), code, message, reader.array(config))
        reader.tagged_fields()
        return value

    reader.int32()  # throttle time
    return DescribeConfigsResponse(reader.array(resource))


API = Api(32, "DescribeConfigs", 1, 4, 4, decode_request, encode_response)
