"""OffsetFetch of one group (Kafka: OffsetMetadataManager#fetchOffsets, fetchAllOffsets; reference, section 4.8).

Member id and epoch are not looked at for classic groups, and topics are not validated. With require_stable the
answer, like every answer, waits for what is not committed yet; only offsets of open transactions are refused.
"""

from __future__ import annotations

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.offsets import GroupOffsets, Stored
from muster_coordinator.groups.states import STATE_ERRORS, GroupApi
from muster_coordinator.groups.tables import GroupTables
from muster_coordinator.requests.groups import OffsetFetchRequest, OffsetFetchResponse
from muster_coordinator.state_machine import Result, Token

_FetchedPartition = tuple[int, int, int, str, int]


def offset_fetch(state: GroupTables, request: OffsetFetchRequest, _token: Token, _now_ms: int) -> Result:
    group = state.groups.get(request.group_id)
    visible = group is not None and not STATE_ERRORS[GroupApi.OFFSET_FETCH, group.state]
    offsets: GroupOffsets = state.offsets.committed.get(request.group_id, {}) if visible else {}
    may_be_pending = request.require_stable and request.group_id in state.offsets.open_transactions
    topics = []
    for topic, partitions in offsets.items() if request.topics is None else request.topics:
        of_topic = offsets.get(topic, {})
        found = [
            (index, -1, -1, "", int(ErrorCode.UNSTABLE_OFFSET_COMMIT))
            if may_be_pending and state.offsets.has_pending(request.group_id, topic, index)
            else _fetched(index, of_topic.get(index))
            for index in partitions
        ]
        topics.append((topic, tuple(found)))
    return Result(response=OffsetFetchResponse(request.group_id, ErrorCode.NONE, tuple(topics)))


def _fetched(partition: int, stored: Stored | None) -> _FetchedPartition:
    if stored is None:
        return (partition, -1, -1, "", 0)
    value = stored[1]
    return (partition, value.offset, value.leader_epoch, value.metadata, 0)
