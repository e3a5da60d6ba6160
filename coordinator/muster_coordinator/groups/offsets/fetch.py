"""OffsetFetch of one group (Kafka: OffsetMetadataManager#fetchOffsets, fetchAllOffsets; reference, section 4.8).

Member id and epoch are looked at for groups of the consumer protocol only, and topics are not validated. With
require_stable the answer, like every answer, waits for what is not committed yet; only offsets of open transactions are
refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.classic.states import STATE_ERRORS, GroupApi
from muster_coordinator.groups.classic.tables import GroupTables
from muster_coordinator.groups.consumer.offset_checks import fetch_error
from muster_coordinator.groups.offset_store import GroupOffsets, Stored
from muster_coordinator.requests.groups import (
    FetchedPartition,
    FetchedPartitions,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from muster_coordinator.requests.packed_offsets import PACKED_MAX, PACKED_MIN, FoundOffsets, HeldOffsets
from muster_coordinator.requests.slices import SLICE_ENTRIES
from muster_coordinator.state_machine import Result, Token


def offset_fetch(state: GroupTables, request: OffsetFetchRequest, _token: Token, _now_ms: int) -> Result:
    group = state.groups.get(request.group_id)
    consumers = state.consumers.groups.get(request.group_id)
    if consumers is not None:
        code = fetch_error(consumers, request.member_id, request.member_epoch)
        if code:
            return Result(response=OffsetFetchResponse(request.group_id, code, ()))
        visible = True
    else:
        visible = group is not None and (
            isinstance(group, bytes) or not STATE_ERRORS[GroupApi.OFFSET_FETCH, group.state]
        )
    offsets: GroupOffsets = state.offsets.of_group(request.group_id) if visible else {}
    may_be_pending = request.require_stable and request.group_id in state.offsets.open_transactions
    asked: Sequence[tuple[str, Collection[int]]] = (
        list(offsets.items()) if request.topics is None else request.topics  # a dict has its keys
    )
    if _is_large(asked):
        held = _held(state, request.group_id, asked, offsets, may_be_pending)
        return Result(response=OffsetFetchResponse(request.group_id, ErrorCode.NONE, held))
    topics: list[tuple[str, FetchedPartitions]] = []
    for topic, partitions in asked:
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


def _is_large(asked: Sequence[tuple[str, Collection[int]]]) -> bool:
    if len(asked) == 1:
        return len(asked[0][1]) > SLICE_ENTRIES
    count = len(asked)
    for _, partitions in asked:
        count += len(partitions)
    return count > SLICE_ENTRIES


def _held(
    state: GroupTables,
    group_id: str,
    asked: Sequence[tuple[str, Collection[int]]],
    offsets: GroupOffsets,
    may_be_pending: bool,
) -> tuple[tuple[str, FetchedPartitions], ...]:
    """The offsets as they are found, before an answer is made of them."""
    pending: dict[str, set[int]] = {}
    if may_be_pending:
        for topic, partition in state.offsets.pending_partitions(group_id):
            pending.setdefault(topic, set()).add(partition)
    return tuple([(topic, _hold(parts, offsets.get(topic), pending.get(topic, ()))) for topic, parts in asked])


def _hold(partitions: Collection[int], of_topic: dict[int, Stored] | None, pending: Collection[int]) -> HeldOffsets:
    kept = partitions if isinstance(partitions, tuple) else tuple(partitions)
    return HeldOffsets(kept, () if of_topic is None else tuple(map(of_topic.get, kept)), pending)


def _settled(partitions: Collection[int], of_topic: dict[int, Stored]) -> FetchedPartitions:
    """The offsets of partitions that have none in an open transaction."""
    if PACKED_MIN <= len(partitions) <= PACKED_MAX:
        found = _in_columns(partitions, of_topic)
        if found is not None:
            return found
    return tuple([_fetched(each, of_topic.get(each)) for each in partitions])


def _in_columns(partitions: Collection[int], of_topic: dict[int, Stored]) -> FoundOffsets | None:
    """Returns None if a partition has no offset, or metadata."""
    # Any, because compiled code would take each number out of its object and put it into a new one.
    stored: list[Any] = list(of_topic.values()) if partitions is of_topic else [of_topic.get(p) for p in partitions]
    offsets: list[Any] = []
    leader_epochs: list[Any] = []
    for each in stored:
        if each is None:
            return None
        value: Any = each[1]
        if value.metadata:
            return None
        offsets.append(value.offset)
        leader_epochs.append(value.leader_epoch)
    return FoundOffsets(list(partitions), offsets, leader_epochs)


def _fetched(partition: int, stored: Stored | None) -> FetchedPartition:
    if stored is None:
        return (partition, -1, -1, "", 0)
    value = stored[1]
    return (partition, value.offset, value.leader_epoch, value.metadata, 0)
