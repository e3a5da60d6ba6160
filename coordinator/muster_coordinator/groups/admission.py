"""Checks that need no group state, which Kafka makes before it looks at the partition (GroupCoordinatorService,
KafkaApis).

`refuse` answers a request with them alone; a shard that is loading calls it too, because these errors come before
COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.requests import groups as m

_MAX_MEMBER_NAME_BYTES = 32_000  # client or instance id; with the suffix it must fit a record's int16 length
_PROTOCOL_MANDATORY_SINCE = 5  # SyncGroup, KIP-559


def join_refusal(request: m.JoinGroupRequest, config: GroupConfig) -> m.JoinGroupResponse | None:
    """Returns None if the request may go on to the group."""
    code = ErrorCode.NONE
    if not request.group_id:
        code = ErrorCode.INVALID_GROUP_ID
    elif not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
        code = ErrorCode.INVALID_SESSION_TIMEOUT
    elif len({name for name, _ in request.protocols}) != len(request.protocols):
        code = ErrorCode.INVALID_REQUEST  # Kafka never answers this one
    elif len((request.group_instance_id or request.client_id).encode("utf-8", "replace")) > _MAX_MEMBER_NAME_BYTES:
        code = ErrorCode.INVALID_REQUEST
    return m.JoinGroupResponse(error_code=code, member_id=request.member_id) if code else None


def sync_refusal(request: m.SyncGroupRequest, _config: GroupConfig) -> m.SyncGroupResponse | None:
    if request.api_version >= _PROTOCOL_MANDATORY_SINCE and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return m.SyncGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return None if request.group_id else m.SyncGroupResponse(ErrorCode.INVALID_GROUP_ID)


def _heartbeat_refusal(request: m.HeartbeatRequest, _config: GroupConfig) -> m.HeartbeatResponse | None:
    return None if request.group_id else m.HeartbeatResponse(ErrorCode.INVALID_GROUP_ID)


def _leave_refusal(request: m.LeaveGroupRequest, _config: GroupConfig) -> m.LeaveGroupResponse | None:
    return None if request.group_id else m.LeaveGroupResponse(ErrorCode.INVALID_GROUP_ID)


def _txn_refusal(request: m.TxnOffsetCommitRequest, _config: GroupConfig) -> m.TxnOffsetCommitResponse | None:
    if request.group_id:
        return None
    code = int(ErrorCode.INVALID_GROUP_ID)
    return m.TxnOffsetCommitResponse(tuple((t, tuple((p[0], code) for p in ps)) for t, ps in request.topics))


def _offset_delete_refusal(request: m.OffsetDeleteRequest, _config: GroupConfig) -> m.OffsetDeleteResponse | None:
    return None if request.group_id else m.OffsetDeleteResponse(ErrorCode.INVALID_GROUP_ID)


# OffsetCommit, OffsetFetch, DescribeGroups, ListGroups and DeleteGroups take the empty group id.
_REFUSALS: dict[type, Callable[[Any, GroupConfig], object | None]] = {
    m.JoinGroupRequest: join_refusal,
    m.SyncGroupRequest: sync_refusal,
    m.HeartbeatRequest: _heartbeat_refusal,
    m.LeaveGroupRequest: _leave_refusal,
    m.TxnOffsetCommitRequest: _txn_refusal,
    m.OffsetDeleteRequest: _offset_delete_refusal,
}


def refuse(request: object, config: GroupConfig) -> object | None:
    """The error response that `request` gets whatever the state of its group; None if it depends on the group."""
    check = _REFUSALS.get(type(request))
    return None if check is None else check(request, config)
