"""Sessions of the members of groups that come from a log: they start when a partition is loaded, in slices, or when a
group was another coordinator's until now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from muster_coordinator.groups.classic.group import ClassicGroup
from muster_coordinator.groups.classic.member import Member
from muster_coordinator.groups.classic.migration import is_unassigned
from muster_coordinator.groups.classic.rebalance import prepare_rebalance
from muster_coordinator.groups.classic.tables import WITH_MEMBERS, GroupTables
from muster_coordinator.groups.consumer.removal import start_timers
from muster_coordinator.groups.effects import START_SESSIONS_TIMER, Effects, session_timer
from muster_coordinator.groups.packed import decode_group
from muster_coordinator.records.group_metadata import GroupMember

START_SLICE = 1_000
"""Groups and members whose sessions start in one slice after a load: about two milliseconds of work."""


class Sessions:
    """`serves`: whether a group is coordinated here; others have no sessions."""

    def __init__(self, state: GroupTables, serves: Callable[[str], bool]) -> None:
        self._state = state
        self._serves = serves
        self._to_start: Iterator[str] = iter(())

    def start_all(self, effects: Effects, now_ms: int) -> None:
        """Start the sessions of all groups, beginning with one slice of them."""
        self._to_start = iter([*self._state.groups, *self._state.consumers.groups])
        self.start_slice(effects, now_ms)

    def stop(self) -> None:
        """Start no more of them."""
        self._to_start = iter(())

    def start_slice(self, effects: Effects, now_ms: int) -> None:
        """Start the sessions of one slice of the groups; a timer starts the next slice at once. A session that a
        request starts between two slices starts again with its slice."""
        looked_at = 0
        for group_id in self._to_start:
            group = self._state.groups.get(group_id)
            looked_at += 1 if group is None else 1 + self._start_of_classic(group_id, group, effects, now_ms)
            consumers = self._state.consumers.groups.get(group_id)
            if consumers is not None and self._serves(group_id):
                start_timers(self._state.consumers, consumers, effects)
                looked_at += len(consumers.members)
            if looked_at >= START_SLICE:
                effects.set_timer(START_SESSIONS_TIMER, 0)
                return

    def start_of(self, group_id: str, effects: Effects, now_ms: int) -> None:
        """Start the sessions of a group that was another coordinator's until now."""
        consumers = self._state.consumers.groups.get(group_id)
        if consumers is not None:
            start_timers(self._state.consumers, consumers, effects)
        group = self._state.groups.get(group_id)
        if group is not None:
            self._start_of_classic(group_id, group, effects, now_ms)

    def _start_of_classic(self, group_id: str, group: ClassicGroup | bytes, effects: Effects, now_ms: int) -> int:
        """Returns the number of members. A packed group stays packed: a new leader has many."""
        if not self._serves(group_id):
            return 0
        members: Sequence[Member | GroupMember]
        if isinstance(group, bytes):
            durable = decode_group(group).value if group[1] == WITH_MEMBERS else None
            members = () if durable is None else durable.members
        else:
            durable = group.durable
            members = [] if durable is None else [m for m in group.members.values() if not m.is_new]
        for member in members:
            effects.set_timer(session_timer(group_id, member.member_id), member.session_timeout_ms)
        if len(members) > self._state.config.max_size or (durable is not None and is_unassigned(durable)):
            unpacked = self._state.group(group_id)
            if unpacked is not None and unpacked.can_rebalance():
                prepare_rebalance(self._state, unpacked, effects, now_ms)
        return len(members)
