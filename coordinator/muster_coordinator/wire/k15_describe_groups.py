"""DescribeGroups (15), versions 0 to 6, flexible from 5.

- v1: throttle_time_ms in the response
- v2: as v1; a throttled answer is sent at once (KIP-219)
- v3: authorized operations (KIP-430)
- v4: group_instance_id of the members (KIP-345)
- v5: flexible
- v6: GROUP_ID_NOT_FOUND and error_message (KIP-1043)
"""

from __future__ import annotations

from collections.abc import Iterator

from muster_coordinator.requests.cluster import OPERATIONS_NOT_REQUESTED, DescribeGroupsRequest, DescribeGroupsResponse
from muster_coordinator.requests.groups import DescribedGroup, DescribedMember, DescribeGroupRequest
from muster_coordinator.requests.slices import SLICE_ENTRIES
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, SlicedWriter, Writer

MIRROR_VERSION = 5
"""The one in which brokers are asked for a group that moves: Kafka 2.4 and later."""


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> DescribeGroupsRequest:
    version = header.api_version
    reader = Reader(frame, header.body_position, header.flexible)
    groups = reader.array(lambda: DescribeGroupRequest(reader.string(), version))
    include_authorized_operations = reader.boolean() if version >= 3 else False
    reader.tagged_fields()
    return DescribeGroupsRequest(groups, include_authorized_operations)


def encode_response(version: int, response: DescribeGroupsResponse) -> bytes:
    return b"".join(_slices(version, response))


def slices(version: int, response: DescribeGroupsResponse) -> Iterator[bytes] | None:
    count = 0
    for group in response.groups:
        count += 1 + len(group.members)
        if count > SLICE_ENTRIES:
            return _slices(version, response)
    return None


def _slices(version: int, response: DescribeGroupsResponse) -> Iterator[bytes]:
    writer = SlicedWriter(API.flexible(version))

    def member(value: DescribedMember) -> None:
        writer.string(value.member_id)
        if version >= 4:
            writer.nullable_string(value.group_instance_id)
        writer.string(value.client_id)
        writer.string(value.client_host)
        writer.byte_string(value.metadata)
        writer.byte_string(value.assignment)
        writer.tagged_fields()

    def operations(value: DescribedGroup) -> int:
        if value.error_code:
            return OPERATIONS_NOT_REQUESTED
        of_group = value.authorized_operations
        return response.authorized_operations if of_group is None else of_group

    if version >= 1:
        writer.int32(0)
    writer.array_length(len(response.groups))
    for value in response.groups:
        writer.int16(value.error_code)
        if version >= 6:
            writer.nullable_string(value.error_message)
        writer.string(value.group_id)
        writer.string(value.group_state)
        writer.string(value.protocol_type)
        writer.string(value.protocol_data)
        writer.array_length(len(value.members))
        for each in value.members:
            member(each)
            if writer.is_full():
                yield writer.taken()
        if version >= 3:
            writer.int32(operations(value))
        writer.tagged_fields()
        if writer.is_full():
            yield writer.taken()
    yield writer.done()


def encode_request(group_id: str) -> bytes:
    """The body of a request to a broker for one group, in MIRROR_VERSION."""
    writer = Writer(API.flexible(MIRROR_VERSION))
    writer.array((group_id,), writer.string)
    writer.boolean(False)  # include_authorized_operations
    return writer.done()


def decode_response(reader: Reader) -> tuple[DescribedGroup, ...]:
    """A broker's answer of MIRROR_VERSION. Raises what `Reader` raises."""

    def member() -> DescribedMember:
        names = reader.string(), reader.nullable_string(), reader.string(), reader.string()
        value = DescribedMember(*names, reader.byte_string(), reader.byte_string())
        reader.tagged_fields()
        return value

    def group() -> DescribedGroup:
        code, group_id, state = reader.int16(), reader.string(), reader.string()
        protocol_type, protocol, members = reader.string(), reader.string(), reader.array(member)
        reader.int32()  # authorized operations
        reader.tagged_fields()
        return DescribedGroup(group_id, code, None, state, protocol_type, protocol, members)

    reader.int32()  # throttle time
    return reader.array(group)


API = Api(15, "DescribeGroups", 0, 6, 5, decode_request, encode_response, slices)
