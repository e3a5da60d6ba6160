"""OffsetFetch of one group (Kafka: OffsetMetadataManager#fetchOffsets, fetchAllOffsets; reference, section 4.8).

Member id and epoch are not looked at for classic groups, and topics are not validated. With require_stable the
answer, like every answer, waits for what is not committed yet; only offsets of open transactions are refused.
"""

from __future__ import annotations

from collections.abc import Collection

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.offsets import GroupOffsets, Stored
from muster_coordinator.groups.states import STATE_ERRORS, GroupApi
from muster_coordinator.groups.tables import GroupTables
from muster_coordinator.requests.groups import (
    FetchedPartition,
    FetchedPartitions,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from muster_coordinator.requests.packed_offsets import PACKED_MAX, PACKED_MIN, FoundOffsets
from muster_coordinator.state_machine import Result, Token


def offset_fetch(state: GroupTables, request: OffsetFetchRequest, _token: Token, _now_ms: int) -> Result:
    group = state.groups.get(request.group_id)
    visible = group is not None and not STATE_ERRORS[GroupApi.OFFSET_FETCH, group.state]
    offsets: GroupOffsets = state.offsets.committed.get(request.group_id, {}) if visible else {}
    may_be_pending = request.require_stable and request.group_id in state.offsets.open_transactions
    topics: list[tuple[str, FetchedPartitions]] = []
    for topic, partitions in offsets.items() if request.topics is None else request.topics:
        of_topic = offsets.get(topic, {})
        if may_be_pending:
            has_pending = state.offsets.has_pending
            found: FetchedPartitions = tuple(
                [
                    (each, -1, -1, "", int(ErrorCode.UNSTABLE_OFFSET_COMMIT))
                    if has_pending(request.group_id, topic, each)
                    else _fetched(each, of_topic.get(each))
                    for each in partitions
                ]
            )
        else:
            found = _settled(partitions, of_topic)
        topics.append((topic, found))
    return Result(response=OffsetFetchResponse(request.group_id, ErrorCode.NONE, tuple(topics)))


def _settled(partitions: Collection[int], of_topic: dict[int, Stored]) -> FetchedPartitions:
    """Of partitions without an offset in an open transaction."""
    stored = [of_topic.get(each) for each in partitions]
    if PACKED_MIN <= len(stored) <= PACKED_MAX:
        values = [each[1] for each in stored if each is not None]
        if len(values) == len(stored) and not any(value.metadata for value in values):
            offsets = [value.offset for value in values]
            return FoundOffsets(list(partitions), offsets, [value.leader_epoch for value in values])
    return tuple([_fetched(*each) for each in zip(partitions, stored, strict=True)])


def _fetched(partition: int, stored: Stored | None) -> FetchedPartition:
    if stored is None:
        return (partition, -1, -1, "", 0)
    value = stored[1]
    return (partition, value.offset, value.leader_epoch, value.metadata, 0)
