"""A group coordinator with a fake clock, fake timers and a log in memory.

Every result is replayed at once, as the shard does. After every step a follower, which sees nothing but the encoded
records, must have the same durable state, and the live state of every settled group must agree with its last record.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.unit.groups.checks import check_counts, check_group, check_timer

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.classic.group import ClassicGroup
from muster_coordinator.groups.classic.states import GroupState
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.records.batch import RecordRun, encode_batch, read_batch
from muster_coordinator.records.decode import decode_record
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.refusals import refusal
from muster_coordinator.state_machine import Record, Result, SetTimer, TimerKey, Transaction

START_MS = 1_700_000_000_000


def protocols(*names: str, topics: Iterable[str] = ("t",)) -> tuple[tuple[str, bytes], ...]:
    """Protocols of these names, all with a consumer subscription to `topics`."""
    return tuple((name, subscription(topics)) for name in names)


def subscription(topics: Iterable[str], version: int = 0) -> bytes:
    encoded = [topic.encode() for topic in topics]
    body = b"".join(len(topic).to_bytes(2, "big") + topic for topic in encoded)
    return version.to_bytes(2, "big") + len(encoded).to_bytes(4, "big") + body + b"\xff\xff\xff\xff"


CONSUMER = protocols("range")


class Topics:
    """Everything exists except what is listed."""

    def __init__(self) -> None:
        self.missing: set[tuple[str, int]] = set()
        self.ids: dict[str, bytes] = {}

    def has(self, topic: str, partition: int) -> bool:
        return (topic, partition) not in self.missing

    def id_of(self, topic: str) -> bytes:
        return self.ids.get(topic, topic.encode()[:16].ljust(16, b"."))


@dataclass
class Pending:
    """A request; `response` is None while it is parked."""

    request: object
    response: Any = None

    @property
    def code(self) -> int:
        assert self.response is not None, f"still parked: {self.request}"
        return int(self.response.error_code)

    @property
    def parked(self) -> bool:
        return self.response is None


@dataclass
class LogEntry:
    key: bytes
    value: bytes | None
    offset: int
    timestamp_ms: int
    producer: tuple[int, int] = (-1, -1)


@dataclass
class Marker:
    producer_id: int
    producer_epoch: int
    committed: bool
    offset: int
    coordinator_epoch: int


@dataclass
class Harness:
    config: GroupConfig = field(default_factory=lambda: GroupConfig(initial_rebalance_delay_ms=3000, unpacked_groups=1))
    check: bool = True

    def __post_init__(self) -> None:
        self.now_ms = START_MS
        self.topics = Topics()
        self.log: list[LogEntry | Marker] = []
        self.timers: dict[TimerKey, int] = {}
        self.last: Result = Result()
        self._suffix = itertools.count(1)
        self.coordinator = self._new()
        self.follower = self._new()
        self._apply(self.coordinator.on_loaded(self.now_ms), None)

    def _new(self) -> GroupCoordinator:
        return GroupCoordinator(self.config, self.topics, lambda: f"{next(self._suffix):03}")

    # -- steps ---------------------------------------------------------------------------------------------------------

    def send(self, request: object) -> Pending:
        pending = Pending(request)
        self._apply(self.coordinator.operations[type(request)](request, pending, self.now_ms), pending)
        return pending

    def advance(self, delay_ms: int) -> None:
        """Let time pass; timers fire in order, each once, at their time."""
        end_ms = self.now_ms + delay_ms
        while self.timers:
            key = min(self.timers, key=self.timers.__getitem__)
            if self.timers[key] > end_ms:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(key))
            self._apply(self.coordinator.on_timer(key, self.now_ms), None)
        self.now_ms = end_ms

    def fire(self, key: TimerKey) -> None:
        """A timer's event that comes now, whether it is set or not."""
        self._apply(self.coordinator.on_timer(key, self.now_ms), None)

    def partitions_deleted(self) -> Result:
        result = self.coordinator.on_event(m.TopicsDeleted(self.topics.has, self.topics.id_of), self.now_ms)
        self._apply(result, None)
        return result

    def reload(self) -> None:
        """The leader goes, another one loads the log."""
        for pending in self.coordinator.on_unloaded():
            self._answer(pending, refusal(pending.request, ErrorCode.NOT_COORDINATOR))
        self.timers.clear()
        self.coordinator = self._new()
        replay(self.coordinator, self.log)
        self._apply(self.coordinator.on_loaded(self.now_ms), None)

    def restored(self) -> GroupCoordinator:
        """One that has nothing but a snapshot of the leader's state."""
        coordinator = self._new()
        for part in self.coordinator.snapshot(3):
            coordinator.restore(part)
        return coordinator

    def lose_records(self, count: int) -> None:
        """The last records never reached the log: the leader steps down, and another one loads what is there."""
        del self.log[len(self.log) - count :]
        self.follower = self._new()
        replay(self.follower, self.log)
        self.reload()

    def _apply(self, result: Result, own: Pending | None) -> None:
        self.last = result
        for record in result.records:
            if isinstance(record, tuple):
                self._append(record, result.transaction)
            else:
                assert result.transaction is None
                self._append_run(record)
        if result.transaction is not None and result.transaction.marker is not None:
            self._append_marker(result.transaction)
        if own is not None and result.response is not None:
            self._answer(own, result.response)
        for reply in result.replies:
            assert reply.token is not own
            self._answer(reply.token, reply.response)
        for timer in result.timers:
            if isinstance(timer, SetTimer):
                assert timer.delay_ms >= 0
                self.timers[timer.key] = self.now_ms + timer.delay_ms
            else:
                self.timers.pop(timer.key, None)
        if self.check:
            self._check()

    def _append(self, record: Record, transaction: Transaction | None) -> None:
        producer = (-1, -1) if transaction is None else (transaction.producer_id, transaction.producer_epoch)
        key, value, change = record
        entry = LogEntry(key, value, len(self.log), self.now_ms, producer)
        assert decode_record(key, value) == change
        self.log.append(entry)
        self.coordinator.replay(change, entry.offset, entry.timestamp_ms, *producer)
        replay(self.follower, [entry])

    def _append_run(self, run: RecordRun) -> None:
        """The leader replays the run, the follower the records of its bytes."""
        base_offset = len(self.log)
        batch = read_batch(encode_batch([run], base_offset=base_offset, leader_epoch=0, timestamp_ms=self.now_ms))
        entries = [LogEntry(each.key or b"", each.value, each.offset, self.now_ms) for each in batch.records()]
        assert len(entries) == run.count
        self.log += entries
        self.coordinator.replay(run, base_offset, self.now_ms)
        replay(self.follower, entries)

    def _append_marker(self, transaction: Transaction) -> None:
        assert transaction.marker is not None
        marker = Marker(
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.marker,
            len(self.log),
            transaction.coordinator_epoch,
        )
        self.log.append(marker)
        replay(self.coordinator, [marker])
        replay(self.follower, [marker])

    @staticmethod
    def _answer(token: object, response: object) -> None:
        assert isinstance(token, Pending)
        assert token.response is None, f"answered twice: {token.request}"
        token.response = response

    # -- checks --------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        assert self.coordinator.durable_state() == self.follower.durable_state()
        check_counts(self.coordinator)
        for group_id in self.group_ids():
            group = self.coordinator.group(group_id)
            assert group is not None
            check_group(group)
            for member in group.members.values():
                assert ("session", group_id, member.member_id) in self.timers or member.satisfies_session()
            if group.state is GroupState.PREPARING_REBALANCE:
                assert ("join", group_id, "") in self.timers, "a join phase always ends"
            if group.state is GroupState.COMPLETING_REBALANCE:
                assert ("sync", group_id, "") in self.timers or group.leader not in group.pending_sync

        for kind, group_id, member_id in self.timers:
            if kind == "parked":
                assert group_id in self.coordinator._state.parked
            elif group_id and not kind.startswith("consumer-"):
                check_timer(kind, self.group(group_id), member_id)

    def group_ids(self) -> list[str]:
        response = self.coordinator.operations[m.ListGroupsRequest](
            m.ListGroupsRequest(types_filter=("classic",)), object(), self.now_ms
        ).response
        assert isinstance(response, m.ListGroupsResponse)
        return [group.group_id for group in response.groups]

    # -- requests ------------------------------------------------------------------------------------------------------

    def join(self, group_id: str = "g", member_id: str = "", **fields: Any) -> Pending:
        request: dict[str, Any] = {
            "group_id": group_id,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": CONSUMER,
            "reason": None,
            "client_id": "client",
            "client_host": "/127.0.0.1",
            "api_version": 9,
        }
        return self.send(m.JoinGroupRequest(**{**request, **fields}))

    def join_dynamic(self, group_id: str = "g", **fields: Any) -> Pending:
        """Both steps of KIP-394."""
        required = self.join(group_id, **fields)
        assert required.code == 79
        return self.join(group_id, required.response.member_id, **fields)

    def sync(
        self, group_id: str, generation: int, member_id: str, assignments: dict[str, bytes] | None = None, **fields: Any
    ) -> Pending:
        request: dict[str, Any] = {
            "group_id": group_id,
            "generation_id": generation,
            "member_id": member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": tuple((assignments or {}).items()),
            "api_version": 5,
        }
        return self.send(m.SyncGroupRequest(**{**request, **fields}))

    def heartbeat(self, group_id: str, generation: int, member_id: str, instance: str | None = None) -> int:
        return self.send(m.HeartbeatRequest(group_id, generation, member_id, instance)).code

    def leave(self, group_id: str, *members: str | tuple[str, str | None]) -> Pending:
        leaving = tuple(
            m.LeavingMember(member, None) if isinstance(member, str) else m.LeavingMember(*member) for member in members
        )
        return self.send(m.LeaveGroupRequest(group_id, leaving))

    def commit(self, group_id: str = "g", offset: int = 5, **fields: Any) -> int:
        """Commit one partition, or `topics`; the error code of the first partition."""
        request: dict[str, Any] = {
            "group_id": group_id,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "retention_time_ms": -1,
            "topics": (("t", ((0, offset, -1, ""),)),),
            "api_version": 9,
        }
        response = self.send(m.OffsetCommitRequest(**{**request, **fields})).response
        return int(response.topics[0][1][0][1])

    def txn_commit(self, producer_id: int, group_id: str = "g", offset: int = 5, **fields: Any) -> int:
        request: dict[str, Any] = {
            "transactional_id": f"tx-{producer_id}",
            "group_id": group_id,
            "producer_id": producer_id,
            "producer_epoch": 0,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": (("t", ((0, offset, -1, ""),)),),
            "api_version": 3,
        }
        response = self.send(m.TxnOffsetCommitRequest(**{**request, **fields})).response
        return int(response.topics[0][1][0][1])

    def end_txn(
        self,
        producer_id: int,
        committed: bool,
        producer_epoch: int = 0,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
    ) -> int:
        marker = m.WriteTxnMarkerRequest(producer_id, producer_epoch, committed, coordinator_epoch, transaction_version)
        return self.send(marker).code

    def fetch(
        self,
        group_id: str = "g",
        topics: tuple[tuple[str, tuple[int, ...]], ...] | None = (("t", (0,)),),
        require_stable: bool = False,
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """(topic, partition) -> (offset, error code)"""
        response = self.send(m.OffsetFetchRequest(group_id, None, -1, topics, require_stable)).response
        assert response.error_code == 0
        return {(topic, p[0]): (p[1], p[4]) for topic, partitions in response.topics for p in partitions}

    def offset(self, group_id: str = "g", topic: str = "t", partition: int = 0) -> int:
        return self.fetch(group_id, ((topic, (partition,)),))[topic, partition][0]

    def describe(self, group_id: str = "g", api_version: int = 6) -> m.DescribedGroup:
        response = self.send(m.DescribeGroupRequest(group_id, api_version)).response
        assert isinstance(response, m.DescribedGroup)
        return response

    def delete(self, group_id: str = "g") -> int:
        return self.send(m.DeleteGroupRequest(group_id)).code

    def state(self, group_id: str = "g") -> str:
        return self.describe(group_id).group_state

    def group(self, group_id: str = "g") -> ClassicGroup:
        group = self.coordinator.group(group_id)
        assert group is not None
        return group

    # -- set-ups -------------------------------------------------------------------------------------------------------

    def stable_group(self, group_id: str = "g", members: int = 1, **fields: Any) -> list[str]:
        """A Stable group of dynamic members in generation 1, the first one leads; their member ids."""
        joins = [self.join_dynamic(group_id, **fields) for _ in range(members)]
        self.finish_initial_delay(group_id)
        ids = [join.response.member_id for join in joins]
        self.sync_all(group_id, 1, ids, **_sync_fields(fields))
        return ids

    def static_group(
        self, group_id: str = "g", instances: tuple[str, ...] = ("leader", "follower"), **fields: Any
    ) -> list[str]:
        joins = [self.join(group_id, group_instance_id=instance, **fields) for instance in instances]
        self.finish_initial_delay(group_id)
        ids = [join.response.member_id for join in joins]
        self.sync_all(group_id, 1, ids, **_sync_fields(fields))
        return ids

    def finish_initial_delay(self, group_id: str = "g") -> None:
        """Run the initial rebalance delay with its extensions, and nothing else."""
        while (join := self.timers.get(("join", group_id, ""))) is not None:
            self.advance(join - self.now_ms)

    def sync_all(self, group_id: str, generation: int, ids: list[str], **fields: Any) -> None:
        leader = self.group(group_id).leader
        for member_id in ids:
            assignments = {each: f"a-{each}".encode() for each in ids} if member_id == leader else None
            self.sync(group_id, generation, member_id, assignments, **fields)
        assert self.state(group_id) == "Stable"


def _sync_fields(fields: dict[str, Any]) -> dict[str, Any]:
    return {"protocol_type": fields.get("protocol_type", "consumer"), "protocol_name": None, "api_version": 3}


def replay(coordinator: GroupCoordinator, log: Iterable[LogEntry | Marker]) -> None:
    """Feed a coordinator from encoded records alone."""
    for entry in log:
        if isinstance(entry, Marker):
            coordinator.replay_transaction_marker(
                entry.producer_id, entry.producer_epoch, entry.committed, entry.offset, entry.coordinator_epoch
            )
        else:
            change = decode_record(entry.key, entry.value)
            coordinator.replay(change, entry.offset, entry.timestamp_ms, *entry.producer)
