"""What the reference model remembers: plain dicts and sets, and when what is due."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from muster_coordinator.errors import ErrorCode as E
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


class ReferenceState:
    """`missing` holds the partitions that do not exist; `first_of_tie` names the winner of an even vote and
    `topics_of` the topics of a subscription, None where it cannot be read."""

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
