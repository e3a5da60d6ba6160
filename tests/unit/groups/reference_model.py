"""What Kafka 4.1's classic groups and offsets do, written down a second time, as plainly as possible.

Plain dicts and sets, no records, no effects, no timers: ``deadlines`` says when what is due, and the test says which
one has come (``time_out``). Written from Kafka's behaviour (reference, sections 4.2 to 4.9 and 11), so that an error in
the coordinator is not repeated here. It shares with the coordinator the requests, the names of timers and the order in
which a vote that is a tie falls, and nothing else.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from muster_coordinator.errors import ErrorCode as E
from muster_coordinator.groups import messages as m
from muster_coordinator.groups.config import GroupConfig

Partition = tuple[str, int]
TimerName = tuple[str, ...]
EXPIRY = ("expire-offsets", "", "")


@dataclass(frozen=True)
class JoinAnswer:
    code: int
    member_id: str = ""
    generation: int = -1
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class SyncAnswer:
    code: int
    protocol: str | None = None
    assignment: bytes = b""


@dataclass
class Member:
    member_id: str
    instance: str | None
    protocols: tuple[tuple[str, bytes], ...]
    session_ms: int
    rebalance_ms: int
    assignment: bytes = b""
    is_new: bool = False
    join: int | None = None  # number of the request that is parked
    sync: int | None = None


@dataclass
class Group:
    group_id: str
    state: str = "Empty"
    initial: bool = False  # PreparingRebalance, entered from Empty
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    empty_since_ms: int = -1
    members: dict[str, Member] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    not_synced: set[str] = field(default_factory=set)
    delay: tuple[int, int] = (0, 0)  # of the initial rebalance: this round, what remains
    joined_meanwhile: bool = False
    subscribed: set[str] | None = None
    logged: bool = False
    stored: Group | None = None  # as its last record has it

    def all_joined(self) -> bool:
        return not self.pending and all(member.join is not None for member in self.members.values())

    def rebalance_ms(self) -> int:
        return max((member.rebalance_ms for member in self.members.values()), default=0)

    def common_protocols(self) -> set[str]:
        names = [{name for name, _ in member.protocols} for member in self.members.values()]
        return set.intersection(*names) if names else set()

    def subscribed_to(self, topic: str) -> bool:
        return self.protocol_type == "consumer" if self.subscribed is None else topic in self.subscribed

    def error(self, member_id: str, instance: str | None) -> int:
        """4.6: unknown instance, then fenced instance, then unknown member."""
        if instance is not None:
            owners = [each.member_id for each in self.members.values() if each.instance == instance]
            if not owners:
                return E.UNKNOWN_MEMBER_ID
            if owners != [member_id]:
                return E.FENCED_INSTANCE_ID
        return E.NONE if member_id in self.members else E.UNKNOWN_MEMBER_ID


@dataclass(frozen=True)
class Commit:
    offset: int
    at_ms: int
    expires_ms: int
    number: int  # of the write: the most recent one wins


class ReferenceModel:
    """``missing`` holds the partitions that do not exist; ``first_of_tie`` names the winner of an even vote and
    ``topics_of`` the topics of a subscription, None where it cannot be read."""

    def __init__(
        self,
        config: GroupConfig,
        now_ms: int,
        missing: set[Partition],
        first_of_tie: Callable[[set[str]], str],
        topics_of: Callable[[bytes], set[str] | None],
    ) -> None:
        self.config = config
        self.now_ms = now_ms
        self.missing = missing
        self.first_of_tie = first_of_tie
        self.topics_of = topics_of
        self.groups: dict[str, Group] = {}
        self.committed: dict[tuple[str, str, int], Commit] = {}
        self.pending: dict[int, dict[tuple[str, str, int], Commit]] = {}
        self.producer_epochs: dict[int, int] = {}
        self.deadlines: dict[TimerName, int] = {EXPIRY: now_ms + config.offsets_retention_check_interval_ms}
        self.answers: dict[int, JoinAnswer | SyncAnswer] = {}
        self._suffix = itertools.count(1)
        self._writes = itertools.count()

    # -- deadlines and storage -----------------------------------------------------------------------------------------

    def _due(self, kind: str, group: Group, member_id: str, delay_ms: int) -> None:
        self.deadlines[kind, group.group_id, member_id] = self.now_ms + delay_ms

    def _not_due(self, kind: str, group: Group, member_id: str = "") -> None:
        self.deadlines.pop((kind, group.group_id, member_id), None)

    def _session(self, group: Group, member: Member) -> None:
        self._due("session", group, member.member_id, member.session_ms)

    def _store(self, group: Group) -> None:
        """The group's record: of its members' protocols it holds the selected one."""
        group.logged = True
        group.stored = None
        stored = copy.deepcopy(group)
        stored.pending, stored.not_synced, stored.initial, stored.joined_meanwhile = set(), set(), False, False
        for member in stored.members.values():
            member.protocols = tuple(each for each in member.protocols if each[0] == stored.protocol)
            member.join = member.sync = None
            member.is_new = False
        group.stored = stored
        group.subscribed = stored.subscribed = self._subscriptions(group)

    def _subscriptions(self, group: Group) -> set[str] | None:
        if group.protocol_type != "consumer":
            return None
        topics: set[str] = set()
        for member in group.members.values():
            of_member = self.topics_of(dict(member.protocols)[group.protocol or ""])
            if of_member is None:
                return None
            topics |= of_member
        return topics

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

    # -- offsets (4.5, 4.8, 4.9) ---------------------------------------------------------------------------------------

    def commit(self, request: m.OffsetCommitRequest) -> dict[Partition, int]:
        group = self.groups.get(request.group_id)
        member_id, generation = request.member_id, request.generation_id
        code = self._commit_error(group, request)
        if group is None and generation >= 0:
            code = E.GROUP_ID_NOT_FOUND if request.api_version >= 9 else E.ILLEGAL_GENERATION
        elif not code and group is not None and not (generation < 0 and group.state == "Empty"):
            if not (generation >= 0 or member_id or request.group_instance_id is not None):
                code = E.UNKNOWN_MEMBER_ID
            elif group.state == "CompletingRebalance":
                code = E.REBALANCE_IN_PROGRESS
        expires_ms = -1 if request.retention_time_ms == -1 else self.now_ms + request.retention_time_ms
        codes, commits = self._commits(request, code, expires_ms)
        if not code and any(each != E.UNKNOWN_TOPIC_OR_PARTITION for each in codes.values()):
            self._group_of_commit(request.group_id, bool(commits))
            self.committed.update(commits)
            if group is not None and group.state != "Empty":
                self._session(group, group.members[member_id])
        return codes

    def commit_in_transaction(self, request: m.TxnOffsetCommitRequest) -> dict[Partition, int]:
        group = self.groups.get(request.group_id)
        producer = request.producer_id
        code = self._commit_error(group, request)
        if not request.group_id:
            every = [(topic, each[0]) for topic, partitions in request.topics for each in partitions]
            return dict.fromkeys(every, int(E.INVALID_GROUP_ID))
        if request.producer_epoch < self.producer_epochs.get(producer, -1):
            code = E.INVALID_PRODUCER_EPOCH
        elif group is None and request.generation_id >= 0:
            code = E.ILLEGAL_GENERATION
        codes, commits = self._commits(request, code, -1)
        if not code and any(each != E.UNKNOWN_TOPIC_OR_PARTITION for each in codes.values()):
            self._group_of_commit(request.group_id, bool(commits))
            if commits:
                self.pending.setdefault(producer, {}).update(commits)
                self.producer_epochs[producer] = request.producer_epoch
        return codes

    @staticmethod
    def _commit_error(group: Group | None, request: m.OffsetCommitRequest | m.TxnOffsetCommitRequest) -> int:
        """Who commits: nobody (a generation below 0 and no member), or a member in its generation."""
        member_id, instance, generation = request.member_id, request.group_instance_id, request.generation_id
        if group is None or (generation < 0 and group.state == "Empty"):
            return E.NONE
        if generation < 0 and not member_id and instance is None:
            return E.NONE
        code = group.error(member_id, instance)
        return code or (E.NONE if generation == group.generation else E.ILLEGAL_GENERATION)

    def _commits(
        self, request: m.OffsetCommitRequest | m.TxnOffsetCommitRequest, code: int, expires_ms: int
    ) -> tuple[dict[Partition, int], dict[tuple[str, str, int], Commit]]:
        codes: dict[Partition, int] = {}
        commits = {}
        for topic, partitions in request.topics:
            for partition, offset, _, metadata in partitions:
                if (topic, partition) in self.missing:
                    codes[topic, partition] = E.UNKNOWN_TOPIC_OR_PARTITION
                elif code or len(metadata or "") > self.config.offset_metadata_max_size:
                    codes[topic, partition] = code or E.OFFSET_METADATA_TOO_LARGE
                else:
                    codes[topic, partition] = E.NONE
                    commit = Commit(offset, self.now_ms, expires_ms, next(self._writes))
                    commits[request.group_id, topic, partition] = commit
        return codes, commits

    def _group_of_commit(self, group_id: str, written: bool) -> None:
        group = self.groups.setdefault(group_id, Group(group_id, empty_since_ms=self.now_ms))
        group.logged |= written

    def end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> int:
        if producer_epoch < self.producer_epochs.get(producer_id, -1):
            return E.INVALID_PRODUCER_EPOCH
        self.producer_epochs[producer_id] = producer_epoch
        for key, commit in self.pending.pop(producer_id, {}).items():
            existing = self.committed.get(key)
            if committed and (existing is None or existing.number < commit.number):
                self.committed[key] = commit
        return E.NONE

    def _is_pending(self, key: tuple[str, str, int]) -> bool:
        return any(key in of_producer for of_producer in self.pending.values())

    def _remove_offset(self, key: tuple[str, str, int]) -> None:
        self.committed.pop(key, None)
        for producer_id in list(self.pending):
            self.pending[producer_id].pop(key, None)
            if not self.pending[producer_id]:
                del self.pending[producer_id]

    def fetch(self, group_id: str, partitions: list[Partition], stable: bool) -> dict[Partition, tuple[int, int]]:
        answer = {}
        for topic, index in partitions:
            key = (group_id, topic, index)
            commit = self.committed.get(key)
            code = E.UNSTABLE_OFFSET_COMMIT if stable and self._is_pending(key) else E.NONE
            answer[topic, index] = (-1 if code or commit is None else commit.offset, int(code))
        return answer

    # -- deletion and expiry (4.7, 4.8) --------------------------------------------------------------------------------

    def delete(self, group_id: str) -> int:
        group = self.groups.get(group_id)
        if group is None:
            return E.GROUP_ID_NOT_FOUND
        if group.state != "Empty":
            return E.NON_EMPTY_GROUP
        for key in [*self.committed, *itertools.chain.from_iterable(self.pending.values())]:
            if key[0] == group_id:
                self._remove_offset(key)
        self._remove_group(group)
        return E.NONE

    def _remove_group(self, group: Group) -> None:
        del self.groups[group.group_id]
        for member_id in group.pending:
            self._not_due("session", group, member_id)

    def delete_offsets(self, request: m.OffsetDeleteRequest) -> tuple[int, dict[Partition, int]]:
        group = self.groups.get(request.group_id)
        if not request.group_id:
            return E.INVALID_GROUP_ID, {}
        if group is None:
            return E.GROUP_ID_NOT_FOUND, {}
        if group.state != "Empty" and group.protocol_type != "consumer":
            return E.NON_EMPTY_GROUP, {}
        codes: dict[Partition, int] = {}
        for topic, partitions in request.topics:
            for index in partitions:
                codes[topic, index] = E.NONE
                if (topic, index) in self.missing:
                    codes[topic, index] = E.UNKNOWN_TOPIC_OR_PARTITION
                elif group.subscribed_to(topic):
                    codes[topic, index] = E.GROUP_SUBSCRIBED_TO_TOPIC
                else:
                    self._remove_offset((request.group_id, topic, index))
        return E.NONE, codes

    def _expire(self) -> None:
        for group in list(self.groups.values()):
            of_group = [(key, commit) for key, commit in self.committed.items() if key[0] == group.group_id]
            expired = [
                key
                for key, commit in of_group
                if self._has_expired(group, key[1], commit) and not self._is_pending(key)
            ]
            for key in expired:
                self._remove_offset(key)
            is_open = any(key[0] == group.group_id for of_producer in self.pending.values() for key in of_producer)
            if len(expired) == len(of_group) and group.state == "Empty" and not is_open:
                self._remove_group(group)

    def _has_expired(self, group: Group, topic: str, commit: Commit) -> bool:
        if group.protocol_type is None:
            since_ms = commit.at_ms
        elif group.state == "Empty":
            since_ms = group.empty_since_ms
        elif group.state == "Stable" and group.subscribed is not None and topic not in group.subscribed:
            since_ms = commit.at_ms
        else:
            return False
        if commit.expires_ms != -1:
            return self.now_ms >= commit.expires_ms
        return self.now_ms - since_ms >= self.config.offsets_retention_minutes * 60_000

    # -- time and change of leader -------------------------------------------------------------------------------------

    def time_out(self, name: TimerName) -> None:
        """What ``deadlines`` has under this name is due now."""
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

    def change_leader(self) -> None:
        """Another coordinator loads the log: what is parked is answered, what no record holds is gone."""
        self.deadlines = {EXPIRY: self.now_ms + self.config.offsets_retention_check_interval_ms}
        for group_id, group in list(self.groups.items()):
            for member in group.members.values():
                if member.join is not None:
                    self.answers[member.join] = JoinAnswer(E.NOT_COORDINATOR, member.member_id)
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
