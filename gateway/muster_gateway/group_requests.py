"""The facts that the gateway reads in a group's request and its answer: which groups, whether the coordinator was the
right one, and whether the request may be sent again."""

from __future__ import annotations

import struct
from collections.abc import Callable

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import configs as f
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.refusals import refusal
from muster_coordinator.wire.codec import Reader
from muster_coordinator.wire.errors import WireError
from muster_coordinator.wire.framing import encode_response_frame, read_header
from muster_coordinator.wire.served import KAFKA_4_4
from muster_gateway import apis
from muster_gateway.errors import ClientError
from muster_gateway.requests import RequestHead, body_position
from muster_gateway.rewriting import answer_body, guarded

_MOVED = frozenset(
    {
        int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        int(ErrorCode.COORDINATOR_NOT_AVAILABLE),
        int(ErrorCode.NOT_COORDINATOR),
    }
)
_NAMES_MEMBER_SINCE = {apis.JOIN_GROUP: 4, apis.CONSUMER_GROUP_HEARTBEAT: 1}
"""First version in which a member that joins has an id already, or gets one before it is a member."""
_OFFSET_FETCH_HAS_GROUPS = 8
BY_ID_SINCE = 10
"""First version of OffsetCommit and OffsetFetch that names topics by their ids."""


def group_ids(head: RequestHead, frame: bytes) -> tuple[str, ...]:
    """The groups that a request names, in its order. Raises ClientError."""
    try:
        return _group_ids(head, frame)
    except (WireError, IndexError, struct.error) as error:
        raise ClientError("malformed_request", f"{head.rule.name} v{head.version}: {error or 'too short'}") from error


def _group_ids(head: RequestHead, frame: bytes) -> tuple[str, ...]:
    key, version, flexible = head.rule.key, head.version, head.flexible
    reader = Reader(frame, body_position(frame, flexible), flexible)
    if key in (apis.DESCRIBE_GROUPS, apis.DELETE_GROUPS, apis.CONSUMER_GROUP_DESCRIBE):
        return reader.array(reader.string)
    if key == apis.OFFSET_FETCH and version >= _OFFSET_FETCH_HAS_GROUPS:
        return tuple([each.group_id for each in _decoded(frame).groups])  # type: ignore[attr-defined]
    if key == apis.TXN_OFFSET_COMMIT:
        reader.string()  # transactional_id
    return (reader.string(),)


def configured_groups(head: RequestHead, frame: bytes) -> tuple[str, ...]:
    """The groups whose configs a request is about; () if it is about anything else as well. Raises ClientError."""
    try:
        request = _decoded(frame)
    except WireError as error:
        raise ClientError("malformed_request", f"{head.rule.name} v{head.version}: {error}") from error
    assert isinstance(request, f.DescribeConfigsRequest | f.AlterConfigsRequest | f.IncrementalAlterConfigsRequest)
    if any(each.resource_type != f.ConfigResourceType.GROUP for each in request.resources):
        return ()
    return tuple([each.name for each in request.resources])


def lists_groups(head: RequestHead, frame: bytes) -> bool:
    """True if a ListConfigResources asks for groups. Raises ClientError."""
    try:
        request = _decoded(frame)
    except WireError as error:
        raise ClientError("malformed_request", f"{head.rule.name} v{head.version}: {error}") from error
    assert isinstance(request, f.ListConfigResourcesRequest)
    return not request.resource_types or f.ConfigResourceType.GROUP in request.resource_types


def is_repeatable(head: RequestHead, frame: bytes) -> bool:
    """True if a request may be carried out twice, as by a client that was not answered and asks again.

    A member that joins without a member id becomes a member each time, before version 4 (KIP-394) and, with the
    consumer protocol, in version 0 (KIP-1082). The first of them would hold up the group until its session ends.
    All others name their member and generation or epoch, or change nothing the second time.
    """
    names_member_since = _NAMES_MEMBER_SINCE.get(head.rule.key, 0)
    if head.version >= names_member_since:
        return True
    request = _decoded(frame)
    assert isinstance(request, m.JoinGroupRequest | c.ConsumerGroupHeartbeatRequest)
    return bool(request.member_id)


@guarded
def was_moved(head: RequestHead, answer: bytes) -> bool:
    """True if an answer says that its coordinator does not serve the group now. Never for a request about several
    groups, because the others have been served."""
    key, version = head.rule.key, head.version
    reader = Reader(answer, answer_body(answer, head.flexible), head.flexible)
    read = _ERROR_OF.get(key)
    return read is not None and read(reader, version) in _MOVED


def _after_throttle(since: int) -> Callable[[Reader, int], int]:
    def read(reader: Reader, version: int) -> int:
        if version >= since:
            reader.int32()
        return reader.int16()

    return read


def _of_first_partition(since: int) -> Callable[[Reader, int], int]:
    """A coordinator's error stands on every partition."""

    def read(reader: Reader, version: int) -> int:
        if version >= since:
            reader.int32()
        return _code_of_first(reader, version, reader.int16) or 0

    return read


def _code_of_first(reader: Reader, version: int, after_index: Callable[[], int]) -> int | None:
    """The code of the first partition; None: there is none. What follows may be megabytes, and is not read."""
    for _ in range(reader.array_length()):
        if version >= BY_ID_SINCE:
            reader.uuid()
        else:
            reader.string()
        if reader.array_length() > 0:
            reader.int32()
            return after_index()
        reader.tagged_fields()
    return None


def _of_offset_fetch(reader: Reader, version: int) -> int:
    if version >= 3:
        reader.int32()

    def fetched() -> int:
        reader.int64()
        if version >= 5:
            reader.int32()
        reader.nullable_string()
        return reader.int16()

    if version >= _OFFSET_FETCH_HAS_GROUPS:
        if reader.array_length() != 1:
            return 0
        reader.string()
    code = _code_of_first(reader, version, fetched)
    if code is None:
        return reader.int16() if version >= 2 else 0
    return code


def _of_only_consumer_group(reader: Reader, version: int) -> int:
    reader.int32()
    return _first_of_one(reader, reader.int16)


def _of_only_described(reader: Reader, version: int) -> int:
    if version >= 1:
        reader.int32()
    # With an error nothing follows that matters, so only the first group is read, and only its code.
    return _first_of_one(reader, reader.int16)


def _of_only_deleted(reader: Reader, version: int) -> int:
    reader.int32()

    def code() -> int:
        reader.string()
        return reader.int16()

    return _first_of_one(reader, code)


def _first_of_one(reader: Reader, code: Callable[[], int]) -> int:
    return code() if reader.array_length() == 1 else 0


def _of_offset_delete(reader: Reader, version: int) -> int:
    return reader.int16()


_ERROR_OF: dict[int, Callable[[Reader, int], int]] = {
    apis.OFFSET_COMMIT: _of_first_partition(3),
    apis.OFFSET_FETCH: _of_offset_fetch,
    apis.JOIN_GROUP: _after_throttle(2),
    apis.HEARTBEAT: _after_throttle(1),
    apis.LEAVE_GROUP: _after_throttle(1),
    apis.SYNC_GROUP: _after_throttle(1),
    apis.DESCRIBE_GROUPS: _of_only_described,
    apis.DELETE_GROUPS: _of_only_deleted,
    apis.TXN_OFFSET_COMMIT: _of_first_partition(0),
    apis.OFFSET_DELETE: _of_offset_delete,
    apis.CONSUMER_GROUP_HEARTBEAT: _after_throttle(0),
    apis.CONSUMER_GROUP_DESCRIBE: _of_only_consumer_group,
    apis.LIST_CONFIG_RESOURCES: _after_throttle(0),
}


def refused(head: RequestHead, frame: bytes, code: ErrorCode) -> bytes:
    """The answer, with its length, that refuses the request with that code for each of its groups. Raises
    ClientError."""
    try:
        header = read_header(frame, KAFKA_4_4.versions)
        request = header.api.decode_request(header, frame, "")
    except WireError as error:
        raise ClientError("malformed_request", f"{head.rule.name} v{head.version}: {error}") from error
    body = header.api.encode_response(head.version, _response(request, code))
    return encode_response_frame(header.api, head.version, head.correlation_id, body)


def _response(request: object, code: ErrorCode) -> object:
    if isinstance(request, w.OffsetFetchRequests):
        return w.OffsetFetchResponses(tuple([refusal(each, code) for each in request.groups]))  # type: ignore[misc]
    if isinstance(request, w.OffsetFetchByIdRequests):
        refused_groups = [m.OffsetFetchByIdResponse(each.group_id, int(code)) for each in request.groups]
        return w.OffsetFetchByIdResponses(tuple(refused_groups))
    if isinstance(request, m.OffsetCommitByIdRequest):
        topics = [(topic, tuple([(each[0], int(code)) for each in parts])) for topic, parts in request.topics]
        return m.OffsetCommitByIdResponse(tuple(topics))
    if isinstance(request, w.DescribeGroupsRequest):
        return w.DescribeGroupsResponse(tuple([refusal(each, code) for each in request.groups]))  # type: ignore[misc]
    if isinstance(request, w.DeleteGroupsRequest):
        return w.DeleteGroupsResponse(tuple([m.DeleteGroupResponse(each, int(code)) for each in request.group_ids]))
    if isinstance(request, w.OtherProtocolRequest):
        return w.OtherProtocolResponse(int(code), "")
    if isinstance(request, c.ConsumerGroupDescribeRequest):
        return c.ConsumerGroupDescribeResponse(tuple([refusal(each, code) for each in request.groups]))  # type: ignore[misc]
    if isinstance(request, f.DescribeConfigsRequest):
        described = [f.DescribedResource(each.resource_type, each.name, int(code)) for each in request.resources]
        return f.DescribeConfigsResponse(tuple(described))
    if isinstance(request, f.AlterConfigsRequest | f.IncrementalAlterConfigsRequest):
        altered = [f.AlteredResource(each.resource_type, each.name, int(code)) for each in request.resources]
        return f.AlterConfigsResponse(tuple(altered))
    return refusal(request, code)


def _decoded(frame: bytes) -> object:
    header = read_header(frame, KAFKA_4_4.versions)
    return header.api.decode_request(header, frame, "")
