"""What the committed log says of groups of the new protocol: nobody is forgotten, epochs do not go back, no partition
has two owners, and what clients are answered is what it says.

A member may be missing only if the leader that wrote its tombstone had a reason (`live`).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.simulation.world import Violation

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.member import UNREVOKED_PARTITIONS
from muster_coordinator.records.consumer_group import (
    MEMBER_TYPE,
    METADATA_TYPE,
    ConsumerGroupCurrentValue,
    ConsumerGroupMemberValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRecord,
    ConsumerGroupTargetMetadataValue,
)
from muster_coordinator.records.group_metadata import GroupMetadataValue
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.consumer_groups import (
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    ConsumerGroupHeartbeatRequest,
)

__all__ = ["ConsumerLog"]


class _Group:
    def __init__(self) -> None:
        self.epoch = self.target_epoch = 0
        self.left: set[str] = set()  # who was removed in this batch, if it is not in a classic group afterwards
        self.members: dict[str, ConsumerGroupMemberValue] = {}
        self.changed_at = -1  # group epoch at which a subscription was changed that is not counted yet
        self.current: dict[str, ConsumerGroupCurrentValue] = {}


def _epochs_of(current: ConsumerGroupCurrentValue) -> dict[tuple[bytes, int], int]:
    """Partition -> the epoch at which the member got it."""
    return {
        (topic.topic_id, partition): epoch
        for topic in current.assigned
        for partition, epoch in zip(topic.partitions, topic.assignment_epochs or (), strict=False)
    }


class ConsumerLog:
    """What the log of one partition says. `removed`: (group, member, epoch of the leader that removed it, for a
    reason). `removals`: how often a member of a group was removed by a committed record. `changes`: how often a group
    became one of the other kind, with members. `ends`: how often a group was removed."""

    def __init__(self, removed: set[tuple[str, str, int]] | None = None) -> None:
        self.removed: set[tuple[str, str, int]] = set() if removed is None else removed
        self.removals: Counter[tuple[str, str]] = Counter()
        self.changes: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self._changes_before = 0
        self._ended: dict[str, _Group] = {}  # in this batch
        self._groups: dict[str, _Group] = {}
        self._reached: dict[tuple[str, str], int] = {}  # (group, member) -> its highest committed epoch
        self._changed: dict[str, None] = {}

    def forget(self) -> None:
        """The committed log begins anew: a person allowed loss."""
        self._groups.clear()
        self._ended.clear()
        self._changed.clear()

    # -- the committed log --------------------------------------------------------------------------------------------

    def committed(self, record: ConsumerGroupRecord, epoch: int) -> None:
        """The next one in the committed log, written in `epoch`."""
        group_id, member = record.group_id, record.name
        group = self._groups.setdefault(group_id, _Group())
        self._changed[group_id] = None
        match record.value:
            case ConsumerGroupMetadataValue(epoch=group_epoch):
                if group_epoch < group.epoch:
                    raise Violation(f"{group_id} goes back to epoch {group_epoch} from {group.epoch} in epoch {epoch}")
                group.epoch = group_epoch
                self._removes(group_id, group, group.left, epoch)
            case ConsumerGroupTargetMetadataValue(target_epoch):
                if target_epoch < group.target_epoch:
                    raise Violation(f"{group_id} goes back to target {target_epoch} from {group.target_epoch}")
                group.target_epoch = target_epoch
            case ConsumerGroupMemberValue() as value:
                self._subscribes(group, member, value)
            case ConsumerGroupCurrentValue() as current:
                self._moves(group_id, group, member, current)
            case None if record.type == METADATA_TYPE:
                if group.members:
                    raise Violation(f"{group_id} is removed with {sorted(group.members)} in epoch {epoch}")
                self._ended[group_id] = self._groups.pop(group_id)
                self.ends[group_id] += 1
            case None if record.type == MEMBER_TYPE and member in group.members:
                del group.members[member]
                group.current.pop(member, None)
                group.left.add(member)

    def became_classic(self, group_id: str, value: GroupMetadataValue, epoch: int) -> None:
        """A record of a classic group follows, perhaps behind the tombstones of a consumer group."""
        group = self._ended.pop(group_id, None)
        if group is None or not group.left:
            return
        members = {each.member_id for each in value.members}
        if members and value.generation < group.epoch:
            raise Violation(f"{group_id} becomes a classic group of generation {value.generation}, after {group.epoch}")
        self.changes[group_id] += bool(members)
        self._removes(group_id, group, group.left - members, epoch)

    def _removes(self, group_id: str, group: _Group, left: set[str], epoch: int) -> None:
        for member in sorted(left):
            if (group_id, member, epoch) not in self.removed:
                raise Violation(f"{group_id} forgets {member} in epoch {epoch}")
            self.removals[group_id, member] += 1
        group.left = set()

    def _subscribes(self, group: _Group, member: str, value: ConsumerGroupMemberValue) -> None:
        before = group.members.get(member)
        is_new = before is None and value.instance_id is None  # a static one may go on as the one before
        names = before.subscribed_topic_names if before is not None else ()
        if (before is not None or is_new) and value.subscribed_topic_names != names:
            group.changed_at = group.epoch
        group.members[member] = value

    def _moves(self, group_id: str, group: _Group, member: str, current: ConsumerGroupCurrentValue) -> None:
        before = group.current.get(member)
        epoch = current.member_epoch
        if before is not None and epoch < before.member_epoch and epoch != LEAVING_STATIC_EPOCH:
            raise Violation(f"{member} of {group_id} goes back to epoch {epoch} from {before.member_epoch}")
        if before is not None:
            if current.state == UNREVOKED_PARTITIONS and epoch > before.member_epoch:
                raise Violation(f"{member} of {group_id} goes on to epoch {epoch}, and has something to give back")
            known, now = _epochs_of(before), _epochs_of(current)
            if epoch != LEAVING_STATIC_EPOCH and any(now[place] != known[place] for place in now.keys() & known.keys()):
                raise Violation(f"{member} of {group_id} has {now}, and had {known}: what it keeps has other epochs")
        group.current[member] = current
        self._reached[group_id, member] = max(epoch, self._reached.get((group_id, member), -1))

    def batch_ends(self, epoch: int) -> int:
        """All records of an operation are there. Returns how many groups became ones of the other kind."""
        for group_id, group in self._ended.items():
            self._removes(group_id, group, group.left, epoch)
        self._ended.clear()
        for group_id in self._changed:
            found = self._groups.get(group_id)
            if found is not None:
                self._removes(group_id, found, found.left, epoch)
                self._check(group_id, found)
        self._changed.clear()
        before, self._changes_before = self._changes_before, self.changes.total()
        return self._changes_before - before

    def members(self, group_id: str) -> frozenset[str]:
        """The ids of the members that the records of a consumer group have left in it."""
        found = self._groups.get(group_id)
        return frozenset() if found is None else frozenset(found.members)

    def life(self, group_id: str) -> int | None:
        """How often the group was removed before it began as it is now; None: there is none."""
        return self.ends[group_id] if group_id in self._groups else None

    def reached(self, group_id: str, member: str) -> int:
        """The highest epoch that the member of a consumer group ever had; -1: it was in none."""
        return self._reached.get((group_id, member), -1)

    def _check(self, group_id: str, group: _Group) -> None:
        if group.changed_at >= group.epoch > 0:
            raise Violation(f"{group_id} stays at epoch {group.epoch} when a subscription changes")
        group.changed_at = -1
        if group.target_epoch > group.epoch:
            raise Violation(f"{group_id} of epoch {group.epoch} has a target of epoch {group.target_epoch}")
        owners: dict[tuple[bytes, int], str] = {}
        for member, current in group.current.items():
            if current.member_epoch > group.target_epoch:
                raise Violation(f"{member} of {group_id} is at {current.member_epoch}, its target is not")
            for topic in (*current.assigned, *current.pending_revocation):
                for index in topic.partitions:
                    other = owners.setdefault((topic.topic_id, index), member)
                    if other != member:
                        raise Violation(f"{group_id} gives {topic.topic_id!r}-{index} to {other} and to {member}")

    # -- answers ------------------------------------------------------------------------------------------------------

    def answered(self, message: Any, response: Any, epoch: int) -> None:
        """A leader of `epoch` answers a client."""
        match message:
            case ConsumerGroupHeartbeatRequest():
                self._heartbeat_answered(message, response, epoch)
            case m.HeartbeatRequest() | m.SyncGroupRequest() if message.group_id in self._groups:
                self._may_turn_away(message.group_id, message.member_id, response.error_code, epoch)
            case m.OffsetCommitRequest() if message.member_id and message.group_id in self._groups:
                for _, codes in response.topics:
                    for _, code in codes:
                        self._may_turn_away(message.group_id, message.member_id, code, epoch)

    def _heartbeat_answered(self, message: ConsumerGroupHeartbeatRequest, response: Any, epoch: int) -> None:
        group_id, member = message.group_id, message.member_id
        group = self._groups.get(group_id, _Group())
        if response.error_code:
            self._may_turn_away(group_id, member, response.error_code, epoch)
        elif message.member_epoch == LEAVING_EPOCH:
            if member in group.members:
                raise Violation(f"{member} has left {group_id}, which has it still")
        elif response.member_epoch > self.reached(group_id, member):  # the group may have gone on since
            raise Violation(f"{member} of {group_id} is told epoch {response.member_epoch}, which is not committed")

    def _may_turn_away(self, group_id: str, member: str, code: int, epoch: int) -> None:
        group = self._groups.get(group_id)
        is_known = group is not None and member in group.members
        if code == ErrorCode.GROUP_ID_NOT_FOUND and is_known:
            raise Violation(f"{group_id} is not found, and has {member}")
        if code == ErrorCode.UNKNOWN_MEMBER_ID and is_known and (group_id, member, epoch) not in self.removed:
            raise Violation(f"{group_id} turns {member} away in epoch {epoch}")
