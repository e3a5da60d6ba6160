"""Gateways with clocks that go wrong, and clients that commit through them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.simulation.moves.world import GROUP, Leader, World

from muster_gateway.route_lease import RouteLease, Way

ASK_MS = 150
PARK_MS = 3_000


@dataclass(frozen=True)
class Commit:
    """`members`: those whom the client is one of, as far as Kafka knows. `done(True)`: acknowledged; `unknown`: Kafka
    does not know the member. Neither is called: the connection has ended, as the client finds out."""

    name: str
    members: int
    done: Callable[[bool], None]
    unknown: Callable[[], None]


class Gateway:
    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._starts = 0
        self._rate = world.random.uniform(0.96, 1.04)
        self._frozen_until_ms = 0
        self.cut_off_until_ms = 0
        self._asked: Leader | None = None
        self._split_until_ms = 0
        self._searches_from_ms = 0
        self.start()
        self._ask(self._starts)

    def start(self) -> None:
        """Again, after a crash: nothing is known any more, and connections are gone."""
        self._starts += 1
        self.lease = RouteLease(f"{self._name}-{self._starts}")

    def restart(self) -> None:
        self.start()
        self._ask(self._starts)

    def freeze(self, ms: int) -> None:
        self._frozen_until_ms = self._world.now_ms + ms

    def split(self, ms: int) -> None:
        """Ask the leader of now for this time (ms), whoever comes after it; in the second half of it that one too, as
        a gateway asks all pods when it has waited for an answer."""
        self._asked = self._world.leader
        self._split_until_ms = self._world.now_ms + ms
        self._searches_from_ms = self._world.now_ms + ms // 2

    def _leader(self) -> Leader | None:
        return self._asked if self._world.now_ms < self._split_until_ms else self._world.leader

    def clock(self) -> int:
        return int(self._world.now_ms * self._rate)

    def _awake(self, event: Callable[[], None]) -> None:
        """`event` at once, or when the gateway goes on; never if it was started again."""
        starts = self._starts
        wait_ms = self._frozen_until_ms - self._world.now_ms
        if wait_ms > 0:
            self._world.after(wait_ms, lambda: self._awake(event) if starts == self._starts else None)
        else:
            event()

    def _ask(self, starts: int) -> None:
        if starts != self._starts:
            return
        self._awake(self._ask_now)
        self._world.after(ASK_MS, lambda: self._ask(starts))

    def _ask_now(self) -> None:
        leader, now_ms = self._leader(), self._world.now_ms
        self._ask_leader(leader)
        if leader is not self._world.leader and now_ms >= self._searches_from_ms:
            self._ask_leader(self._world.leader)

    def _ask_leader(self, leader: Leader | None) -> None:
        world, lease = self._world, self.lease
        request = lease.ask(self.clock())
        if leader is None or world.now_ms < self.cut_off_until_ms:
            return
        world.soon(
            lambda: leader.ask(
                request, lambda answer: world.soon(lambda: self._awake(lambda: lease.take(answer, self.clock())))
            )
        )

    def commit(self, commit: Commit) -> None:
        parked_ms = self._world.now_ms
        starts = self._starts
        self._awake(lambda: self._route(commit, parked_ms, starts))

    def _route(self, commit: Commit, parked_ms: int, starts: int) -> None:
        world = self._world
        if starts != self._starts:
            return
        way = self.lease.way(GROUP, self.clock())
        if way is Way.KAFKA:
            lease = self.lease
            term = lease.sent(GROUP)
            if world.stands_still(0.02):
                self.freeze(world.random.randint(100, 4_000))  # with the request in its hands
            self._awake(lambda: world.soon(lambda: self._at_kafka(commit, lease, term)))
        elif way is Way.MUSTER and world.leader is not None:
            leader = self._leader()
            world.soon(lambda: leader.commit(commit.name, commit.done))
        elif world.now_ms - parked_ms < PARK_MS:
            world.after(20, lambda: self._awake(lambda: self._route(commit, parked_ms, starts)))
        else:
            commit.done(False)

    def _at_kafka(self, commit: Commit, lease: RouteLease, term: int) -> None:
        taken = self._world.kafka_takes(commit.name, commit.members)

        def answered() -> None:
            if lease is not self.lease or not lease.answered(GROUP, term, self.clock()):
                return
            if taken:
                self._world.kafka_acknowledged(commit.name, commit.members)
                commit.done(True)
            else:
                commit.unknown()

        self._world.soon(lambda: self._awake(answered))


class Client:
    """Commits one after the other, by any gateway."""

    TIMEOUT_MS = 4_000

    def __init__(self, world: World, gateways: list[Gateway], name: str) -> None:
        self._world = world
        self._gateways = gateways
        self._name = name
        self._tries = 0
        self._members = 0
        self._gateway = world.random.choice(gateways)
        self.last_ms = 0
        """When its last commit was acknowledged."""
        self._try()

    def _try(self) -> None:
        self._tries += 1
        tries = self._tries
        name = f"{self._name}-{tries:06}"
        done, unknown = partial(self._done, tries), partial(self._unknown, tries)
        self._gateway.commit(Commit(name, self._members, done, unknown))
        self._world.after(self.TIMEOUT_MS, lambda: self._lost(tries))

    def _done(self, tries: int, acknowledged: bool) -> None:
        if tries != self._tries:
            return
        if acknowledged:
            self.last_ms = self._world.now_ms
        self._tries += 1
        self._world.after(self._world.random.randint(1, 60), self._try)

    def _unknown(self, tries: int) -> None:
        """It joins at Kafka."""
        if tries == self._tries:
            self._members = self._world.kafka_members
            self._done(tries, False)

    def _lost(self, tries: int) -> None:
        if tries == self._tries:
            self._gateway = self._world.random.choice(self._gateways)
            self._try()
