"""DeleteGroups, OffsetDelete, expiry and topic deletion: everything that writes tombstones.

Kafka: GroupCoordinatorShard#deleteGroups and cleanupGroupMetadata, OffsetMetadataManager#deleteOffsets and
cleanupExpiredOffsets; reference, sections 4.7 and 4.8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.admission import refuse
from muster_coordinator.groups.classic.group import ClassicGroup
from muster_coordinator.groups.classic.states import STATE_ERRORS, GroupApi, GroupState
from muster_coordinator.groups.classic.tables import GroupTables, group_record, tombstone_group
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.groups.consumer.tables import configs_record
from muster_coordinator.groups.effects import Effects
from muster_coordinator.groups.offset_store import GroupOffsets
from muster_coordinator.groups.offsets.commit import unknown_first
from muster_coordinator.groups.subscription import CONSUMER_PROTOCOL_TYPE
from muster_coordinator.records.offset_commit import encode_offset_commit_key
from muster_coordinator.records.structs import NO_TOPIC_ID, OffsetCommitRecord, OffsetCommitValue
from muster_coordinator.requests.groups import (
    DeleteGroupRequest,
    DeleteGroupResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    TopicsDeleted,
)
from muster_coordinator.state_machine import Record, Result, Token


def offset_tombstone(group_id: str, topic: str, partition: int) -> Record:
    return (
        encode_offset_commit_key(group_id, topic, partition),
        None,
        OffsetCommitRecord(group_id, topic, partition, None),
    )


def delete_group(state: GroupTables, request: DeleteGroupRequest, token: Token, _now_ms: int) -> Result:
    group_id = request.group_id
    group = state.look_at(group_id)
    consumers = state.consumers.groups.get(group_id)
    if consumers is not None:
        code = ErrorCode.NON_EMPTY_GROUP if consumers.members else ErrorCode.NONE
    else:
        code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else STATE_ERRORS[GroupApi.DELETE_GROUPS, group.state]
    if code:
        return Result(response=DeleteGroupResponse(group_id, code))
    effects = Effects(token)
    for topic, partition in _all_partitions(state, group_id):
        effects.record(offset_tombstone(group_id, topic, partition))
        state.counters.offset_deletions += 1
    if consumers is not None:
        _tombstone_consumers(consumers, effects)
    elif group is not None:
        tombstone_group(group, effects)
    return effects.answer(DeleteGroupResponse(group_id, ErrorCode.NONE))


def _all_partitions(state: GroupTables, group_id: str) -> dict[tuple[str, int], None]:
    """(topic, partition) with a committed or a pending offset, each once, in a stable order."""
    committed = state.offsets.of_group(group_id)
    partitions = {(topic, index): None for topic, of_topic in committed.items() for index in of_topic}
    partitions.update(dict.fromkeys(sorted(state.offsets.pending_partitions(group_id))))
    return partitions


def group_tombstones(state: GroupTables, group_id: str) -> Iterator[Record]:
    """Tombstones for all offsets of a group, for the group, whatever its state, and for its configs."""
    for topic, partition in _all_partitions(state, group_id):
        yield offset_tombstone(group_id, topic, partition)
    consumers = state.consumers.groups.get(group_id)
    if consumers is not None:
        yield from consumers.tombstones()
    else:
        yield group_record(group_id, None)
    if group_id in state.consumers.own_configs:
        yield configs_record(group_id, {})


def _tombstone_consumers(group: ConsumerGroup, effects: Effects) -> None:
    for record in group.tombstones():
        effects.record(record)


def offset_delete(state: GroupTables, request: OffsetDeleteRequest, token: Token, _now_ms: int) -> Result:
    refusal = refuse(request, state.config)
    if refusal is not None:
        return Result(response=refusal)
    group: ClassicGroup | ConsumerGroup | None = state.consumers.groups.get(request.group_id)
    code = ErrorCode.NONE
    if group is None:
        classic = group = state.look_at(request.group_id)
        code = ErrorCode.GROUP_ID_NOT_FOUND if classic is None else _delete_error(classic)
    if group is None or code:
        return Result(response=OffsetDeleteResponse(code))
    effects = Effects(token)
    offsets = state.offsets.of_group(request.group_id)
    topics = [
        (
            topic,
            tuple((index, int(_delete_offset(state, group, offsets, topic, index, effects))) for index in partitions),
        )
        for topic, partitions in request.topics
    ]
    return effects.answer(OffsetDeleteResponse(ErrorCode.NONE, unknown_first(topics)))


def _delete_error(group: ClassicGroup) -> ErrorCode:
    """The error of OffsetDelete for the whole group. One that says what it subscribes to is asked for each topic."""
    code = STATE_ERRORS[GroupApi.OFFSET_DELETE, group.state]
    if code == ErrorCode.NON_EMPTY_GROUP and group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        return ErrorCode.NONE
    return code


def _delete_offset(
    state: GroupTables,
    group: ClassicGroup | ConsumerGroup,
    offsets: GroupOffsets,
    topic: str,
    partition: int,
    effects: Effects,
) -> ErrorCode:
    """`offsets`: those that the group has committed."""
    if not state.topics.has(topic, partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if group.is_subscribed_to(topic):
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    if partition in offsets.get(topic, ()) or state.offsets.has_pending(group.group_id, topic, partition):
        effects.record(offset_tombstone(group.group_id, topic, partition))
        state.counters.offset_deletions += 1
    return ErrorCode.NONE


def delete_partitions(state: GroupTables, group_id: str, deleted: TopicsDeleted, effects: Effects) -> int:
    """Tombstones for the offsets of one group, committed and pending, of every partition that does not exist; returns
    how many offsets were looked at. As in Kafka 4.3, an offset with the id of another topic of that name stays."""
    partitions = _all_partitions(state, group_id)
    offsets = state.offsets.of_group(group_id)
    for topic, partition in partitions:
        if deleted.exists(topic, partition):
            continue
        topic_ids = state.offsets.pending_topic_ids(group_id, topic, partition)
        stored = offsets.get(topic, {}).get(partition)
        if stored is not None:
            topic_ids.add(stored[1].topic_id)
        if topic_ids <= {NO_TOPIC_ID, deleted.id_of(topic)}:
            effects.record(offset_tombstone(group_id, topic, partition))
            state.counters.offset_deletions += 1
    return len(partitions)


# -- expiry (KIP-211) -------------------------------------------------------------------------------------------------


def expire_group(state: GroupTables, group: ClassicGroup | ConsumerGroup, effects: Effects, now_ms: int) -> int:
    """Tombstones for what has expired in one group, the group itself included; returns how many offsets were looked
    at."""
    group_id = group.group_id
    offsets = state.offsets.of_group(group_id)
    retention_starts = _retention_start(group)
    looked_at = 0
    all_expired = True
    for topic, of_topic in offsets.items():
        looked_at += len(of_topic)
        if retention_starts is None or group.is_subscribed_to(topic):
            all_expired = False
            continue
        for partition, (_, value) in of_topic.items():
            if _is_expired(state, value, retention_starts(value), now_ms) and not state.offsets.has_pending(
                group_id, topic, partition
            ):
                effects.record(offset_tombstone(group_id, topic, partition))
                state.counters.offset_expirations += 1
            else:
                all_expired = False
    if all_expired and not state.offsets.has_open_transactions(group_id):
        if isinstance(group, ConsumerGroup):
            if not group.members:
                _tombstone_consumers(group, effects)
        elif group.state is GroupState.EMPTY:
            tombstone_group(group, effects)
    return looked_at


def _retention_start(group: ClassicGroup | ConsumerGroup) -> Callable[[OffsetCommitValue], int] | None:
    """The time at which the retention of an offset began; None: nothing expires now (Kafka:
    offsetExpirationCondition)."""
    if isinstance(group, ConsumerGroup) or group.protocol_type is None:
        return lambda value: value.commit_timestamp_ms
    if group.state is GroupState.EMPTY:
        empty_since_ms = group.state_timestamp_ms
        if empty_since_ms == -1:
            return lambda value: value.commit_timestamp_ms
        return lambda value: empty_since_ms
    if group.state is GroupState.STABLE and group.subscribed_topics is not None:
        return lambda value: value.commit_timestamp_ms
    return None


def _is_expired(state: GroupTables, value: OffsetCommitValue, retention_start_ms: int, now_ms: int) -> bool:
    if value.expire_timestamp_ms != -1:  # the commit itself said how long (OffsetCommit v2-v4)
        return now_ms >= value.expire_timestamp_ms
    return now_ms - retention_start_ms >= state.config.offsets_retention_ms
