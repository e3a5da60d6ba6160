"""Group and offset state of one offsets partition, without I/O (Kafka: GroupCoordinatorShard).

A handler returns a Result: records, answers, timers. Durable state, which the records describe, changes only in
`replay`, `replay_transaction_marker` and `restore`. The leader replays its own records as soon as a handler has
returned them; a follower and a load replay those of the log. Live state (members that are joining, parked requests,
pending member ids) exists from `on_loaded` to `on_unloaded`, and handlers and timers change it.

`now_ms` is wall-clock time in milliseconds since 1970: records contain it. Timers are given as delays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from typing import Any

from muster_coordinator.groups.admission import refuse
from muster_coordinator.groups.classic.consumer_groups import describe_consumers, fencing, heartbeat_of_consumer
from muster_coordinator.groups.classic.description import describe_group, list_groups
from muster_coordinator.groups.classic.group import ClassicGroup
from muster_coordinator.groups.classic.heartbeat import heartbeat
from muster_coordinator.groups.classic.join import join_group
from muster_coordinator.groups.classic.leave import leave_group
from muster_coordinator.groups.classic.rebalance import on_join_timer, on_session_timer, on_sync_timer
from muster_coordinator.groups.classic.states import GroupState
from muster_coordinator.groups.classic.sync import sync_group
from muster_coordinator.groups.classic.tables import GroupTables, pack_group
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.consumer.expressions import take_resolved
from muster_coordinator.groups.consumer.group import CONSUMER_GROUP_STATES
from muster_coordinator.groups.consumer.removal import on_member_timer, on_rebalance_timer
from muster_coordinator.groups.consumer.tables import ConsumerTables, without_topics
from muster_coordinator.groups.durable_state import DurableState, durable_state
from muster_coordinator.groups.effects import (
    DELETE_PARTITIONS_TIMER,
    EXPIRE_OFFSETS_TIMER,
    START_SESSIONS_TIMER,
    Effects,
)
from muster_coordinator.groups.group_configs import alter_group_configs, describe_group_configs, list_configured_groups
from muster_coordinator.groups.handover import Handover
from muster_coordinator.groups.offset_store import GroupOffsets
from muster_coordinator.groups.offsets.commit import offset_commit, txn_offset_commit
from muster_coordinator.groups.offsets.deletion import delete_group, group_tombstones, offset_delete
from muster_coordinator.groups.offsets.fetch import offset_fetch
from muster_coordinator.groups.offsets.transactions import describe_producers, write_txn_marker
from muster_coordinator.groups.parking import park_group, unless_parked
from muster_coordinator.groups.searches import OffsetSearches
from muster_coordinator.groups.sessions import Sessions
from muster_coordinator.groups.snapshot import SNAPSHOT_VERSION, check_part, restore_part, snapshot_parts
from muster_coordinator.groups.topics import TopicCatalog
from muster_coordinator.records.consumer_group import CONFIGS_TYPE, ConsumerGroupRecord
from muster_coordinator.records.decode import Change, LogDecoder
from muster_coordinator.records.group_metadata import GroupMetadataRecord, GroupMetadataValue
from muster_coordinator.records.offset_run import OffsetRun
from muster_coordinator.records.structs import OffsetCommitRecord
from muster_coordinator.requests import configs as f
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.parking import ParkGroupRequest
from muster_coordinator.state_machine import NOTHING, Decoder, Operation, Record, Result, TimerKey, Token

_HANDLERS: dict[type, Callable[[GroupTables, Any, Token, int], Result]] = {
    m.OffsetCommitRequest: offset_commit,
    m.HeartbeatRequest: heartbeat,
    m.JoinGroupRequest: unless_parked(join_group),
    m.SyncGroupRequest: sync_group,
    m.LeaveGroupRequest: leave_group,
    m.OffsetFetchRequest: offset_fetch,
    m.ListGroupsRequest: list_groups,
    m.DescribeGroupRequest: describe_group,
    m.DeleteGroupRequest: delete_group,
    m.OffsetDeleteRequest: offset_delete,
    m.TxnOffsetCommitRequest: txn_offset_commit,
    m.WriteTxnMarkerRequest: write_txn_marker,
    m.DescribeProducersRequest: describe_producers,
    c.ConsumerGroupHeartbeatRequest: unless_parked(heartbeat_of_consumer),
    c.DescribeConsumerGroupRequest: describe_consumers,
    f.AlterGroupConfigsRequest: alter_group_configs,
    f.DescribeGroupConfigsRequest: describe_group_configs,
    f.ListConfigResourcesRequest: list_configured_groups,
    ParkGroupRequest: park_group,
}


class GroupCoordinator:
    """Implements `state_machine.StateMachine`.

    `serves`: whether a group is coordinated here. Others are only shown: their records are those of another
    coordinator, so they have no sessions and nothing of them expires. `consumers`: the groups of the consumer protocol,
    none yet, with the ports that they need; without it they find no topics.
    """

    def __init__(
        self,
        config: GroupConfig,
        topics: TopicCatalog,
        new_member_suffix: Callable[[], str],
        serves: Callable[[str], bool] = lambda _group_id: True,
        consumers: ConsumerTables | None = None,
    ) -> None:
        self._serves = serves
        self._state = GroupTables(config, topics, new_member_suffix, consumers or without_topics(new_member_suffix))
        self.handover = Handover(self._state)
        self._active = False
        self._sessions = Sessions(self._state, serves)
        self._searches = OffsetSearches(self._state, serves)
        self.operations: Mapping[type, Operation] = {
            request: partial(handler, self._state) for request, handler in _HANDLERS.items()
        }

    def has_group(self, group_id: str) -> bool:
        """True if the group has members or records here."""
        return group_id in self._state.groups or group_id in self._state.consumers.groups

    def has_consumers(self, group_id: str) -> bool:
        """True if it is a group of the consumer protocol that has members, whatever their protocol."""
        group = self._state.consumers.groups.get(group_id)
        return group is not None and bool(group.members)

    def has_pending(self, group_id: str) -> bool:
        """True if the group has offsets of open transactions."""
        return group_id in self._state.offsets.open_transactions

    def refuse(self, request: object) -> object | None:
        return refuse(request, self._state.config)

    # -- replay --------------------------------------------------------------------------------------------------------

    def new_decoder(self) -> Decoder:
        return LogDecoder().decode

    def replay(
        self,
        change: Change | OffsetRun,
        offset: int,
        timestamp_ms: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> None:
        """Apply the record at `offset`, or a run that begins there. `producer_id` is -1 outside transactions. Records
        of unknown types are ignored."""
        if type(change) is OffsetCommitRecord:
            value = change.value
            group_id = change.group_id
            if value is None:
                self._state.offsets.remove(group_id, change.topic, change.partition, offset)
                return
            group = self._state.groups.get(group_id)
            if group is None:
                self._state.imply_group(group_id, timestamp_ms)
            elif isinstance(group, ClassicGroup):
                group.logged = True
            stored = (offset, value)
            if producer_id < 0:
                self._state.offsets.put(group_id, change.topic, change.partition, stored)
            else:
                self._state.offsets.put_pending(
                    producer_id, producer_epoch, group_id, change.topic, change.partition, stored
                )
        elif type(change) is GroupMetadataRecord:
            self._replay_group(change.group_id, change.value, timestamp_ms)
        elif type(change) is OffsetRun:
            self._replay_run(change, offset, timestamp_ms, producer_id, producer_epoch)
        elif type(change) is ConsumerGroupRecord:
            self._replay_consumers(change)

    def _replay_consumers(self, change: ConsumerGroupRecord) -> None:
        """A group that only offsets have implied, or that was a classic one before, is one of consumers now."""
        if change.value is not None and change.type != CONFIGS_TYPE:
            self._state.forget(change.group_id)
        self._state.consumers.replay(change)

    def _replay_run(
        self, run: OffsetRun, offset: int, timestamp_ms: int, producer_id: int, producer_epoch: int
    ) -> None:
        group = self._state.groups.get(run.group_id)
        if group is None:
            self._state.imply_group(run.group_id, timestamp_ms)
        elif isinstance(group, ClassicGroup):
            group.logged = True
        offsets, stored = self._state.offsets, run.stored(offset)
        if producer_id < 0:
            offsets.put_all(run.group_id, run.topic, stored, offset)
        else:
            for partition, each in stored:
                offsets.put_pending(producer_id, producer_epoch, run.group_id, run.topic, partition, each)

    def _replay_group(self, group_id: str, value: GroupMetadataValue | None, timestamp_ms: int) -> None:
        if value is None:
            self._state.forget(group_id)
            return
        converted = self._state.converted.pop(group_id, None)
        if converted is not None:
            self._state.groups[group_id] = converted
        elif self._active and self._serves(group_id):
            group = self._state.group(group_id) or self._state.add_group(group_id, timestamp_ms)
            group.settle(value, timestamp_ms)
        else:
            self._state.put_packed(group_id, pack_group(value, timestamp_ms))

    def replay_transaction_marker(
        self, producer_id: int, producer_epoch: int, committed: bool, offset: int, coordinator_epoch: int
    ) -> None:
        """Apply the COMMIT or ABORT marker at `offset`."""
        self._state.offsets.end_transaction(producer_id, producer_epoch, committed, coordinator_epoch, offset)

    @property
    def snapshot_version(self) -> int:
        return SNAPSHOT_VERSION

    def snapshot(self, size: int) -> Iterator[bytes]:
        return snapshot_parts(self._state, size)

    def check(self, part: bytes) -> None:
        check_part(part)

    def restore(self, part: bytes) -> None:
        restore_part(self._state, part)

    # -- life ----------------------------------------------------------------------------------------------------------

    def on_loaded(self, now_ms: int) -> Result:
        """Start the sessions of all members, a slice at a time, and the search for expired offsets."""
        assert not self._active
        self._active = True
        effects = Effects()
        self._sessions.start_all(effects, now_ms)
        effects.set_timer(EXPIRE_OFFSETS_TIMER, self._state.config.offsets_retention_check_interval_ms)
        return effects.result()

    def begin_sessions(self, group_id: str, now_ms: int) -> Result:
        """Start the sessions of a group that was another coordinator's until now."""
        effects = Effects()
        self._sessions.start_of(group_id, effects, now_ms)
        return effects.result()

    def on_unloaded(self) -> tuple[Token, ...]:
        self._active = False
        self._sessions.stop()
        self._searches.stop()
        self._state.parked.clear()
        self._state.consumers.forget_live()
        parked: list[Token] = []
        for group in [group for group in self._state.groups.values() if isinstance(group, ClassicGroup)]:
            parked.extend(_parked(group))
            if group.logged:
                self._state.put_packed(group.group_id, pack_group(group.durable, group.state_timestamp_ms))
            else:
                self._state.forget(group.group_id)
        return tuple(parked)

    def on_timer(self, key: TimerKey, now_ms: int) -> Result:
        kind, group_id, member_id = key
        if key == EXPIRE_OFFSETS_TIMER:
            return self._searches.expire(now_ms)
        if key == DELETE_PARTITIONS_TIMER:
            return self._searches.delete_slice()
        effects = Effects()
        if key == START_SESSIONS_TIMER:
            self._sessions.start_slice(effects, now_ms)
            return effects.result()
        if kind == "parked":
            self._state.parked.discard(group_id)
            return NOTHING
        if not self._serves(group_id):
            return NOTHING
        if kind == "consumer-rebalance":
            return on_rebalance_timer(self._state.consumers, group_id, member_id, fencing(self._state, now_ms))
        if kind in ("consumer-session", "consumer-join", "consumer-sync"):
            result = on_member_timer(self._state.consumers, group_id, member_id, fencing(self._state, now_ms))
            self._state.counters.sessions_ended += kind == "consumer-session" and bool(result.records)
            return result
        group = self._state.group(group_id)
        if group is None:
            return NOTHING
        if kind == "session":
            on_session_timer(self._state, group, member_id, effects, now_ms)
        elif kind == "join":
            on_join_timer(self._state, group, effects, now_ms)
        else:
            assert kind == "sync", key
            on_sync_timer(self._state, group, effects, now_ms)
        return effects.result()

    def on_event(self, event: object, now_ms: int) -> Result:
        """Append tombstones for the offsets of partitions that do not exist, or take in what regular expressions of
        consumers stand for."""
        if isinstance(event, c.RegexesResolved):
            return take_resolved(self._state.consumers, event) if self._serves(event.group_id) else NOTHING
        assert isinstance(event, m.TopicsDeleted), event
        return self._searches.delete_all(event)

    @property
    def max_batch_bytes(self) -> int:
        """No record batch may be larger; an operation whose records must stay together has seen to it."""
        return self._state.config.max_record_bytes

    def tombstones_of(self, which: Callable[[str], bool], limit: int) -> list[Record]:
        """Returns tombstones for all that is known of the groups that `which` names, `limit` of them at most: the
        offsets of a group come before the group."""
        records: list[Record] = []
        state = self._state
        known: tuple[Mapping[str, object], ...] = (
            state.groups,
            state.consumers.groups,
            state.consumers.own_configs,
            state.offsets.committed,
            state.offsets.open_transactions,
        )
        for group_id in dict.fromkeys(chain(*known)):
            if which(group_id):
                records.extend(islice(group_tombstones(self._state, group_id), limit - len(records)))
                if len(records) >= limit:
                    break
        return records

    # -- questions -----------------------------------------------------------------------------------------------------

    @property
    def key_count(self) -> int:
        """The number of groups."""
        return len(self._state.groups) + len(self._state.consumers.groups)

    def open_transactions(self, names: int) -> tuple[int, tuple[str, ...]]:
        """The number of producers with pending offsets, and `names` of them at most; of any coordinator."""
        pending = self._state.offsets.pending
        return len(pending), tuple([f"producer {each}" for each in islice(pending, names)])

    @property
    def groups_with_offsets(self) -> Collection[str]:
        """The groups that have committed offsets, as they are at any time."""
        return self._state.offsets.committed.keys()

    def committed_offsets(self, group_id: str) -> GroupOffsets:
        """The committed offsets of a group, which the caller must not change; empty if it has none."""
        return self._state.offsets.of_group(group_id)

    @property
    def offset_count(self) -> int:
        """The number of committed offsets, without those of open transactions (Kafka: NumOffsets)."""
        return self._state.offsets.count

    @property
    def gauges(self) -> Mapping[tuple[str, str], int]:
        counts = {("groups", state.value): count for state, count in self.group_counts().items()}
        consumers = Counter(group.state for group in self._state.consumers.groups.values())
        counts |= {("consumer_groups", state): consumers[state] for state in CONSUMER_GROUP_STATES}
        return counts | {("offsets", ""): self.offset_count}

    @property
    def event_counts(self) -> Mapping[str, int]:
        counters = self._state.counters
        return {
            "offset_commits": counters.offset_commits,
            "offset_deletions": counters.offset_deletions,
            "offset_expirations": counters.offset_expirations,
            "rebalances_completed": counters.rebalances_completed,
            "sessions_ended": counters.sessions_ended,
        }

    def group_counts(self) -> dict[GroupState, int]:
        """Returns the number of groups in each state; every state is a key."""
        return dict(self._state.group_counts)

    def group(self, group_id: str) -> ClassicGroup | None:
        """Returns a group for tests and diagnosis, which must not change it: it may be a copy."""
        return self._state.look_at(group_id)

    def durable_state(self) -> DurableState:
        """Returns all that replay has built; equal for equal logs."""
        return durable_state(self._state)


def _parked(group: ClassicGroup) -> list[Token]:
    """The tokens of its parked joins and syncs."""
    tokens = [token for member in group.members.values() for token in (member.join_token, member.sync_token)]
    return [token for token in tokens if token is not None]
