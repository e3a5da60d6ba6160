"""No group forgets a member that it acknowledged.

Two records of a group that follow one another in the committed log: who is in the first one and not in the second must
have been removed by the leader that wrote the second one, for a reason: it left, its session ended (nothing was heard
of it for its session timeout, at this leader), or it missed a join or sync phase. Answers that turn a member away need
the same. Members whose SyncGroup was answered are in the committed log: ``synced`` checks it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.world import Violation

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.classic.states import GroupState
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.consumer_groups import JOINING_EPOCH, ConsumerGroupHeartbeatRequest
from muster_coordinator.state_machine import TimerKey

if TYPE_CHECKING:
    from tests.simulation.pods.groups import WatchedGroups

    from muster_coordinator.groups.classic.group import ClassicGroup
    from muster_coordinator.records.group_metadata import GroupMetadataValue

__all__ = ["LiveGroups", "Members", "Silent", "takes_place_of"]

SESSION_MS = 600
REBALANCE_MS = 400
CLOCK_STEP_MS = 1
NEVER_GIVEN = 1_000
"""No group of a run has so many generations or epochs."""
LATE_MS = 100
OVERDUE = 5
"""Answers behind a time-out: timers of a pod that froze may come behind the first."""


class Members:
    """Of one partition, over all its leaders."""

    def __init__(self) -> None:
        self.removed: set[tuple[str, str, int]] = set()  # (group, member, epoch of the leader that removed it)
        self.removals: Counter[tuple[str, str]] = Counter()  # of a member, by committed records
        self.missed: set[tuple[str, str, int]] = set()  # (group, static member, generation for which it did not join)
        self._left: dict[str, tuple[int, set[str]]] = {}  # generation and members of groups that ended in this batch
        self._recorded: dict[str, tuple[GroupMetadataValue, set[str]]] = {}
        self._ever: set[tuple[str, str, int]] = set()  # (group, member, generation) that a committed record had

    def forget(self) -> None:
        """The committed log begins anew: a person allowed loss."""
        self._recorded.clear()
        self._ever.clear()
        self._left.clear()

    def committed(self, group: str, value: GroupMetadataValue | None, epoch: int) -> None:
        """The next record of ``group`` in the committed log was written in ``epoch``."""
        before, members_before = self._recorded.pop(group, (None, set()))
        members = set() if value is None else {one.member_id for one in value.members}
        if before is not None and members_before:
            if value is None:
                self._left[group] = before.generation, members_before
                return
            self._removes(group, members_before - members, before.generation, epoch)
            if value.generation < before.generation:
                raise Violation(f"{group} went from generation {before.generation} to {value} in epoch {epoch}")
            if value.generation == before.generation and _instances(value) != _instances(before):
                raise Violation(f"{group} has two memberships in generation {value.generation}")
        if value is not None:
            self._recorded[group] = value, members
            self._ever.update((group, member, value.generation) for member in members)
            self._misses(group, members, value.generation)

    def _misses(self, group: str, members: set[str], generation: int) -> None:
        """Static members stay without having joined, and the leader gives what they had to others."""
        for member in sorted(members):
            if (group, member, generation) in self.missed:
                self.missed.remove((group, member, generation))
                self.removals[group, member] += 1

    def _removes(self, group: str, left: set[str], generation: int, epoch: int) -> None:
        gone = sorted(one for one in left if (group, one, epoch) not in self.removed)
        if gone:
            raise Violation(f"{group} forgot {gone} of generation {generation} in epoch {epoch}")
        self.removals.update((group, one) for one in left)

    def became_consumers(self, group: str, group_epoch: int, now: Collection[str], epoch: int) -> bool:
        """Whether a classic group with members ended in this batch, written in `epoch`, which goes on as a consumer
        group of `group_epoch` with those that are there `now`."""
        generation, members = self._left.pop(group, (-1, set()))
        if group_epoch < generation:
            raise Violation(f"{group} becomes a consumer group of epoch {group_epoch}, after generation {generation}")
        self._removes(group, members - set(now), generation, epoch)
        self._misses(group, members, group_epoch)
        return bool(members)

    def batch_ends(self, epoch: int) -> None:
        """All records of an operation are there: a group that has members is not simply gone."""
        for group, (generation, members) in self._left.items():
            raise Violation(f"{group} of generation {generation} is removed with {sorted(members)} in epoch {epoch}")

    def synced(self, group: str, member: str, generation: int) -> None:
        """SyncGroup of this member was answered with its assignment. The group may have gone on since."""
        if (group, member, generation) not in self._ever:
            value = self._recorded.get(group)
            raise Violation(f"{group} assigned to {member} in {generation}, committed is {value}")

    def answered(self, message: Any, response: Any, epoch: int, live_generation: int, reached: int = -1) -> None:
        """A leader of `epoch` answers a client. `live_generation`: of its group when it was asked; -1: there was none.
        `reached`: epoch of the member in a consumer group, if it was in one."""
        match message, response:
            case m.SyncGroupRequest(), m.SyncGroupResponse(error_code=ErrorCode.NONE):
                if reached < message.generation_id:
                    self.synced(message.group_id, message.member_id, message.generation_id)
            case ((m.SyncGroupRequest() | m.HeartbeatRequest()), _):
                self._may_turn_away(message, epoch, response.error_code, live_generation)
            case m.OffsetCommitRequest(), m.OffsetCommitResponse() if message.member_id:
                for _, codes in response.topics:
                    for _, code in codes:
                        self._may_turn_away(message, epoch, code, live_generation)
            case _:
                pass

    def _may_turn_away(self, message: Any, epoch: int, code: int, live_generation: int) -> None:
        self.turned_away(message.group_id, message.member_id, message.generation_id, epoch, code, live_generation)

    def turned_away(
        self, group: str, member: str, generation: int, epoch: int, code: int, live_generation: int
    ) -> None:
        """The leader of ``epoch`` answered this member, which named ``generation``, with the error ``code``."""
        value, members = self._recorded.get(group, (None, set()))
        if value is None or member not in members or value.generation != generation:
            return  # what the log says explains it
        if code == ErrorCode.UNKNOWN_MEMBER_ID and (group, member, epoch) not in self.removed:
            raise Violation(f"{group} turned {member} of generation {generation} away in epoch {epoch}")
        if code == ErrorCode.ILLEGAL_GENERATION and live_generation <= generation:
            raise Violation(f"{group} told {member} in epoch {epoch} that its generation {generation} is over")


def _instances(value: GroupMetadataValue) -> set[str]:
    """Members, a static one by its instance: another one may take its place."""
    return {one.group_instance_id or one.member_id for one in value.members}


def takes_place_of(message: Any, instance: str) -> bool:
    """Whether `message` is the join, or the leave, of a member of this instance."""
    match message:
        case m.JoinGroupRequest():
            return message.group_instance_id == instance and not message.member_id
        case ConsumerGroupHeartbeatRequest():
            return message.instance_id == instance and message.member_epoch == JOINING_EPOCH
        case m.LeaveGroupRequest():
            return any(one.group_instance_id == instance for one in message.members)
        case _:
            return False


class Before(NamedTuple):
    """A classic group before an operation. `members`: with the instance ids of static ones; `absent`: who waits for no
    answer to a JoinGroup."""

    state: GroupState | None
    members: dict[str, str | None]
    absent: list[str]


class Silent:
    """Members of one leader whose session is over, and who are there still. Requests that waited come before a timer
    that waited: what counts is the time from the first operation that finds a session over."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], int] = {}  # how long it was silent when that was found

    def look(self, group: str, member: str, silent_ms: int) -> None:
        """At each operation of their group."""
        if silent_ms <= SESSION_MS + LATE_MS:
            self._found.pop((group, member), None)
        elif silent_ms >= self._found.setdefault((group, member), silent_ms) + 2 * LATE_MS:
            raise Violation(f"{member} is silent since {silent_ms} ms, and {group} has it still")


class LiveGroups:
    """What one leader's group state does to its members, seen from outside."""

    def __init__(self, shard: WatchedGroups, members: Members) -> None:
        self._shard = shard
        self._members = members
        self._epoch = -1
        self._gone: set[tuple[str, str]] = set()  # (group, member) that this leader removed, in any epoch of its own
        self._since_ms = shard.monotonic_ms()
        self._heard: dict[tuple[str, str], int] = {}
        self._phase: dict[str, int] = {}  # group -> when its join or sync phase began
        self._stable: dict[str, int] = {}  # group -> since when it is stable
        self._silent = Silent()

    def lead(self, epoch: int) -> None:
        """The leader goes on in `epoch`: its next records may lack the members that it removed before."""
        self._epoch = epoch
        self._members.removed.update((group, member, epoch) for group, member in self._gone)

    def lead_on(self, epoch: int) -> None:
        """Before an operation: it leads in `epoch`, which may be another one than at the last."""
        if epoch != self._epoch:
            self.lead(epoch)

    def heard(self, message: Any, response: Any) -> None:
        """What keeps a session alive: a heartbeat that is right, also in a rebalance, and a commit that is taken."""
        match message, response:
            case m.HeartbeatRequest(), m.HeartbeatResponse(ErrorCode.NONE | ErrorCode.REBALANCE_IN_PROGRESS):
                pass
            case m.OffsetCommitRequest(), m.OffsetCommitResponse(((_, ((_, ErrorCode.NONE),)),)):
                pass
            case _:
                return
        self._heard[message.group_id, message.member_id] = self._shard.monotonic_ms()

    def before(self, group_id: str) -> Before:
        group = self._group(group_id)
        if group is None:
            return Before(None, {}, [])
        absent = [name for name, member in group.members.items() if member.join_token is None]
        instances = {name: member.group_instance_id for name, member in group.members.items()}
        return Before(group.state, instances, absent)

    def after(
        self,
        group_id: str,
        was: Before,
        message: Any,
        timer: TimerKey,
        consumers: Collection[str] = (),
    ) -> None:
        """``message`` or ``timer`` was handled; the other one is empty. `consumers`: members of the consumer group
        that it was before, if it was one. The session of a member begins when it comes, also in the place of a
        static one, after which the group stays as it was."""
        group = self._group(group_id)
        state, members, absent = was
        now = [] if group is None else group.members
        upgraded = self._shard.consumers.groups.get(group_id)
        others = () if upgraded is None else upgraded.members
        begins = [member for member in now if member in consumers or member not in members]
        self._heard.update(((group_id, member), self._shard.monotonic_ms()) for member in begins)
        for member, instance in members.items():
            if member not in now and member not in others:
                if instance is None or not takes_place_of(message, instance):
                    self._explain(group_id, member, message, timer)
                self._gone.add((group_id, member))
                self._members.removed.add((group_id, member, self._epoch))
        if group is not None and timer[:1] == ("join",) and group.state is GroupState.COMPLETING_REBALANCE:
            self._members.missed.update((group_id, one, group.generation) for one in absent if one in now)
        now_ms = self._shard.monotonic_ms()
        if group is not None and group.state is not state:
            since = self._stable if group.state is GroupState.STABLE else self._phase
            since[group_id] = now_ms
        if group is not None and group.state is GroupState.STABLE:
            begun_ms = self._stable.get(group_id, self._since_ms)
            for member in group.members:
                heard_ms = max(begun_ms, self._heard.get((group_id, member), begun_ms))
                self._silent.look(group_id, member, now_ms - heard_ms)

    def _explain(self, group: str, member: str, message: Any, timer: TimerKey) -> None:
        now_ms = self._shard.monotonic_ms()
        if isinstance(message, m.LeaveGroupRequest) and any(one.member_id == member for one in message.members):
            return
        if timer[:1] == ("session",) and timer[2] == member:
            silent_ms = now_ms - self._heard.get((group, member), self._since_ms)
            if silent_ms >= SESSION_MS - CLOCK_STEP_MS:
                return
            raise Violation(f"{group} ends the session of {member} after {silent_ms} ms in epoch {self._epoch}")
        if (
            timer[:1] in (("join",), ("sync",))
            and now_ms - self._phase.get(group, self._since_ms) >= REBALANCE_MS - CLOCK_STEP_MS
        ):
            return
        raise Violation(f"{group} removes {member} in epoch {self._epoch} by {type(message).__name__} or {timer}")

    def _group(self, group_id: str) -> ClassicGroup | None:
        return self._shard.coordinator.group(group_id)
