"""Error responses to the requests of the coordinators, each with the code where its API puts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests import configs as f
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.requests import groups as m
from muster_coordinator.requests import transactions as t
from muster_coordinator.requests.parking import ParkGroupRequest, ParkGroupResponse


def _every_partition(topics: tuple[tuple[str, tuple[Any, ...]], ...], code: int) -> tuple[Any, ...]:
    return tuple(
        (topic, tuple((p if isinstance(p, int) else p[0], code) for p in partitions)) for topic, partitions in topics
    )


def _every_fetched(topics: tuple[tuple[str, tuple[int, ...]], ...] | None, code: int) -> tuple[Any, ...]:
    """OffsetFetch version 1 has no error code of the group, only those of its partitions."""
    return tuple((topic, tuple((p, -1, -1, "", code) for p in partitions)) for topic, partitions in topics or ())


_REFUSALS: dict[type, Callable[[Any, int], object]] = {
    m.JoinGroupRequest: lambda r, code: m.JoinGroupResponse(error_code=code, member_id=r.member_id),
    m.SyncGroupRequest: lambda r, code: m.SyncGroupResponse(error_code=code),
    # A member that asks while its group loads must not be told that it is unknown (GroupCoordinatorService#heartbeat).
    m.HeartbeatRequest: lambda r, code: m.HeartbeatResponse(
        error_code=ErrorCode.NONE if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code
    ),
    m.LeaveGroupRequest: lambda r, code: m.LeaveGroupResponse(error_code=code),
    m.OffsetCommitRequest: lambda r, code: m.OffsetCommitResponse(_every_partition(r.topics, code)),
    m.OffsetFetchRequest: lambda r, code: m.OffsetFetchResponse(r.group_id, code, _every_fetched(r.topics, code)),
    m.ListGroupsRequest: lambda r, code: m.ListGroupsResponse(error_code=code),
    m.DescribeGroupRequest: lambda r, code: m.DescribedGroup(group_id=r.group_id, error_code=code),
    c.ConsumerGroupHeartbeatRequest: lambda r, code: c.ConsumerGroupHeartbeatResponse(code),
    c.DescribeConsumerGroupRequest: lambda r, code: c.DescribedConsumerGroup(r.group_id, code),
    f.DescribeGroupConfigsRequest: lambda r, code: f.DescribedResource(f.ConfigResourceType.GROUP, r.group_id, code),
    f.AlterGroupConfigsRequest: lambda r, code: f.AlteredResource(f.ConfigResourceType.GROUP, r.group_id, code),
    f.ListConfigResourcesRequest: lambda r, code: f.ListConfigResourcesResponse(code),
    m.DeleteGroupRequest: lambda r, code: m.DeleteGroupResponse(group_id=r.group_id, error_code=code),
    m.OffsetDeleteRequest: lambda r, code: m.OffsetDeleteResponse(error_code=code),
    m.TxnOffsetCommitRequest: lambda r, code: m.TxnOffsetCommitResponse(_every_partition(r.topics, code)),
    m.WriteTxnMarkerRequest: lambda r, code: m.WriteTxnMarkerResponse(error_code=code),
    m.DescribeProducersRequest: lambda r, code: m.DescribeProducersResponse(error_code=code),
    ParkGroupRequest: lambda r, code: ParkGroupResponse(code),
    t.InitProducerIdRequest: lambda r, code: t.InitProducerIdResponse(code),
    t.AddPartitionsRequest: lambda r, code: t.AddPartitionsResponse(
        r.transactional_id, _every_partition(r.topics, code)
    ),
    t.AddOffsetsToTxnRequest: lambda r, code: t.AddOffsetsToTxnResponse(code),
    t.EndTxnRequest: lambda r, code: t.EndTxnResponse(code),
    t.DescribeTransactionRequest: lambda r, code: t.DescribedTransaction(code, r.transactional_id),
    t.ListTransactionsRequest: lambda r, code: t.ListTransactionsResponse(code),
}


def has_refusal(request: object) -> bool:
    """True if `refusal` has an answer for the request."""
    return type(request) in _REFUSALS


def refusal(request: object, code: ErrorCode) -> object:
    """Returns the response to `request` that carries `code`. Raises KeyError for a request of another coordinator."""
    return _REFUSALS[type(request)](request, int(code))
