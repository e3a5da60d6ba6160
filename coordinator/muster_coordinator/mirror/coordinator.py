"""State machine of an offsets partition that follows that of a Kafka cluster: the group coordinator, fed by a mirror.

Groups that Muster serves are those of the group coordinator: its own, and those that a route has moved to it. All other
groups are Kafka's: their records come from the topic, reads are answered from them, and writes are refused as a broker
refuses what another broker coordinates. No timer and no expiry touches them: what Kafka has not ended goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.mirror.bypasses import Bypasses
from muster_coordinator.mirror.moving.back import DecideBackRequest
from muster_coordinator.mirror.moving.deciding import BeginSessionsRequest, DecideRequest
from muster_coordinator.mirror.moving.shard import MovesOfShard
from muster_coordinator.mirror.requests import (
    TakeBackRequest,
    TakeBackResponse,
    TakeInRequest,
    TakeInResponse,
)
from muster_coordinator.mirror.routes import Routes
from muster_coordinator.records.batch import CorruptBatchError, RecordBatch, read_batch
from muster_coordinator.records.control import EndTxnMarker, decode_control
from muster_coordinator.records.errors import RecordDecodeError
from muster_coordinator.records.group_route import GroupRoute, decode_route, is_route_key
from muster_coordinator.records.mirror_position import (
    MirrorPosition,
    decode_position,
    encode_position,
    is_position_key,
    position_record,
)
from muster_coordinator.records.retain import retain
from muster_coordinator.records.structs import BatchRecord, UnknownRecord
from muster_coordinator.requests import configs as f
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.parking import ParkGroupRequest
from muster_coordinator.requests.refusals import refusal
from muster_coordinator.state_machine import (
    Decoder,
    Imported,
    Operation,
    Result,
    TimerKey,
    Token,
)

_SNAPSHOT_VERSIONS = 2_000
"""Added to the version of the group coordinator's snapshots, which have no position and no routes."""
_POSITION, _STRAYS, _ROUTES, _GROUPS = b"P", b"S", b"R", b"G"
"""First byte of a part of a snapshot: the position, the position with strays, routes, of the group coordinator."""
TAKEN_BACK_AT_ONCE = 1_000
"""Keys that one operation removes: a few milliseconds of work."""

_READS = (m.OffsetFetchRequest, m.DescribeGroupRequest, c.DescribeConsumerGroupRequest)
_WRITES = (
    m.OffsetCommitRequest,
    m.HeartbeatRequest,
    m.JoinGroupRequest,
    m.SyncGroupRequest,
    m.LeaveGroupRequest,
    m.DeleteGroupRequest,
    m.OffsetDeleteRequest,
    m.TxnOffsetCommitRequest,
    c.ConsumerGroupHeartbeatRequest,
    f.AlterGroupConfigsRequest,
    f.DescribeGroupConfigsRequest,  # Kafka keeps those of its groups elsewhere
    ParkGroupRequest,
)


class MirrorCoordinator:
    """Implements `state_machine.StateMachine`. `routes` say whether a group is Muster's; `groups` was made with them.
    `knows_topics`: whether the upstream has said which topics there are."""

    def __init__(self, groups: GroupCoordinator, routes: Routes, knows_topics: Callable[[], bool]) -> None:
        self.groups = groups
        self.routes = routes
        self.position = MirrorPosition()
        self.has_strays = False
        """Records of Kafka's groups came after the position: the leader that appended them ended before it appended the
        next position."""
        self.moves = MovesOfShard(self, groups, routes, knows_topics)
        self._serves = routes.serves
        self._knows_topics = knows_topics
        self._decode = groups.new_decoder()
        self._taken_in = 0
        self._left_out = 0
        self.bypasses = Bypasses(groups.has_group)
        self.changed: set[str] = set()
        """Groups with a route about which something was replayed; the leader takes them out."""
        operations = dict(groups.operations)
        for read in _READS:
            operations[read] = partial(self._read, operations[read])
        for write in _WRITES:
            operations[write] = partial(self._write, operations[write])
        operations[c.ConsumerGroupHeartbeatRequest] = partial(
            self._consumer_heartbeat, operations[c.ConsumerGroupHeartbeatRequest]
        )
        for of_classic in (m.JoinGroupRequest, m.SyncGroupRequest):
            operations[of_classic] = partial(self._classic_member, operations[of_classic])
        operations[m.ListGroupsRequest] = partial(self._list, operations[m.ListGroupsRequest])
        operations[TakeInRequest] = self._take_in
        operations[TakeBackRequest] = self._take_back
        operations[DecideRequest] = self.moves.decide
        operations[DecideBackRequest] = self.moves.decide_back
        operations[BeginSessionsRequest] = self.moves.begin_sessions
        self.operations: Mapping[type, Operation] = operations

    # -- clients -------------------------------------------------------------------------------------------------------

    def refuse(self, request: object) -> object | None:
        return self.groups.refuse(request)

    def _read(self, operation: Operation, request: Any, token: Token, now_ms: int) -> Result:
        if not self.position.complete and not self._serves(request.group_id):
            return Result(response=refusal(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return operation(request, token, now_ms)

    def _list(self, operation: Operation, request: Any, token: Token, now_ms: int) -> Result:
        if not self.position.complete:
            return Result(response=refusal(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return operation(request, token, now_ms)

    def _write(self, operation: Operation, request: Any, token: Token, now_ms: int) -> Result:
        if not self._serves(request.group_id):
            return Result(response=refusal(request, ErrorCode.NOT_COORDINATOR))
        return operation(request, token, now_ms)

    def _consumer_heartbeat(
        self, operation: Operation, request: c.ConsumerGroupHeartbeatRequest, token: Token, now_ms: int
    ) -> Result:
        """Topics that are not known yet must not count for topics that are gone: members would have to give all back.
        Who leaves may."""
        if request.member_epoch >= c.JOINING_EPOCH and self._serves(request.group_id) and not self._knows_topics():
            return Result(response=refusal(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return operation(request, token, now_ms)

    def _classic_member(self, operation: Operation, request: Any, token: Token, now_ms: int) -> Result:
        """Refuse what a consumer's heartbeat is refused, in a group that has consumers. Clients take no
        COORDINATOR_LOAD_IN_PROGRESS in answer to SyncGroup: they join again."""
        if not self._knows_topics() and self._serves(request.group_id) and self.groups.has_consumers(request.group_id):
            joins = isinstance(request, m.JoinGroupRequest)
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if joins else ErrorCode.REBALANCE_IN_PROGRESS
            return Result(response=refusal(request, code))
        return operation(request, token, now_ms)

    # -- the mirror ----------------------------------------------------------------------------------------------------

    def _take_in(self, request: TakeInRequest, _token: Token, _now_ms: int) -> Result:
        if request.from_offset != self.position.offset or self.position.clearing:
            return Result(response=TakeInResponse(f"the position is offset {self.position.offset} meanwhile"))
        try:
            imported = [each for batch in request.batches if (each := self._import(request.from_offset, batch))]
        except (CorruptBatchError, RecordDecodeError) as error:
            return Result(response=TakeInResponse(f"a record at or after offset {request.from_offset}: {error}"))
        count = sum(each.batch.records_count for each in imported)
        self._taken_in += count
        return Result((position_record(request.position),), response=TakeInResponse(records=count), imported=imported)

    def _import(self, from_offset: int, batch: RecordBatch) -> Imported | None:
        """The part of `batch` that is taken over; None: nothing. Raises CorruptBatchError, RecordDecodeError: a log
        with such a record could not be loaded any more."""
        records = batch.records()
        if batch.is_control:
            return _marker(batch, records)
        kept = {record.offset for record in records if record.offset >= from_offset}
        changes: list[tuple[BatchRecord, Any]] = []
        for record in records:
            if record.offset not in kept:
                continue
            if is_position_key(record.key) or is_route_key(record.key):
                kept.discard(record.offset)  # the topic's own are none of ours
                continue
            change = self._decode(record.key, record.value)
            if isinstance(change, UnknownRecord):
                continue
            if self._serves(change.group_id):
                kept.discard(record.offset)
                self._left_out += self.bypasses.left_out(change, self.position.complete)
                continue
            changes.append((record, change))
        if not kept:
            return None
        if len(kept) < batch.records_count:
            batch = read_batch(retain(batch, kept))
        return Imported(batch, tuple(changes))

    def _take_back(self, _request: TakeBackRequest, _token: Token, now_ms: int) -> Result:
        """Tombstones for the groups that are Kafka's, a slice at a time; then the position says: from the start."""
        records = self.groups.tombstones_of(lambda group_id: not self._serves(group_id), TAKEN_BACK_AT_ONCE)
        done = len(records) < TAKEN_BACK_AT_ONCE
        records.append(position_record(MirrorPosition(since_ms=now_ms, clearing=not done)))
        return Result(records, response=TakeBackResponse(done))

    # -- replay --------------------------------------------------------------------------------------------------------

    def new_decoder(self) -> Decoder:
        return partial(_decode, self.groups.new_decoder())

    def replay(
        self, change: Any, offset: int, timestamp_ms: int, producer_id: int = -1, producer_epoch: int = -1
    ) -> None:
        if type(change) is MirrorPosition:
            self.position = change
            self.has_strays = False
            return
        if type(change) is GroupRoute:
            self.routes.replay(change)
            self.changed.add(change.group_id)
            self.bypasses.forget(change.group_id)
            return
        self.groups.replay(change, offset, timestamp_ms, producer_id, producer_epoch)
        if isinstance(change, UnknownRecord):
            return
        if change.group_id in self.routes.by_group:
            self.changed.add(change.group_id)
        if not self.has_strays:
            self.has_strays = not self._serves(change.group_id)

    def replay_transaction_marker(
        self, producer_id: int, producer_epoch: int, committed: bool, offset: int, coordinator_epoch: int
    ) -> None:
        self.groups.replay_transaction_marker(producer_id, producer_epoch, committed, offset, coordinator_epoch)
        self.has_strays = True

    @property
    def snapshot_version(self) -> int:
        return _SNAPSHOT_VERSIONS + self.groups.snapshot_version

    def snapshot(self, size: int) -> Iterator[bytes]:
        yield (_STRAYS if self.has_strays else _POSITION) + encode_position(self.position)[1]
        for part in self.routes.snapshot(size):
            yield _ROUTES + part
        for part in self.groups.snapshot(size):
            yield _GROUPS + part

    def check(self, part: bytes) -> None:
        if part[:1] == _GROUPS:
            self.groups.check(part[1:])
        elif part[:1] == _ROUTES:
            self.routes.check(part[1:])

    def restore(self, part: bytes) -> None:
        if part[:1] == _GROUPS:
            self.groups.restore(part[1:])
        elif part[:1] == _ROUTES:
            self.routes.restore(part[1:])
        else:
            self.position = decode_position(part[1:])
            self.has_strays = part[:1] == _STRAYS

    # -- life ----------------------------------------------------------------------------------------------------------

    def on_loaded(self, now_ms: int) -> Result:
        return self.groups.on_loaded(now_ms)

    def on_unloaded(self) -> tuple[Token, ...]:
        return self.groups.on_unloaded()

    def on_timer(self, key: TimerKey, now_ms: int) -> Result:
        return self.groups.on_timer(key, now_ms)

    def on_event(self, event: object, now_ms: int) -> Result:
        return self.groups.on_event(event, now_ms)

    # -- questions -----------------------------------------------------------------------------------------------------

    @property
    def max_batch_bytes(self) -> int:
        return self.groups.max_batch_bytes

    @property
    def key_count(self) -> int:
        return self.groups.key_count

    def open_transactions(self, names: int) -> tuple[int, tuple[str, ...]]:
        return self.groups.open_transactions(names)

    @property
    def event_counts(self) -> Mapping[str, int]:
        return {
            **self.groups.event_counts,
            "mirror_records_taken_in": self._taken_in,
            "mirror_records_left_out": self._left_out,
        }

    @property
    def gauges(self) -> Mapping[tuple[str, str], int]:
        return self.groups.gauges


def _marker(batch: RecordBatch, records: list[BatchRecord]) -> Imported | None:
    """A transaction's marker. No other control record of the topic has a meaning here, and Muster's own must not come
    from elsewhere."""
    if len(records) != 1:
        return None
    control = decode_control(records[0].key, records[0].value)
    if not isinstance(control, EndTxnMarker):
        return None
    return Imported(batch, (), control.committed, control.coordinator_epoch)


def _decode(decode: Decoder, key: bytes | None, value: bytes | None) -> Any:
    if is_position_key(key):
        return decode_position(value)
    if key is not None and is_route_key(key):
        return decode_route(key, value)
    return decode(key, value)
