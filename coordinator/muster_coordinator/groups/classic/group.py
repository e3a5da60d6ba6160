"""One classic group (Kafka: ClassicGroup): who is in it, in which state and generation it is.

Two layers. `durable` is the value of the group's last record in the log, None for a group that only committed
offsets imply (a "simple" group); `restore` and `settle`, called by replay, are all that changes it. Everything
else is the *live* state of an active leader: built from `durable` when the partition becomes active, moved by the
handlers while members join and sync, and dropped at unload. In Empty and Stable the two agree; in between the live
state runs ahead of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.classic.java_hash_map import java_hash_map_order
from muster_coordinator.groups.classic.member import Member, Protocols, protocol_bytes
from muster_coordinator.groups.classic.states import GroupEvent, GroupState, next_state
from muster_coordinator.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from muster_coordinator.records.group_metadata import GroupMember, GroupMetadataValue
from muster_coordinator.state_machine import Token


class ClassicGroup:
    __slots__ = (
        "awaiting_join_count",
        "counts",
        "durable",
        "generation",
        "group_id",
        "initial_delay",
        "leader",
        "logged",
        "members",
        "new_member_added",
        "pending_members",
        "pending_sync",
        "previous_state",
        "protocol",
        "protocol_bytes",
        "protocol_support",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, now_ms: int, counts: dict[GroupState, int]) -> None:
        """`counts`: groups of the partition by state; the group keeps its own place in it until it is removed."""
        counts[GroupState.EMPTY] += 1
        self.counts = counts
        self.group_id = group_id
        self.durable: GroupMetadataValue | None = None
        self.logged = False  # a record of the log, of the group or of one of its offsets, says that the group exists
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = now_ms  # -1: not known (records before GroupMetadataValue v2)
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.generation = 0
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}  # group instance id -> member id
        self.pending_members: set[str] = set()  # got MEMBER_ID_REQUIRED (KIP-394)
        self.pending_sync: set[str] = set()
        self.awaiting_join_count = 0
        self.protocol_support: dict[str, int] = {}  # protocol name -> members that support it
        self.protocol_bytes = 0  # of all members, as `member.protocol_bytes` counts
        self.subscribed_topics: frozenset[str] | None = None  # None: not known
        self.new_member_added = False
        self.initial_delay: tuple[int, int] | None = None  # (delay_ms, remaining_ms) of the initial rebalance

    def __repr__(self) -> str:
        return (
            f"ClassicGroup({self.group_id!r}, {self.state.value}, generation={self.generation}, "
            f"leader={self.leader!r}, members={list(self.members.values())}, pending={sorted(self.pending_members)})"
        )

    # -- durable state -------------------------------------------------------------------------------------------------

    def restore(self, value: GroupMetadataValue) -> None:
        """Make a new group what its last record says (Kafka: replay of GroupMetadataValue)."""
        self.durable = value
        self.logged = True
        state = GroupState.STABLE if value.members else GroupState.EMPTY
        if state is not self.state:
            self.counts[self.state] -= 1
            self.counts[state] += 1
            self.state = state
        self.state_timestamp_ms = value.current_state_timestamp_ms
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self.generation = value.generation
        for stored in value.members:
            self.add(self._member_of(stored, value.protocol or ""))
        if value.leader is not None:
            self.leader = value.leader
        self.subscribed_topics = self.compute_subscribed_topics()

    @property
    def is_settled(self) -> bool:
        """It is empty, nobody joins, and its log says as much as is known of it."""
        durable = self.durable
        if not self.logged or self.state is not GroupState.EMPTY or self.members or self.pending_members:
            return False
        if durable is None:
            return self.generation == 0 and self.protocol_type is None
        return (
            not durable.members
            and durable.generation == self.generation
            and durable.protocol == self.protocol
            and (durable.protocol_type or None) == self.protocol_type
            and durable.current_state_timestamp_ms == self.state_timestamp_ms
        )

    def _member_of(self, stored: GroupMember, protocol: str) -> Member:
        session_timeout_ms = stored.session_timeout_ms
        rebalance_timeout_ms = stored.rebalance_timeout_ms
        return Member(
            self.group_id,
            stored.member_id,
            stored.group_instance_id,
            stored.client_id,
            stored.client_host,
            session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
            session_timeout_ms,
            ((protocol, stored.subscription),),
            stored.assignment,
        )

    def settle(self, value: GroupMetadataValue, timestamp_ms: int) -> None:
        """Replay of the leader's own record: the group takes the step that the record makes durable."""
        self.durable = value
        self.logged = True
        if value.members:
            if self.state is GroupState.COMPLETING_REBALANCE:
                self._settle_assignment(value, timestamp_ms)
            self.subscribed_topics = self.compute_subscribed_topics()
        elif self.state is GroupState.PREPARING_REBALANCE and not self.members:
            self.generation = value.generation
            self.protocol = None
            self.leader = None
            self.pending_sync.clear()
            self.transition(GroupEvent.EMPTIED, value.current_state_timestamp_ms)
            self.subscribed_topics = self.compute_subscribed_topics()
        # Otherwise this is the first record of a group that a member is just joining: it changes nothing here.

    def _settle_assignment(self, value: GroupMetadataValue, timestamp_ms: int) -> None:
        assert value.generation == self.generation, "an assignment is stored in its own generation"
        for stored in value.members:
            self.members[stored.member_id].assignment = stored.assignment
        self.transition(GroupEvent.ASSIGNMENT_STORED, timestamp_ms)

    def become(self, value: GroupMetadataValue) -> None:
        """A group that was one of consumers, whose members and assignments are set: `value` is its first record."""
        self.durable = value
        self.logged = True
        self.counts[self.state] -= 1
        self.counts[GroupState.STABLE] += 1
        self.state = GroupState.STABLE
        self.subscribed_topics = self.compute_subscribed_topics()

    def to_value(self, assignments: Mapping[str, bytes] | None = None) -> GroupMetadataValue:
        """The record value of the group as it is; `assignments` (missing ones: empty) replace those of the
        members."""
        members = tuple(
            GroupMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(self.protocol),
                member.assignment if assignments is None else assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        )
        return GroupMetadataValue(
            self.protocol_type or "", self.generation, self.protocol, self.leader, self.state_timestamp_ms, members
        )

    # -- state ---------------------------------------------------------------------------------------------------------

    def transition(self, event: GroupEvent, now_ms: int) -> None:
        state = next_state(self.state, event)
        self.counts[self.state] -= 1
        if event is not GroupEvent.REMOVED:
            self.counts[state] += 1
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def can_rebalance(self) -> bool:
        return self.state in (GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE)

    def has_all_members_joined(self) -> bool:
        return len(self.members) == self.awaiting_join_count and not self.pending_members

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # -- members -------------------------------------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        """`member` may have its join parked already."""
        if not self.leader:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self._count_protocols(member.protocols, 1)
        if member.join_token is not None:
            self.awaiting_join_count += 1
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> Member | None:
        """Forget a member or pending member. The caller answers what it had parked."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member.protocols, -1)
            if member.join_token is not None:
                self.awaiting_join_count -= 1
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_members.discard(member_id)
        return member

    def replace_static(self, old: Member, new_member_id: str) -> Member:
        """A restarted static member takes the place of `old`, whose parked requests the caller has taken and
        answered."""
        assert old.group_instance_id is not None
        assert old.join_token is None
        assert old.sync_token is None
        new = Member(
            self.group_id,
            new_member_id,
            old.group_instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
            old.assignment,
        )
        del self.members[old.member_id]
        self.members[new_member_id] = new
        self.static_members[old.group_instance_id] = new_member_id
        if self.leader == old.member_id:
            self.leader = new_member_id
        return new

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        self._count_protocols(member.protocols, -1)
        member.protocols = protocols
        self._count_protocols(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.set_session_timeout(self.group_id, session_timeout_ms)

    def park_join(self, member: Member, token: Token) -> Token | None:
        """Returns the request of the same member that was parked before, if any."""
        replaced = member.join_token
        if replaced is None:
            self.awaiting_join_count += 1
        member.join_token = token
        return replaced

    def take_join(self, member: Member) -> Token | None:
        token = member.join_token
        if token is not None:
            member.join_token = None
            self.awaiting_join_count -= 1
        return token

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has rejoined, else take any member that has; False if there is none."""
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.join_token is not None:
            return True
        for member in self.members.values():
            if member.join_token is not None:
                self.leader = member.member_id
                return True
        return False

    def member_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Fencing comes before membership (KIP-345)."""
        if group_instance_id is not None:
            existing = self.static_members.get(group_instance_id)
            if existing is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if existing != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # -- protocols -----------------------------------------------------------------------------------------------------

    def _count_protocols(self, protocols: Protocols, delta: int) -> None:
        self.protocol_bytes += delta * protocol_bytes(protocols)
        support = self.protocol_support
        for name, _ in protocols:
            count = support.get(name, 0) + delta
            if count:
                support[name] = count
            else:  # a member may have other names each time that it joins
                del support[name]

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """True if a member with these protocols can be in the group: one of them is supported by all members."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(
            self.protocol_support.get(name, 0) == count for name in names
        )

    def select_protocol(self) -> str:
        """Each member votes for its first protocol that all support; most votes win, a tie falls as in Kafka's hash
        map."""
        count = len(self.members)
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = next(name for name in member.protocol_names if self.protocol_support[name] == count)
            votes[vote] = votes.get(vote, 0) + 1
        return max(java_hash_map_order(list(votes)), key=votes.__getitem__)

    # -- subscription --------------------------------------------------------------------------------------------------

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """Topics of all members of a "consumer" group by its protocol; None where they are not known."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            member_topics = subscribed_topics(member.metadata(self.protocol))
            if member_topics is None:
                return None
            topics |= member_topics
        return frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is not None:
            return topic in self.subscribed_topics
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE
