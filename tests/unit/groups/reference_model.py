"""What Kafka 4.1's classic groups and offsets do, written down a second time, as plainly as possible.

Plain dicts and sets, no records, no effects, no timers: `deadlines` says when what is due, and the test says which
one has come (`time_out`). Written from Kafka's behaviour (reference, sections 4.2 to 4.9 and 11), so that an error in
the coordinator is not repeated here. It shares with the coordinator the requests, the names of timers and the order in
which a vote that is a tie falls, and nothing else.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

from tests.unit.groups.reference_members import Membership
from tests.unit.groups.reference_offsets import Offsets
from tests.unit.groups.reference_state import EXPIRY, Group, JoinAnswer, SyncAnswer, TimerName

from muster_coordinator.errors import ErrorCode as E

__all__ = ["JoinAnswer", "ReferenceModel", "SyncAnswer"]


class ReferenceModel(Membership, Offsets):
    """Time, and another leader."""

    def time_out(self, name: TimerName) -> None:
        """What `deadlines` has under this name is due now."""
        assert self.deadlines.pop(name) <= self.now_ms
        if name == EXPIRY:
            self.deadlines[name] = self.now_ms + self.config.offsets_retention_check_interval_ms
            self._expire()
            return
        kind, group_id, member_id = name
        group = self.groups[group_id]
        if kind == "session":
            self._session_ended(group, member_id)
        elif kind == "sync":
            for each in group.not_synced & set(group.members):
                self._answer_parked(group.members[each], E.UNKNOWN_MEMBER_ID)
                self._forget(group, each)
            self._prepare(group)
        elif group.initial and group.joined_meanwhile and group.delay[1]:
            last_ms, remaining_ms = group.delay
            group.joined_meanwhile = False
            group.delay = (min(self.config.initial_rebalance_delay_ms, remaining_ms), max(remaining_ms - last_ms, 0))
            self._due("join", group, "", group.delay[0])
        else:
            self._complete(group)

    def _session_ended(self, group: Group, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is not None:
            if not member.is_new and (member.join is not None or member.sync is not None):
                return
            self._answer_parked(member, E.UNKNOWN_MEMBER_ID)
        self._forget(group, member_id)
        # Unlike a member that leaves, one that fails may end even the initial rebalance; a pending one that fails in
        # another state changes nothing.
        if member is not None or group.state == "PreparingRebalance":
            self._after_loss(group, initial=False)

    def change_leader(self, member_id_of: Callable[[int], str]) -> None:
        """Another coordinator loads the log: what is parked is refused, what no record holds is gone. `member_id_of`:
        the member id in the request of that number, which a refusal repeats."""
        self.deadlines = {EXPIRY: self.now_ms + self.config.offsets_retention_check_interval_ms}
        for group_id, group in list(self.groups.items()):
            for member in group.members.values():
                if member.join is not None:
                    self.answers[member.join] = JoinAnswer(E.NOT_COORDINATOR, member_id_of(member.join))
                if member.sync is not None:
                    self.answers[member.sync] = SyncAnswer(E.NOT_COORDINATOR)
            stored = group.stored
            if stored is not None:
                self._load(group_id, stored)
            elif group.logged:
                self.groups[group_id] = Group(group_id, empty_since_ms=self.now_ms, logged=True)
            else:
                del self.groups[group_id]

    def _load(self, group_id: str, stored: Group) -> None:
        group = self.groups[group_id] = copy.deepcopy(stored)
        group.stored = stored
        for member in group.members.values():
            self._session(group, member)
        if len(group.members) > self.config.max_size:
            self._prepare(group)
