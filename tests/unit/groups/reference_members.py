"""The reference model's members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

import copy
from collections import Counter

from tests.unit.groups.reference_state import Group, JoinAnswer, Member, ReferenceState, SyncAnswer

from muster_coordinator.errors import ErrorCode as E
from muster_coordinator.requests import groups as m


class Membership(ReferenceState):
    # -- JoinGroup (4.3, 4.6) ------------------------------------------------------------------------------------------

    def join(self, number: int, request: m.JoinGroupRequest) -> None:
        config = self.config
        if not request.group_id:
            self.answers[number] = JoinAnswer(E.INVALID_GROUP_ID, request.member_id)
        elif not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
            self.answers[number] = JoinAnswer(E.INVALID_SESSION_TIMEOUT, request.member_id)
        elif request.group_id not in self.groups and request.member_id:
            self.answers[number] = JoinAnswer(E.UNKNOWN_MEMBER_ID, request.member_id)
        else:
            group = self.groups.get(request.group_id)
            if group is None:
                group = self.groups[request.group_id] = Group(request.group_id, empty_since_ms=self.now_ms)
                self._store(group)
                group.subscribed = None
            self._join(group, number, request)

    def _join(self, group: Group, number: int, request: m.JoinGroupRequest) -> None:
        member_id, instance = request.member_id, request.group_instance_id
        if not self._accepts(group, member_id):
            self._forget(group, member_id)
            self.answers[number] = JoinAnswer(E.GROUP_MAX_SIZE_REACHED)
            return
        names = {name for name, _ in request.protocols}
        if group.state == "Empty":
            fits = bool(request.protocol_type and names)
        else:
            common = group.common_protocols() if group.members else names
            fits = request.protocol_type == group.protocol_type and bool(common & names)
        if not fits:
            self.answers[number] = JoinAnswer(E.INCONSISTENT_GROUP_PROTOCOL, member_id)
        elif member_id in group.pending:
            if instance is not None:
                self.answers[number] = JoinAnswer(E.UNKNOWN_SERVER_ERROR)
            else:
                self._add(group, member_id, number, request)
        elif member_id:
            code = group.error(member_id, instance)
            if code:
                self.answers[number] = JoinAnswer(code, member_id)
            else:
                self._rejoin(group, group.members[member_id], number, request)
        else:
            self._join_without_id(group, number, request)

    def _accepts(self, group: Group, member_id: str) -> bool:
        if group.state == "PreparingRebalance":
            waiting = {each.member_id for each in group.members.values() if each.join is not None}
            return member_id in waiting or len(waiting) < self.config.max_size
        if group.state == "Empty":
            return True
        return member_id in group.members or len(group.members) < self.config.max_size

    def _join_without_id(self, group: Group, number: int, request: m.JoinGroupRequest) -> None:
        instance = request.group_instance_id
        name = request.client_id if instance is None else instance
        member_id = f"{name}-{next(self._suffix):03}"
        known = [member for member in group.members.values() if instance is not None and member.instance == instance]
        if instance is None and request.api_version >= 4:
            group.pending.add(member_id)
            self._due("session", group, member_id, request.session_timeout_ms)
            self.answers[number] = JoinAnswer(E.MEMBER_ID_REQUIRED, member_id)
        elif known:
            self._replace(group, known[0], member_id, number, request)
        else:
            self._add(group, member_id, number, request)

    def _add(self, group: Group, member_id: str, number: int, request: m.JoinGroupRequest) -> None:
        group.pending.discard(member_id)
        if not group.members:
            group.protocol_type = request.protocol_type
        group.leader = group.leader or member_id
        group.members[member_id] = Member(
            member_id,
            request.group_instance_id,
            request.protocols,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            is_new=True,
            join=number,
        )
        self._due("session", group, member_id, 300_000)
        if group.state == "PreparingRebalance":
            group.joined_meanwhile |= group.initial
            self._maybe_complete(group)
        else:
            self._prepare(group)

    def _rejoin(self, group: Group, member: Member, number: int, request: m.JoinGroupRequest) -> None:
        changed = request.protocols != member.protocols
        leads_in_stable = group.state == "Stable" and group.leader == member.member_id
        if group.state != "PreparingRebalance" and not changed and not leads_in_stable:
            self.answers[number] = self._joined(group, member.member_id)
            return
        self._update(member, request)
        if member.join is not None:
            # Kafka forgets the first of two requests; no request stays without an answer here.
            self.answers[member.join] = JoinAnswer(E.REBALANCE_IN_PROGRESS, member.member_id)
        member.join = number
        if group.state == "PreparingRebalance":
            self._maybe_complete(group)
        else:
            self._prepare(group)

    def _replace(self, group: Group, old: Member, member_id: str, number: int, request: m.JoinGroupRequest) -> None:
        old_leader = group.leader
        self._answer_parked(old, E.FENCED_INSTANCE_ID, old.member_id)
        self._not_due("session", group, old.member_id)
        del group.members[old.member_id]
        new = group.members[member_id] = copy.copy(old)
        new.member_id, new.is_new = member_id, False
        if group.leader == old.member_id:
            group.leader = member_id
        self._session(group, new)
        self._update(new, request)
        if group.state == "Stable" and self._vote(group) == group.protocol:
            self._store(group)
            skips = request.api_version >= 9
            told = skips and group.leader == member_id
            self.answers[number] = JoinAnswer(
                E.NONE,
                member_id,
                group.generation,
                group.protocol,
                (group.leader if skips else old_leader) or "",
                told,
                tuple(group.members) if told else (),
            )
            return
        new.join = number
        if group.state == "PreparingRebalance":
            self._maybe_complete(group)
        else:
            self._prepare(group)

    @staticmethod
    def _update(member: Member, request: m.JoinGroupRequest) -> None:
        member.protocols = request.protocols
        member.session_ms = request.session_timeout_ms
        member.rebalance_ms = request.rebalance_timeout_ms

    # -- rebalance -----------------------------------------------------------------------------------------------------

    def _prepare(self, group: Group) -> None:
        if group.state == "CompletingRebalance":
            for member in group.members.values():
                member.assignment = b""
                if member.sync is not None:
                    self.answers[member.sync] = SyncAnswer(E.REBALANCE_IN_PROGRESS)
                    member.sync = None
                    self._session(group, member)
        group.not_synced.clear()
        self._not_due("sync", group)
        group.initial = group.state == "Empty"
        group.state = "PreparingRebalance"
        if group.initial:
            delay_ms = self.config.initial_rebalance_delay_ms
            group.delay = (delay_ms, max(group.rebalance_ms() - delay_ms, 0))
            self._due("join", group, "", delay_ms)
        elif group.all_joined():
            self._complete(group)
        else:
            self._due("join", group, "", group.rebalance_ms())

    def _maybe_complete(self, group: Group) -> None:
        if group.state == "PreparingRebalance" and not group.initial and group.all_joined():
            self._complete(group)

    def _complete(self, group: Group) -> None:
        self._not_due("join", group)
        for member in list(group.members.values()):
            if member.join is None and member.instance is None:
                self._forget(group, member.member_id)
        rejoined = [member.member_id for member in group.members.values() if member.join is not None]
        if group.members and not rejoined:
            group.delay = (0, 0)
            self._due("join", group, "", group.rebalance_ms())
            return
        group.generation += 1
        group.delay = (0, 0)
        if not group.members:
            group.state, group.protocol, group.leader = "Empty", None, None
            group.empty_since_ms = self.now_ms
            self._store(group)
            return
        if group.leader not in rejoined:
            group.leader = rejoined[0]
        group.protocol = self._vote(group)
        group.subscribed = self._subscriptions(group)
        group.state = "CompletingRebalance"
        group.not_synced = set(group.members)
        for member in group.members.values():
            if member.join is not None:
                self.answers[member.join] = self._joined(group, member.member_id)
            member.join, member.is_new = None, False
            self._session(group, member)
        self._due("sync", group, "", group.rebalance_ms())

    def _vote(self, group: Group) -> str:
        common = group.common_protocols()
        votes = Counter(
            next(name for name, _ in member.protocols if name in common) for member in group.members.values()
        )
        most = max(votes.values())
        return self.first_of_tie({name for name, count in votes.items() if count == most})

    @staticmethod
    def _joined(group: Group, member_id: str) -> JoinAnswer:
        members = tuple(group.members) if group.leader == member_id else ()
        return JoinAnswer(E.NONE, member_id, group.generation, group.protocol, group.leader or "", False, members)

    def _forget(self, group: Group, member_id: str) -> None:
        if group.members.pop(member_id, None) is not None or member_id in group.pending:
            self._not_due("session", group, member_id)
        group.pending.discard(member_id)
        if group.leader == member_id:
            group.leader = next(iter(group.members), None)

    def _answer_parked(self, member: Member, code: int, member_id: str = "") -> None:
        if member.join is not None:
            self.answers[member.join] = JoinAnswer(code, member_id)
        if member.sync is not None:
            self.answers[member.sync] = SyncAnswer(code)
        member.join = member.sync = None

    # -- SyncGroup, Heartbeat, LeaveGroup (4.4, 4.5) -------------------------------------------------------------------

    def sync(self, number: int, request: m.SyncGroupRequest) -> None:
        group = self.groups.get(request.group_id)
        code = self._sync_error(group, request)
        if code or group is None:
            self.answers[number] = SyncAnswer(code)
            return
        member = group.members[request.member_id]
        group.not_synced.discard(member.member_id)
        if not group.not_synced:
            self._not_due("sync", group)
        if group.state == "Stable":
            self.answers[number] = SyncAnswer(E.NONE, group.protocol, member.assignment)
            return
        if member.sync is not None:
            self.answers[member.sync] = SyncAnswer(E.REBALANCE_IN_PROGRESS)
        member.sync = number
        if group.leader == member.member_id:
            given = dict(request.assignments)
            for each in group.members.values():
                each.assignment = given.get(each.member_id, b"")
                if each.sync is not None:
                    self.answers[each.sync] = SyncAnswer(E.NONE, group.protocol, each.assignment)
                    each.sync = None
                    self._session(group, each)
            group.state = "Stable"
            self._store(group)

    @staticmethod
    def _sync_error(group: Group | None, request: m.SyncGroupRequest) -> int:
        if request.api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            return E.INCONSISTENT_GROUP_PROTOCOL
        if not request.group_id:
            return E.INVALID_GROUP_ID
        if group is None or group.state == "Empty":
            return E.UNKNOWN_MEMBER_ID
        code = group.error(request.member_id, request.group_instance_id)
        if code:
            return code
        if request.generation_id != group.generation:
            return E.ILLEGAL_GENERATION
        if request.protocol_type not in (None, group.protocol_type):
            return E.INCONSISTENT_GROUP_PROTOCOL
        if group.protocol is not None and request.protocol_name not in (None, group.protocol):
            return E.INCONSISTENT_GROUP_PROTOCOL
        return E.REBALANCE_IN_PROGRESS if group.state == "PreparingRebalance" else E.NONE

    def heartbeat(self, request: m.HeartbeatRequest) -> int:
        group = self.groups.get(request.group_id)
        if not request.group_id:
            return E.INVALID_GROUP_ID
        if group is None:
            return E.UNKNOWN_MEMBER_ID
        code = group.error(request.member_id, request.group_instance_id)
        if code:
            return code
        if request.generation_id != group.generation:
            return E.ILLEGAL_GENERATION
        self._session(group, group.members[request.member_id])
        return E.REBALANCE_IN_PROGRESS if group.state == "PreparingRebalance" else E.NONE

    def leave(self, request: m.LeaveGroupRequest) -> tuple[int, tuple[int, ...]]:
        """The error of the request and those of the members."""
        if not request.group_id:
            return E.INVALID_GROUP_ID, ()
        group = self.groups.get(request.group_id)
        if group is None:
            return E.NONE, tuple(E.UNKNOWN_MEMBER_ID for _ in request.members)
        codes = tuple(self._leave(group, each.member_id, each.group_instance_id) for each in request.members)
        if E.NONE in codes:
            self._after_loss(group, group.initial)
        return E.NONE, codes

    def _leave(self, group: Group, member_id: str, instance: str | None) -> int:
        if member_id not in group.pending:
            if not member_id:  # an administrator names the instance alone
                owners = [each.member_id for each in group.members.values() if each.instance == instance]
                member_id = owners[0] if owners and instance is not None else ""
                instance = None
            code = group.error(member_id, instance)
            if code:
                return code
            self._answer_parked(group.members[member_id], E.UNKNOWN_MEMBER_ID)
        self._forget(group, member_id)
        return E.NONE

    def _after_loss(self, group: Group, initial: bool) -> None:
        if group.state in ("Stable", "CompletingRebalance"):
            self._prepare(group)
        elif group.state == "PreparingRebalance" and not initial and group.all_joined():
            self._complete(group)
