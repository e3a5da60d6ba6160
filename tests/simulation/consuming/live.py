"""What one leader does to the members of groups of the new protocol, seen from outside: who goes had a reason to, and
who is refused said something wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.consuming.log import ConsumerLog
from tests.simulation.members import CLOCK_STEP_MS, REBALANCE_MS, SESSION_MS, Silent, takes_place_of
from tests.simulation.world import Violation

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.groups.consumer.member import NEW_MEMBER, UNREVOKED_PARTITIONS, Current
from muster_coordinator.records.consumer_group import ConsumerGroupMemberValue
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.consumer_groups import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    ConsumerGroupHeartbeatRequest,
)
from muster_coordinator.state_machine import TimerKey

if TYPE_CHECKING:
    from tests.simulation.pods.groups import WatchedGroups

__all__ = ["Epochs", "LiveConsumers"]

_STALE = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION})

Epochs = dict[str, int]
"""Member -> its epoch."""


class LiveConsumers:
    def __init__(self, shard: WatchedGroups, log: ConsumerLog) -> None:
        self._shard = shard
        self._log = log
        self._epoch = -1
        self._gone: set[tuple[str, str]] = set()  # (group, member) that this leader removed, in any epoch of its own
        self._since_ms = shard.monotonic_ms()
        self._heard: dict[tuple[str, str], int] = {}
        self._told: dict[tuple[str, str], int] = {}  # since when a member has something to give back
        self._awaited: dict[tuple[str, str], int] = {}  # since when a classic member is to join anew
        self._joined: dict[tuple[str, str], int] = {}  # when it did so last
        self._silent = Silent()
        self._current: dict[str, Current] = {}  # of the members of the group that is asked, before it is
        self._values: dict[tuple[str, str], ConsumerGroupMemberValue] = {}  # of each member, as it was last

    def lead_on(self, epoch: int) -> None:
        """It leads in `epoch`, which may be another one than at the last: its next records may lack whom it removed
        before."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._log.removed.update((group, member, epoch) for group, member in self._gone)

    def before(self, group_id: str) -> Epochs:
        group = self._group(group_id)
        if group is None:
            return {}
        self._follow(group, self._since_ms)  # what was so when it was loaded
        self._current = {member: group.current_of(member) for member in group.members}
        return {member: group.current_of(member).epoch for member in group.members}

    def answered(self, was: Epochs, message: Any, response: Any) -> None:
        """This is what the leader will answer to `message`, once it may."""
        match message:
            case ConsumerGroupHeartbeatRequest():
                key, said = (message.group_id, message.member_id), message.member_epoch
                if response.error_code == ErrorCode.NONE and said != LEAVING_EPOCH and said != LEAVING_STATIC_EPOCH:
                    self._heard[key] = self._shard.monotonic_ms()
                if response.error_code == ErrorCode.FENCED_MEMBER_EPOCH and was.get(key[1]) == said:
                    raise Violation(f"{key[0]} fences {key[1]}, which is at its epoch {said}")
                if response.error_code == ErrorCode.FENCED_MEMBER_EPOCH and key[1] in was and self._is_behind(message):
                    raise Violation(f"{key[0]} fences {message}, whose answer was lost")
            case m.OffsetCommitRequest() if message.member_id in was:
                codes = {code for _, found in response.topics for _, code in found}
                if codes & _STALE and was[message.member_id] == message.generation_id:
                    raise Violation(f"{message.group_id} calls {message} stale, which has the epoch of its member")
                if codes & _STALE and self._has_had(message):
                    raise Violation(f"{message.group_id} calls {message} stale, whose member has had these since then")
            case m.JoinGroupRequest() if was and response is not None and response.error_code == ErrorCode.NONE:
                self._joins(message.group_id, response.member_id)
            case m.HeartbeatRequest() | m.SyncGroupRequest() if message.member_id in was:
                self._answers_classic(was, message, response.error_code)
            case _:
                pass

    def _is_behind(self, message: ConsumerGroupHeartbeatRequest) -> bool:
        """Whether it says the epoch before its own, and has nothing but what it was given."""
        current, has = self._current.get(message.member_id, NEW_MEMBER), message.topic_partitions
        return (
            has is not None
            and JOINING_EPOCH < message.member_epoch == current.previous_epoch
            and all(partition in current.assigned.get(topic, {}) for topic, each in has for partition in each)
        )

    def _has_had(self, message: m.OffsetCommitRequest) -> bool:
        """Whether the member has all that it commits since the epoch that it says (KIP-1251)."""
        current, topics = self._current.get(message.member_id, NEW_MEMBER), self._shard.consumers.topics
        if message.generation_id > current.epoch:
            return False
        for topic, partitions in message.topics:
            found = topics.find(topic)
            if found is None:
                return False
            since = {**current.pending_revocation.get(found[0], {}), **current.assigned.get(found[0], {})}
            if any(since.get(each[0], message.generation_id + 1) > message.generation_id for each in partitions):
                return False
        return True

    def _joins(self, group_id: str, member: str) -> None:
        now_ms, key = self._shard.monotonic_ms(), (group_id, member)
        self._heard[key] = self._joined[key] = now_ms
        self._awaited.pop(key, None)

    def _answers_classic(self, was: Epochs, message: m.HeartbeatRequest | m.SyncGroupRequest, code: int) -> None:
        now_ms, key = self._shard.monotonic_ms(), (message.group_id, message.member_id)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._awaited.setdefault(key, now_ms)
        if code == ErrorCode.NONE or (
            code == ErrorCode.REBALANCE_IN_PROGRESS and isinstance(message, m.HeartbeatRequest)
        ):
            self._heard[key] = now_ms
        if code in _STALE and was[key[1]] == message.generation_id:
            raise Violation(f"{key[0]} says {code} to {key[1]}, which is at its epoch {message.generation_id}")

    def after(self, group_id: str, was: Epochs, message: Any, timer: TimerKey) -> None:
        """`message` or `timer` was handled; the other one is empty."""
        group = self._group(group_id)
        members = {} if group is None else group.members
        downgraded = self._shard.coordinator.group(group_id)
        others = () if downgraded is None else downgraded.members
        self._heard.update(((group_id, each), self._shard.monotonic_ms()) for each in members if each not in was)
        for member, epoch in was.items():
            if member not in members and member not in others:
                self._explain(group_id, member, epoch, message, timer)
                self._gone.add((group_id, member))
                self._log.removed.add((group_id, member, self._epoch))
        if group is not None:
            now_ms = self._shard.monotonic_ms()
            self._follow(group, now_ms)
            for member in members:
                self._silent.look(group_id, member, now_ms - self._heard.get((group_id, member), self._since_ms))

    def _follow(self, group: ConsumerGroup, now_ms: int) -> None:
        for member in group.members:
            key = group.group_id, member
            self._values[key] = group.members[member]
            if group.current_of(member).state == UNREVOKED_PARTITIONS:
                self._told.setdefault(key, now_ms)
            else:
                self._told.pop(key, None)

    def _explain(self, group: str, member: str, epoch: int, message: Any, timer: TimerKey) -> None:
        if isinstance(message, ConsumerGroupHeartbeatRequest):
            if message.member_id == member and message.member_epoch == LEAVING_EPOCH:
                return
            is_free = epoch == LEAVING_STATIC_EPOCH or self._is_classic(group, member)
            if message.member_epoch == JOINING_EPOCH and is_free and message.instance_id:
                return  # it is back, with another member id
        if isinstance(message, m.LeaveGroupRequest | m.JoinGroupRequest):
            value = self._values[group, member]
            left = isinstance(message, m.LeaveGroupRequest) and any(e.member_id == member for e in message.members)
            if left or (value.instance_id is not None and takes_place_of(message, value.instance_id)):
                return
        now_ms = self._shard.monotonic_ms()
        if timer[:1] == ("consumer-session",) and timer[2] == member:
            silent_ms = now_ms - self._heard.get((group, member), self._since_ms)
            if silent_ms >= SESSION_MS - CLOCK_STEP_MS:
                return
            raise Violation(f"{group} ends the session of {member} after {silent_ms} ms in epoch {self._epoch}")
        if timer[:1] == ("consumer-rebalance",) and timer[2] == member:
            told_ms = self._told.get((group, member), now_ms)
            if now_ms - told_ms >= REBALANCE_MS - CLOCK_STEP_MS:
                return
        if timer[:1] in (("consumer-join",), ("consumer-sync",)) and timer[2] == member:
            since = self._awaited if timer[0] == "consumer-join" else self._joined
            if now_ms - since.get((group, member), now_ms) >= REBALANCE_MS - CLOCK_STEP_MS:
                return
        raise Violation(f"{group} removes {member} in epoch {self._epoch} by {type(message).__name__} or {timer}")

    def _is_classic(self, group: str, member: str) -> bool:
        return self._values[group, member].classic is not None

    def _group(self, group_id: str) -> ConsumerGroup | None:
        return self._shard.consumers.groups.get(group_id)
