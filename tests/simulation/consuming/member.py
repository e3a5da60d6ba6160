"""A consumer of the new protocol: it joins, gives back and takes what it is told, commits with its epoch, changes what
it subscribes to, leaves, ends, stalls, and goes on with what it knew.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.client import Caller
from tests.simulation.consuming.group import Group, Place
from tests.simulation.consuming.late import consumer_heartbeat, former_requests, say_late
from tests.simulation.injected import Injected
from tests.simulation.members import NEVER_GIVEN, OVERDUE, REBALANCE_MS, SESSION_MS
from tests.simulation.world import Violation

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.config import MigrationPolicy
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.consumer_groups import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

__all__ = ["ModernConsumer"]

HEARTBEAT_MS = 100
LATE = 0.05
"""Chance at each step of something that must be refused."""
COMMIT_VERSION = 9
HEARTBEAT_VERSION = 1

REGEX = "ct-.*"
SUBSCRIPTIONS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("ct-a",), ""),
    (("ct-a", "ct-b"), ""),
    (("ct-a", "ct-b"), ""),
    ((), REGEX),
    (("ct-a",), REGEX),
)
"""(names, expression)."""

_REJOIN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})


class ModernConsumer:
    """One machine: its processes come one after the other, with a member id each, a static one with the same instance
    id. `answered` counts heartbeats and commits that went well.

    `next_process`: begins what comes after its first process, if that is not another one of the kind.
    """

    def __init__(
        self,
        name: str,
        group: Group,
        caller: Caller,
        instance: str | None,
        next_process: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.answered = 0
        self.owned: set[Place] = set()
        self.leaves_next = False
        self._group = group
        self._caller = caller
        self._world = caller.world
        self._instance = instance
        self._next_process = self._start if next_process is None else next_process
        self._is_one_of_many = next_process is None
        self._process = 0
        self._start()

    # -- processes ----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        random = self._world.random
        self._process += 1
        self._member = f"{self.name}.{self._process}"
        self._assignor = random.choice((None, "uniform", "range"))
        self._subscribe()
        self._forget()
        self._world.at(1 + random.randint(0, 50), self._heartbeat)

    def _forget(self) -> None:
        """All that the group gave to it."""
        self._group.gives_back(self._member, self.owned)
        self.owned = set()
        self._since: dict[Place, int] = {}  # of what it has, the epoch at which it was told so
        self._revoking: set[Place] = set()
        self._past: list[tuple[Place, int]] = []  # what it gave back, with the epoch at which it had it
        self._confirming: list[tuple[Place, int]] = []
        self._epoch = JOINING_EPOCH
        self._epochs: list[int] = []  # that it was told, each once
        self._is_full = True
        self._reports = False
        self._lingers_until = 0
        self._told: tuple[int, tuple[int, int]] | None = None  # when it was told to give back, in which tenure
        self._overdue = 0

    def _ends(self, within_ms: int) -> None:
        self._forget()
        self._world.at(1 + self._world.random.randint(0, within_ms), self._next_process)

    def _subscribe(self) -> None:
        self._names, self._regex = self._world.random.choice(SUBSCRIPTIONS)
        self._is_full = True

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(self._world.topics.counts) if self._regex else frozenset(self._names)

    @property
    def is_settled(self) -> bool:
        return self._epoch > JOINING_EPOCH and not (self._revoking or self._is_full or self._reports)

    # -- what it does next --------------------------------------------------------------------------------------------

    def _next(self) -> None:
        self._world.at(self._world.random.randint(1, HEARTBEAT_MS), self._work)

    def _work(self) -> None:
        random = self._world.random
        if self.leaves_next:
            self._close()
        elif self._world.faults and self._epoch > JOINING_EPOCH and not self._revoking and random.random() < 0.06:
            self._misbehave()
        elif self._world.faults and self._epoch > JOINING_EPOCH and random.random() < LATE:
            self._say_late()
        elif self.owned and random.random() < 0.3:
            self._commit(random.choice(sorted(self.owned)))
        elif self.owned and random.random() < 0.1:
            self._fetch(random.choice(sorted(self.owned)))
        else:
            self._heartbeat()

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
            self._close()
        elif how < 0.7:
            struck[Injected.SUBSCRIPTION_CHANGED] += 1
            self._subscribe()
            self._next()
        elif self._past and how < 0.9:
            self._commit_late(*random.choice(self._past))
        elif self.owned:
            self._commit_late(random.choice(sorted(self.owned)), self._epoch + NEVER_GIVEN)
        else:
            self._next()

    def _say_late(self) -> None:
        """With an epoch of before; with the last one of before, of a partition that another one has; as a process of
        before."""
        random, group, name = self._world.random, self._group, self._group.name
        formers = group.formers(self._instance, self._member)
        others = [place for place in group.places() if group.holder(place)[0] != self._member]
        if formers and random.random() < 0.5:
            assert self._instance is not None
            requests = former_requests(name, random.choice(formers), self._epoch, self._instance)
        elif others and len(self._epochs) > 1 and random.random() < 0.5:
            self._claim(random.choice(others), self._epochs[-2])
            return
        else:
            epochs = [*self._epochs[:-2], self._epoch + NEVER_GIVEN]
            requests = [consumer_heartbeat(name, self._member, epoch, self._instance) for epoch in epochs]
            if self._is_one_of_many:  # a classic group lets anybody fetch
                topics = (("ct-a", (0,)),)
                requests += [m.OffsetFetchRequest(name, self._member, e, topics, False) for e in self._epochs[:-1]]
        life = group.log.life(name)  # nobody is turned away by a group that is not there: it has no offsets
        say_late(
            self._caller,
            random.choice(requests),
            self._next,
            lambda: life is not None and group.log.life(name) == life,
        )

    def _claim(self, place: Place, epoch: int) -> None:
        holder, found = self._group.holder(place), self._world.topics.find(place[0])
        assert found is not None
        self._is_full = True  # the group may give it the partition meanwhile, and the answer is not looked at
        request = consumer_heartbeat(self._group.name, self._member, epoch, self._instance, ((found[0], (place[1],)),))
        say_late(self._caller, request, self._next, lambda: self._group.holder(place) == holder)

    # -- heartbeats ---------------------------------------------------------------------------------------------------

    def _heartbeat(self) -> None:
        if self._revoking and self._world.now_ms >= self._lingers_until:
            self._give_back()
        is_full, reports = self._is_full, self._reports
        request = ConsumerGroupHeartbeatRequest(
            self._group.name,
            self._member,
            self._epoch,
            self._instance,
            None,
            REBALANCE_MS if is_full else -1,
            self._names if is_full else None,
            self._regex if is_full else None,
            self._assignor if is_full else None,
            self._written() if is_full or reports else None,
            self.name,
            "/127.0.0.1",
            HEARTBEAT_VERSION,
        )
        removals = self._group.removals(self._member)
        subscribed = self._names, self._regex
        joins = self._epoch == JOINING_EPOCH

        def answered(response: ConsumerGroupHeartbeatResponse | None) -> None:
            if response is None:
                self._is_full = True
            elif response.error_code == ErrorCode.NONE:
                self._is_full = subscribed != (self._names, self._regex)
                self._reports = False
                self._goes_on(response, removals)
            elif response.error_code == ErrorCode.GROUP_ID_NOT_FOUND and joins and not self._is_one_of_many:
                self._is_refused(response)
                return
            elif response.error_code in _REJOIN:
                self._forget()
            elif response.error_code != ErrorCode.UNRELEASED_INSTANCE_ID:
                raise Violation(f"{self._member} is answered {response}")
            self._next()

        self._caller.call(request, answered)

    def _is_refused(self, response: ConsumerGroupHeartbeatResponse) -> None:
        """By a group that has classic members; the next process may use the other protocol."""
        if MigrationPolicy(self._world.options.policy).upgrades:
            raise Violation(f"{self._member} joins, and is answered {response}")
        self._ends(SESSION_MS)

    def _written(self) -> tuple[tuple[bytes, tuple[int, ...]], ...]:
        topics = self._world.topics
        by_topic: dict[str, list[int]] = {}
        for topic, index in sorted(self.owned):
            by_topic.setdefault(topic, []).append(index)
        found = {topic: topics.find(topic) for topic in by_topic}
        return tuple((each[0], tuple(by_topic[topic])) for topic, each in found.items() if each is not None)

    def _goes_on(self, response: ConsumerGroupHeartbeatResponse, removals: int) -> None:
        epoch = response.member_epoch
        if epoch < self._epoch:
            raise Violation(f"{self._member} is told epoch {epoch} after {self._epoch}")
        self.answered += 1
        self._past += [(place, before) for place, before in self._confirming if before < epoch]
        self._confirming = [one for one in self._confirming if one[1] >= epoch]
        self._group.keeps(self._member, removals)
        self._epoch = epoch
        if epoch not in self._epochs:
            self._epochs.append(epoch)
        self._group.is_member(self._instance, self._member)
        if response.assignment is not None:
            self._assigned(frozenset(self._read(response.assignment)), removals)
        if self._told is not None:
            self._still_lingers(*self._told)

    def _read(self, assignment: tuple[tuple[bytes, tuple[int, ...]], ...]) -> list[Place]:
        places = []
        for topic_id, indexes in assignment:
            topic = self._world.topics.name_of(topic_id)
            assert topic is not None
            places += [(topic, index) for index in indexes]
        return places

    def _assigned(self, places: frozenset[Place], removals: int) -> None:
        new, revoked = places - self.owned, self.owned - places
        self._group.takes(self._member, removals, new)
        self.owned |= new
        self._since.update(dict.fromkeys(new, self._epoch))
        self._past = [one for one in self._past if one[0] not in new]
        self._confirming = [one for one in self._confirming if one[0] not in new]
        if revoked and revoked != self._revoking:
            random = self._world.random
            hangs = self._world.faults and random.random() < 0.3
            self._world.injected[Injected.MEMBER_HUNG] += hangs
            lingers_ms = random.randint(4 * REBALANCE_MS, 12 * REBALANCE_MS) if hangs else random.randint(0, 100)
            self._lingers_until = self._world.now_ms + lingers_ms
            self._told, self._overdue = (self._world.now_ms, self._group.partition.tenure), 0
        self._revoking = set(revoked)

    def _still_lingers(self, at_ms: int, tenure: tuple[int, int]) -> None:
        """It says that it is alive, and gives nothing back."""
        limit_ms = REBALANCE_MS / (1 - self._world.options.drift) + HEARTBEAT_MS
        if tenure != self._group.partition.tenure:  # the next leader gives it all of its time again
            self._told, self._overdue = (self._world.now_ms, self._group.partition.tenure), 0
            return
        if not self._revoking or self._world.now_ms <= at_ms + limit_ms:
            return
        self._overdue += 1
        if self._overdue >= OVERDUE:
            raise Violation(
                f"{self._member} was to give {sorted(self._revoking)} back at {at_ms}, and is a member still"
            )

    def _give_back(self) -> None:
        self._group.gives_back(self._member, self._revoking)
        self.owned -= self._revoking
        self._confirming += [(place, self._epoch) for place in sorted(self._revoking)]
        self._revoking = set()
        self._reports, self._told = True, None

    def _close(self) -> None:
        """A static one most often to come back."""
        goes = self._instance is None or self._world.random.random() < 0.3
        self._leave(LEAVING_EPOCH if goes else LEAVING_STATIC_EPOCH)

    def _leave(self, epoch: int) -> None:
        request = ConsumerGroupHeartbeatRequest(
            self._group.name, self._member, epoch, self._instance, None, -1, None, None, None, None, "", "", 1
        )
        self._forget()
        self._caller.call(request, lambda response: self._ends(SESSION_MS))

    # -- offsets ------------------------------------------------------------------------------------------------------

    def _commit(self, place: Place) -> None:
        if place not in self.owned:
            self._next()
            return
        history = self._group.history(place)
        version = history.tried + 1
        history.tries(version)
        start = history.start()

        def answered(response: m.OffsetCommitResponse | None) -> None:
            if response is not None and response.topics[0][1][0][1] == ErrorCode.NONE:
                history.acknowledged(version, start)
                self.answered += 1
            self._next()

        epochs = [epoch for epoch in self._epochs if epoch >= self._since[place]]
        epoch = self._world.random.choice(epochs) if self._world.random.random() < 0.3 else self._epoch
        self._caller.call(self._commit_request(place, version, epoch), answered)

    def _commit_late(self, place: Place, epoch: int) -> None:
        """With an epoch that is not good for it."""
        self._world.injected[Injected.LATE_COMMIT] += 1

        def answered(response: m.OffsetCommitResponse | None) -> None:
            if response is not None and response.topics[0][1][0][1] == ErrorCode.NONE:
                raise Violation(f"{self._group.name} takes a commit of {self._member} to {place} with epoch {epoch}")
            self._next()

        version = max(self._group.history(place).tried, 1)
        self._caller.call(self._commit_request(place, version, epoch), answered)

    def _commit_request(self, place: Place, version: int, epoch: int) -> m.OffsetCommitRequest:
        topics = ((place[0], ((place[1], version, -1, None),)),)
        return m.OffsetCommitRequest(self._group.name, epoch, self._member, self._instance, -1, topics, COMMIT_VERSION)

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
        self._caller.call(m.OffsetFetchRequest(self._group.name, self._member, self._epoch, topics, False), answered)
