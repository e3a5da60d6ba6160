"""Checks whether a client that says it is a member may commit and fetch offsets (Kafka:
ConsumerGroup#validateOffsetCommit, #validateOffsetFetch)."""

from __future__ import annotations

from collections.abc import Iterable

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.groups.consumer.member import NO_PARTITIONS, Current
from muster_coordinator.groups.consumer.tables import ConsumerTables
from muster_coordinator.requests.groups import OffsetCommitRequest, TxnOffsetCommitRequest

_MEMBER_EPOCHS_SINCE = 9  # OffsetCommit, KIP-848
_STALE_EPOCH_SINCE = 6  # TxnOffsetCommit, KIP-1319: STALE_MEMBER_EPOCH instead of ILLEGAL_GENERATION


def commit_error(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    member_epoch: int,
    partitions: Iterable[tuple[bytes, int]],
    api_version: int,
    is_transactional: bool = False,
) -> ErrorCode:
    """NONE: they may. `partitions`: (topic id, partition) of all that are committed together.

    An epoch from before is good for what the member has had since then (KIP-1251). Newer ones never are.
    """
    if member_epoch < 0 and not group.members:
        return ErrorCode.NONE  # an admin client, or a consumer that assigns to itself
    if is_transactional and not member_id and member_epoch == -1 and instance_id is None:
        return ErrorCode.NONE
    member = group.member(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    uses_classic = member.value.classic is not None
    if not is_transactional and not uses_classic and api_version < _MEMBER_EPOCHS_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION
    current = member.current
    if member_epoch == current.epoch:
        return ErrorCode.NONE
    if member_epoch < current.epoch and all(
        _had_since(current, topic_id, partition, member_epoch) for topic_id, partition in partitions
    ):
        return ErrorCode.NONE
    knows_stale = not is_transactional or api_version >= _STALE_EPOCH_SINCE
    return ErrorCode.STALE_MEMBER_EPOCH if knows_stale and not uses_classic else ErrorCode.ILLEGAL_GENERATION


def member_commit_error(
    state: ConsumerTables,
    group: ConsumerGroup,
    request: OffsetCommitRequest | TxnOffsetCommitRequest,
) -> int:
    """The `commit_error` of a request."""
    partitions: list[tuple[bytes, int]] = []
    for topic, committed in request.topics:
        found = state.topics.find(topic)
        partitions += [(b"" if found is None else found[0], each[0]) for each in committed]
    return int(
        commit_error(
            group,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            partitions,
            request.api_version,
            isinstance(request, TxnOffsetCommitRequest),
        )
    )


def _had_since(current: Current, topic_id: bytes, partition: int, epoch: int) -> bool:
    """True if the member has the partition, and got it at this epoch or before."""
    for owned in (current.assigned, current.pending_revocation):
        got = owned.get(topic_id, NO_PARTITIONS).get(partition)
        if got is not None:
            return got <= epoch
    return False


def fetch_error(group: ConsumerGroup, member_id: str | None, member_epoch: int) -> ErrorCode:
    """NONE: they may be fetched."""
    if member_id is None and member_epoch < 0:
        return ErrorCode.NONE
    member = None if member_id is None else group.member(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member_epoch == member.current.epoch:
        return ErrorCode.NONE
    return ErrorCode.ILLEGAL_GENERATION if member.value.classic is not None else ErrorCode.STALE_MEMBER_EPOCH
