"""OffsetCommit and TxnOffsetCommit (Kafka: OffsetMetadataManager#commitOffset, commitTransactionalOffset; reference,
4.5, 4.8, 4.9).

The hottest code of the coordinator: one plain pass over the partitions, no object per request beyond the records and
the answer. Partitions that come packed and are all accepted take no pass: they become a run of records.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.admission import refuse
from muster_coordinator.groups.classic.group import ClassicGroup
from muster_coordinator.groups.classic.states import STATE_ERRORS, GroupApi, GroupState
from muster_coordinator.groups.classic.tables import WITH_MEMBERS, GroupTables
from muster_coordinator.groups.consumer.offset_checks import member_commit_error
from muster_coordinator.groups.offset_store import Unpacked
from muster_coordinator.records.batch import batch_bytes
from muster_coordinator.records.offset_commit import encode_offset_commit_key, encode_offset_commit_value
from muster_coordinator.records.offset_run import OffsetRun
from muster_coordinator.records.structs import NO_TOPIC_ID, OffsetCommitRecord, OffsetCommitValue
from muster_coordinator.requests.groups import (
    CommitResults,
    CommittedTopics,
    OffsetCommitRequest,
    OffsetCommitResponse,
    PartitionResults,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from muster_coordinator.requests.packed_offsets import ENTRY_BYTES, AcceptedOffsets, PackedOffsets
from muster_coordinator.state_machine import CancelTimer, Records, Result, SetTimer, Token, Transaction

Timers = tuple[SetTimer | CancelTimer, ...]

# The versions that know GROUP_ID_NOT_FOUND, and get it instead of ILLEGAL_GENERATION:
_UNKNOWN_GROUP_SINCE = 9  # OffsetCommit, KIP-848
_UNKNOWN_GROUP_IN_TRANSACTION_SINCE = 6  # TxnOffsetCommit, KIP-1319
_UNKNOWN_PARTITION = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_METADATA_TOO_LARGE = int(ErrorCode.OFFSET_METADATA_TOO_LARGE)
_EMPTY = GroupState.EMPTY

_pack_partition = struct.Struct(">i").pack
_RECORD_BYTES_MAX = 100_000
_RECORD_BYTES_MIN = 55
"""The bytes that `batch_bytes` counts for one with empty names: 21 beside key and value, 10 of the key, 24 of the
value."""
_PARTITION_BYTES = 4  # the partition ends an OffsetCommitKey


def offset_commit(state: GroupTables, request: OffsetCommitRequest, _token: Token, now_ms: int) -> Result:
    group = _asked_for(state, request.group_id, request.generation_id)
    timers: Timers = ()
    code = 0
    consumers = state.consumers.groups.get(request.group_id)
    if consumers is not None:
        code = member_commit_error(state.consumers, consumers, request)
    elif group is None:
        code = _unknown_group_error(request.generation_id, request.api_version >= _UNKNOWN_GROUP_SINCE)
    elif isinstance(group, bytes) or (request.generation_id < 0 and group.state is _EMPTY):
        pass  # a simple consumer or an administrator
    else:
        code = _group_error(
            group, request.member_id, request.group_instance_id, request.generation_id, GroupApi.OFFSET_COMMIT
        )
        if not code:  # Stable or PreparingRebalance, and the member is named: every other way here ends in an error
            timers = group.members[request.member_id].session_timers
    retention_ms = request.retention_time_ms
    expire_ms = -1 if retention_ms == -1 else now_ms + retention_ms
    topics, records, accepted = _commit_topics(
        state, request.group_id, group is None and consumers is None, request.topics, now_ms, expire_ms, code
    )
    if not accepted:
        return Result(response=OffsetCommitResponse(topics))
    return Result(records, OffsetCommitResponse(topics), (), timers)


def _asked_for(state: GroupTables, group_id: str, generation_id: int) -> ClassicGroup | bytes | None:
    """The group; packed if it is, has no members, and the commit names no generation: it needs no more then."""
    group = state.groups.get(group_id)
    if isinstance(group, bytes) and (generation_id >= 0 or group[1] == WITH_MEMBERS):
        return state.group(group_id)
    return group


def txn_offset_commit(state: GroupTables, request: TxnOffsetCommitRequest, _token: Token, now_ms: int) -> Result:
    refusal = refuse(request, state.config)
    if refusal is not None:
        return Result(response=refusal)
    group = _asked_for(state, request.group_id, request.generation_id)
    consumers = state.consumers.groups.get(request.group_id)
    if request.producer_epoch < state.offsets.producer_epochs.get(request.producer_id, -1):
        code = int(ErrorCode.INVALID_PRODUCER_EPOCH)
    elif 0 <= request.asked_at <= state.offsets.marker_offsets.get(request.producer_id, -1):
        code = int(ErrorCode.INVALID_TXN_STATE)  # the transaction that was asked for has ended (VerificationGuard)
    elif consumers is not None:
        code = member_commit_error(state.consumers, consumers, request)
    elif group is None:
        knows_code = request.api_version >= _UNKNOWN_GROUP_IN_TRANSACTION_SINCE
        code = _unknown_group_error(request.generation_id, knows_code)
    elif isinstance(group, bytes) or (request.generation_id < 0 and group.state is _EMPTY):
        code = 0
    else:
        code = _group_error(
            group, request.member_id, request.group_instance_id, request.generation_id, GroupApi.TXN_OFFSET_COMMIT
        )
    topics, records, accepted = _commit_topics(
        state, request.group_id, group is None and consumers is None, request.topics, now_ms, -1, code
    )
    if not accepted:
        return Result(response=TxnOffsetCommitResponse(topics))
    transaction = Transaction(request.producer_id, request.producer_epoch)
    return Result(records, TxnOffsetCommitResponse(topics), transaction=transaction)


def _commit_topics(
    state: GroupTables,
    group_id: str,
    is_new: bool,
    topics: CommittedTopics,
    now_ms: int,
    expire_ms: int,
    code: int,
) -> tuple[CommitResults, list[Records], bool]:
    """Answer and records of the partitions, and whether the commit is accepted: the group takes it, a partition of it
    exists (if none does, Kafka does not ask the group), and it fits into one batch. Then the group exists too; replay
    makes it where there are records.

    `is_new`: no record mentions the group. `code` is the group's error, which every partition that exists gets. Those
    that do not exist come first, as in Kafka, which answers them before it asks the group.
    """
    has = state.topics.has
    id_of = state.topics.id_of
    max_size = state.config.offset_metadata_max_size
    answers: list[tuple[str, PartitionResults]] = []
    records: list[Records] = []
    changed = state.offsets.committed.get(group_id)
    prefixes = changed.key_prefixes if isinstance(changed, Unpacked) else {}
    known = unknown = False
    most = state.config.max_record_bytes // _RECORD_BYTES_MIN  # records: more are not made, no batch can hold them
    in_runs = 0  # records, beyond the one that each run counts for in `records`
    for topic, partitions in topics:
        prefix = prefixes.get(topic)
        topic_id = id_of(topic) if expire_ms == -1 else NO_TOPIC_ID
        if isinstance(partitions, PackedOffsets):
            if not code and expire_ms == -1 and _all_exist(state, topic, partitions):
                known = True
                in_runs += len(partitions) - 1
                if prefix is None:
                    prefix = _key_prefix(prefixes, group_id, topic)
                records.append(_run(group_id, topic, prefix, partitions, now_ms, topic_id))
                answers.append((topic, AcceptedOffsets(partitions)))
                continue
            partitions = tuple(partitions)
        codes = []
        for partition, offset, leader_epoch, metadata in partitions:
            if not has(topic, partition):
                codes.append((partition, _UNKNOWN_PARTITION))
                unknown = True
                continue
            known = True
            if code:
                codes.append((partition, code))
            elif metadata and len(metadata) * 2 > max_size and _utf16_length(metadata) > max_size:
                codes.append((partition, _METADATA_TOO_LARGE))
            else:
                codes.append((partition, 0))
                if len(records) > most:
                    continue
                if prefix is None:
                    prefix = _key_prefix(prefixes, group_id, topic)
                if expire_ms != -1:
                    leader_epoch = -1  # the record version with an expire time has no field for it, nor for the id
                value = OffsetCommitValue(offset, leader_epoch, metadata or "", now_ms, expire_ms, topic_id)
                records.append(
                    (
                        prefix + _pack_partition(partition),
                        encode_offset_commit_value(value),
                        OffsetCommitRecord(group_id, topic, partition, value),
                    )
                )
        if codes:
            answers.append((topic, tuple(codes)))
    answer = unknown_first(answers) if known and unknown else tuple(answers)
    if code or not known:
        return answer, records, False
    max_bytes = state.config.max_record_bytes
    count = len(records) + in_runs
    if count * _RECORD_BYTES_MAX > max_bytes and batch_bytes(records) > max_bytes:
        return _too_large(answer), records, False
    if is_new:
        if state.is_full:
            return _refused(answer, ErrorCode.COORDINATOR_NOT_AVAILABLE), records, False
        if not records:
            state.add_group(group_id, now_ms)
    state.counters.offset_commits += count
    return answer, records, True


def _all_exist(state: GroupTables, topic: str, committed: PackedOffsets) -> bool:
    has, partitions = state.topics.has, committed.partitions
    return has(topic, min(partitions)) and has(topic, max(partitions))


def _run(group_id: str, topic: str, prefix: bytes, committed: PackedOffsets, now_ms: int, topic_id: bytes) -> OffsetRun:
    return OffsetRun(
        group_id,
        topic,
        prefix,
        committed.data,
        ENTRY_BYTES,
        committed.partitions,
        committed.offsets,
        committed.leader_epochs,
        now_ms,
        topic_id,
    )


def unknown_first(
    answers: Sequence[tuple[str, PartitionResults]],
) -> tuple[tuple[str, tuple[tuple[int, int], ...]], ...]:
    """UNKNOWN_TOPIC_OR_PARTITION before everything else; each topic once, partitions otherwise in their order."""
    unknown: list[tuple[str, tuple[tuple[int, int], ...]]] = []
    others: list[tuple[str, tuple[tuple[int, int], ...]]] = []
    for topic, codes in answers:
        found = tuple([each for each in codes if each[1] == _UNKNOWN_PARTITION])
        if found:
            unknown.append((topic, found))
        if len(found) < len(codes):
            others.append((topic, tuple([each for each in codes if each[1] != _UNKNOWN_PARTITION])))
    ordered = unknown + others
    if len({topic for topic, _ in ordered}) == len(ordered):
        return tuple(ordered)
    merged: dict[str, list[tuple[int, int]]] = {}
    for topic, found in ordered:
        merged.setdefault(topic, []).extend(found)
    return tuple([(topic, tuple(codes)) for topic, codes in merged.items()])


def _key_prefix(prefixes: dict[str, bytes], group_id: str, topic: str) -> bytes:
    """Encode the record key up to the partition, and keep it in `prefixes`, those of the group by topic."""
    prefix = prefixes[topic] = encode_offset_commit_key(group_id, topic, 0)[:-_PARTITION_BYTES]
    return prefix


def _utf16_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _refused(topics: CommitResults, code: ErrorCode) -> CommitResults:
    """Every partition that was accepted gets `code`."""
    return tuple((topic, tuple((index, given or int(code)) for index, given in codes)) for topic, codes in topics)


def _too_large(topics: CommitResults) -> CommitResults:
    """A commit is one batch, whole or not at all; Kafka's append answers MESSAGE_TOO_LARGE, which it passes on so."""
    code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
    return tuple(
        (topic, tuple((index, given if given == _UNKNOWN_PARTITION else code) for index, given in codes))
        for topic, codes in topics
    )


def _unknown_group_error(generation_id: int, knows_code: bool) -> int:
    """Without a generation the commit creates a simple group. `knows_code`: the client knows GROUP_ID_NOT_FOUND."""
    if generation_id < 0:
        return 0
    if knows_code:
        return int(ErrorCode.GROUP_ID_NOT_FOUND)
    return int(ErrorCode.ILLEGAL_GENERATION)


def _group_error(
    group: ClassicGroup, member_id: str, group_instance_id: str | None, generation_id: int, api: GroupApi
) -> int:
    """Kafka: ClassicGroup#validateOffsetCommit."""
    state_error = STATE_ERRORS[api, group.state]
    if group.state is GroupState.DEAD:
        return int(state_error)
    if generation_id >= 0 or member_id or group_instance_id is not None:
        code = group.member_error(member_id, group_instance_id)
        if code:
            return int(code)
        if generation_id != group.generation:
            return int(ErrorCode.ILLEGAL_GENERATION)
    elif api is GroupApi.OFFSET_COMMIT and group.state is not _EMPTY:
        return int(ErrorCode.UNKNOWN_MEMBER_ID)  # only a transaction may leave out the member
    return int(state_error)
