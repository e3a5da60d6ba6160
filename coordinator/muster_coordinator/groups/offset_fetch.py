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
    wanted = request.topics
    if wanted is None:
        wanted = tuple((topic, tuple(of_topic)) for topic, of_topic in offsets.items())
    topics = tuple(
        (topic, tuple(_fetch(state, request, topic, index, offsets.get(topic, {}).get(index)) for index in partitions))
        for topic, partitions in wanted
    )
    return Result(response=OffsetFetchResponse(request.group_id, ErrorCode.NONE, topics))


def _fetch(
    state: GroupTables, request: OffsetFetchRequest, topic: str, partition: int, stored: Stored | None
) -> _FetchedPartition:
    if request.require_stable and state.offsets.has_pending(request.group_id, topic, partition):
        return (partition, -1, -1, "", int(ErrorCode.UNSTABLE_OFFSET_COMMIT))
    if stored is None:
        return (partition, -1, -1, "", 0)
    value = stored[1]
    return (partition, value.offset, value.leader_epoch, value.metadata, 0)
