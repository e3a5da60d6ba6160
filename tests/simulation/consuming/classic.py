"""A consumer of the classic protocol in a group that may also have some of the new one: it joins, assigns as a leader,
gives back and takes what it is told, commits with its generation, leaves, ends, stalls, and goes on with what it knew.

An eager one gives all back before it joins; a cooperative one (KIP-429) keeps what it has, and gives back only what its
SyncGroup does not name, after which it joins again.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.client import PATIENCE_MS, Caller
from tests.simulation.consuming.assigning import assign, read_places, subscription
from tests.simulation.consuming.group import Group, Place
from tests.simulation.consuming.late import classic_requests, former_requests, say_late
from tests.simulation.injected import Injected
from tests.simulation.members import NEVER_GIVEN, OVERDUE, REBALANCE_MS, SESSION_MS
from tests.simulation.world import Violation

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.config import MigrationPolicy
from muster_coordinator.requests import groups as m

__all__ = ["SUBSCRIPTIONS", "ClassicConsumer"]

HEARTBEAT_MS = 100
LATE = 0.05
"""Chance at each step of something that must be refused."""
JOIN_PATIENCE_MS = REBALANCE_MS + PATIENCE_MS
JOIN_VERSION, SYNC_VERSION, COMMIT_VERSION = 9, 5, 8
SUBSCRIPTIONS = (("ct-a",), ("ct-a", "ct-b"), ("ct-a", "ct-b"), ("ct-a", "ct-b", "ct-late"))


class ClassicConsumer:
    """One process. `answered` counts heartbeats and commits that went well; `ended` is called when it is over.

    A static one subscribes to the `names` of those before it: a classic group does not rebalance when it comes back.
    """

    def __init__(
        self,
        group: Group,
        caller: Caller,
        instance: str | None,
        names: tuple[str, ...],
        ended: Callable[[], None],
        *,
        cooperative: bool,
    ) -> None:
        self.answered = 0
        self.owned: set[Place] = set()
        self.leaves_next = False
        self._group = group
        self._caller = caller
        self._world = caller.world
        self._instance = instance
        self._ended = ended
        self._is_cooperative = cooperative
        self._member = ""
        self._names = names
        self._forget()
        self._again()

    def _forget(self) -> None:
        """It is no member of the generation that it knew, and has nothing any more."""
        self._group.gives_back(self._member, self.owned)
        self.owned = set()
        self._generation = self._synced_generation = -1
        self._past: list[tuple[Place, int]] = []  # what it gave back, with the last generation in which it had it
        self._is_member = self._is_translated = False  # the latter: it is in a consumer group, which has no leader
        self._assigned_version: int | None = None  # of the topics, when it assigned them as a leader

    def _ends(self, within_ms: int) -> None:
        self._forget()
        self._world.at(1 + self._world.random.randint(0, within_ms), self._ended)

    def _again(self, delay_ms: int = 50) -> None:
        self._is_member = False
        self._world.at(1 + self._world.random.randint(0, delay_ms), self._join)

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(self._names)

    @property
    def is_settled(self) -> bool:
        return self._is_member

    # -- join and sync ------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        if not self._is_cooperative:
            self._give_back(set(self.owned))
        request = m.JoinGroupRequest(
            self._group.name,
            SESSION_MS,
            REBALANCE_MS,
            self._member,
            self._instance,
            "consumer",
            (("range", subscription(self._names, self.owned, cooperative=self._is_cooperative)),),
            None,
            "classic",
            "/127.0.0.1",
            JOIN_VERSION,
        )
        self._group.joining.add(id(self))
        self._caller.call(request, self._joined, JOIN_PATIENCE_MS)

    def _joined(self, response: m.JoinGroupResponse | None) -> None:
        self._group.joining.discard(id(self))
        if response is None:
            self._again()
        elif response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member = response.member_id
            self._join()
        elif response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            if self._world.options.policy != MigrationPolicy.DISABLED.value:
                raise Violation(f"{self._member} joins, and is answered {response}")
            self._ends(SESSION_MS)
        elif response.error_code:
            self._failed(response.error_code)
        else:
            self._member, self._generation = response.member_id, response.generation_id
            self._is_translated = not response.leader
            leads = response.leader == self._member
            self._assigned_version = self._world.topics.version if leads else None
            if self._world.faults and self._world.random.random() < 0.05:
                self._linger(syncs=True)
                return
            self._sync(assign(response.members, self._world.topics.counts) if leads else ())

    def _sync(self, assignments: tuple[tuple[str, bytes], ...]) -> None:
        removals = self._group.removals(self._member)
        request = m.SyncGroupRequest(
            self._group.name,
            self._generation,
            self._member,
            self._instance,
            "consumer",
            "range",
            assignments,
            SYNC_VERSION,
        )
        self._caller.call(request, lambda response: self._synced(response, removals), JOIN_PATIENCE_MS)

    def _synced(self, response: m.SyncGroupResponse | None, removals: int) -> None:
        if response is None:
            self._again()
        elif response.error_code:
            self._failed(response.error_code)
        else:
            self._synced_generation = self._generation
            self._group.is_member(self._instance, self._member)
            given = read_places(response.assignment)
            self._group.takes(self._member, removals, given - self.owned)
            lost = self.owned - given
            self.owned |= given
            self._past = [one for one in self._past if one[0] not in given]
            if lost:
                self._world.at(self._world.random.randint(0, HEARTBEAT_MS), lambda: self._revoke(lost))
            else:
                self._is_member = True
                self._next()

    def _revoke(self, lost: set[Place]) -> None:
        """What others are to have: it joins again, so that they get it."""
        self._give_back(lost)
        self._join()

    def _give_back(self, places: set[Place]) -> None:
        self._group.gives_back(self._member, places)
        self._past += [(place, self._generation) for place in sorted(places)]
        self.owned -= places

    def _failed(self, code: int) -> None:
        """By the error: another member id, or only another generation."""
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            if self._is_member and self._world.faults and self._world.random.random() < 0.25:
                self._linger(syncs=False)
                return
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._forget()
            self._member = ""
        elif code == ErrorCode.ILLEGAL_GENERATION:
            self._forget()
        else:
            raise Violation(f"{self._member} is answered {ErrorCode(code)!r}")
        self._again()

    # -- a member that hangs in a rebalance ---------------------------------------------------------------------------

    def _linger(self, *, syncs: bool) -> None:
        """It sends heartbeats alone, until it is out: the phase that waits for it ends, and at most one before it, or
        two before one for a SyncGroup. A group that becomes one of the other kind begins another one; a consumer
        group has a time for each step of its own. `syncs`: it is to sync, not to join."""
        self._world.injected[Injected.MEMBER_HUNG] += 1
        phase_ms = REBALANCE_MS / (1 - self._world.options.drift)
        phases = 1 if self._is_translated else 3 if syncs else 2
        since_ms, known, overdue = self._world.now_ms, self._phase(), 0

        def answered(response: m.HeartbeatResponse | None) -> None:
            nonlocal since_ms, known, overdue, phases
            code = None if response is None else response.error_code
            if self._phase() != known:
                phases = 3
            if self._phase() != known or (phases > 1 and self._is_waited_for_by_nobody()):
                since_ms, known, overdue = self._world.now_ms, self._phase(), 0
            if code == ErrorCode.NONE and not syncs:
                self._next()
            elif code in (None, ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                overdue += code is not None and self._world.now_ms > since_ms + phases * phase_ms + HEARTBEAT_MS
                if overdue >= OVERDUE:
                    raise Violation(f"{self._member} hangs since {since_ms}, and {self._group.name} has it still")
                self._world.at(self._world.random.randint(1, HEARTBEAT_MS), lambda: self._heartbeat(answered))
            else:
                self._is_member = False
                self._failed(code)

        self._heartbeat(answered)

    def _is_waited_for_by_nobody(self) -> bool:
        """A static member stays in a group in which nobody joins, as in Kafka, while its session goes on."""
        return self._instance is not None and not self._group.joining - {id(self)}

    def _phase(self) -> tuple[tuple[int, int], int]:
        return self._group.partition.tenure, self._group.log.changes[self._group.name]

    # -- as a member --------------------------------------------------------------------------------------------------

    def _next(self) -> None:
        self._world.at(self._world.random.randint(1, HEARTBEAT_MS), self._work)

    def _work(self) -> None:
        random = self._world.random
        if self.leaves_next and self._instance is not None and random.random() < 0.8:
            self._ends(SESSION_MS)  # as Kafka's own clients, it says nothing
        elif self.leaves_next:
            self._leave()
        elif self._world.faults and random.random() < 0.08:
            self._misbehave()
        elif self._world.faults and random.random() < LATE:
            self._say_late()
        elif self._assigned_version not in (None, self._world.topics.version):
            self._again()  # as the leader it looks at the topics
        elif self.owned and random.random() < 0.3:
            self._commit(random.choice(sorted(self.owned)))
        elif self.owned and random.random() < 0.1:
            self._fetch(random.choice(sorted(self.owned)))
        else:
            self._heartbeat(self._heard)

    def _misbehave(self) -> None:
        random, struck = self._world.random, self._world.injected
        how = random.random()
        if how < 0.15:
            struck[Injected.MEMBER_ENDED] += 1
            self._ends(2 * SESSION_MS)
        elif how < 0.3:  # it stalls, and goes on as if nothing were
            struck[Injected.MEMBER_STALLED] += 1
            resume = self._work if not self.owned else lambda: self._commit(random.choice(sorted(self.owned)))
            self._world.at(random.randint(SESSION_MS // 2, 2 * SESSION_MS), resume)
        elif how < 0.5:
            self._leave()
        elif how < 0.7 and self._instance is None:
            struck[Injected.SUBSCRIPTION_CHANGED] += 1
            self._names = random.choice(SUBSCRIPTIONS)
            self._again()
        else:
            late = [one for one in self._past if one[1] < self._synced_generation]
            late += [(place, self._generation + NEVER_GIVEN) for place in sorted(self.owned)]
            if late:
                self._commit_late(*random.choice(late))
            else:
                self._next()

    def _say_late(self) -> None:
        """With a generation of before, or one that nobody was given; as a process of before."""
        random, name, instance = self._world.random, self._group.name, self._instance
        generation = self._synced_generation + random.choice((-2, -1, -1, NEVER_GIVEN))
        formers = self._group.formers(instance, self._member)
        if formers and random.random() < 0.5:
            assert instance is not None
            requests = former_requests(name, random.choice(formers), self._generation, instance)
        else:
            requests = classic_requests(name, self._member, max(generation, 0), instance, "consumer")
        say_late(self._caller, random.choice(requests), self._next)

    def _heartbeat(self, answered: Callable[[m.HeartbeatResponse | None], None]) -> None:
        request = m.HeartbeatRequest(self._group.name, self._generation, self._member, self._instance)
        self._caller.call(request, answered)

    def _heard(self, response: m.HeartbeatResponse | None) -> None:
        self._answered(None if response is None else response.error_code)

    def _answered(self, code: int | None) -> None:
        if code:
            self._failed(code)
            return
        self.answered += code is not None
        self._next()

    def _leave(self) -> None:
        leaving = m.LeavingMember("" if self._instance is not None else self._member, self._instance)
        self._forget()
        request = m.LeaveGroupRequest(self._group.name, (leaving,))
        self._caller.call(request, lambda response: self._ends(SESSION_MS))

    # -- offsets ------------------------------------------------------------------------------------------------------

    def _commit(self, place: Place) -> None:
        history = self._group.history(place)
        version = history.tried + 1
        history.tries(version)
        start = history.start()

        def answered(response: m.OffsetCommitResponse | None) -> None:
            code = None if response is None else response.topics[0][1][0][1]
            if code == ErrorCode.NONE:
                history.acknowledged(version, start)
            self._answered(code)

        self._caller.call(self._commit_request(place, version, self._generation), answered)

    def _commit_late(self, place: Place, generation: int) -> None:
        """With a generation that is not good for it."""
        self._world.injected[Injected.LATE_COMMIT] += 1

        def answered(response: m.OffsetCommitResponse | None) -> None:
            if response is not None and response.topics[0][1][0][1] == ErrorCode.NONE:
                raise Violation(
                    f"{self._group.name} takes a commit of {self._member} to {place} with generation {generation}"
                )
            self._next()

        version = max(self._group.history(place).tried, 1)
        self._caller.call(self._commit_request(place, version, generation), answered)

    def _commit_request(self, place: Place, version: int, generation: int) -> m.OffsetCommitRequest:
        topics = ((place[0], ((place[1], version, -1, None),)),)
        return m.OffsetCommitRequest(
            self._group.name, generation, self._member, self._instance, -1, topics, COMMIT_VERSION
        )

    def _fetch(self, place: Place) -> None:
        history = self._group.history(place)
        start = history.start()

        def answered(response: m.OffsetFetchResponse | None) -> None:
            if response is not None and response.error_code == ErrorCode.NONE:
                ((_, ((_, offset, _, _, code),)),) = response.topics
                if code == ErrorCode.NONE:
                    history.read(max(offset, 0), start)
            self._next()

        topics = ((place[0], (place[1],)),)
        self._caller.call(m.OffsetFetchRequest(self._group.name, None, -1, topics, False), answered)
