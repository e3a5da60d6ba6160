"""Sites, their pods and clients, the store and the clocks of all machines. Times are seconds of the true time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from itertools import count
from random import Random

from muster_cli.backup.take_over import Look, Point
from muster_cli.errors import CliError
from muster_coordinator.podapi.models import SiteStatus
from muster_coordinator.sites.claims import Claims
from muster_coordinator.sites.lease import Lease

LEASE_S = 10.0
READ_EVERY_S = 0.5
"""More often than pods do, so that a lease is often new when the site is fenced."""
DRIFT = 0.04


class Violation(AssertionError):
    """Two sites have answered clients, or more was lost than was announced."""


class Interrupted(BaseException):
    """The command was killed."""


class World:
    """Runs what is planned in the order of its time."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 1000.0
        self._plan: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self.writers: list[Cluster] = []
        """The clusters that have acknowledged something, in the order of their first answer."""

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._plan, (self.now + seconds, next(self._numbers), do))

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self._plan and self._plan[0][0] <= until:
            self.now, _, do = heapq.heappop(self._plan)
            do()
        self.now = until

    def acknowledged(self, cluster: Cluster) -> None:
        if cluster not in self.writers:
            self.writers.append(cluster)
        if self.writers[-1] is not cluster:
            raise Violation(f"{self.now:.3f}: {cluster.name} acknowledges after {self.writers[-1].name} has begun to")


class Files:
    """Implements `ClaimFiles`."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def names(self) -> list[str]:
        return sorted(self.content)

    def read(self, name: str) -> bytes:
        return self.content[name]

    def add(self, name: str, content: bytes) -> bool:
        if name in self.content:
            return False
        self.content[name] = content
        return True


class Machine:
    """A clock that goes on while the machine sleeps, at a rate of its own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rate = 1 + world.random.choice((-DRIFT, world.random.uniform(-DRIFT, DRIFT), DRIFT))
        self._offset = world.random.uniform(0, 1e6)

    def running_s(self) -> float:
        return self._offset + self._rate * self._world.now

    def true(self, seconds: float) -> float:
        """How long `seconds` of this clock are."""
        return seconds / self._rate


class Pod:
    """Reads the claims, commits what its clients ask for, and answers some time later, if it may."""

    def __init__(self, world: World, cluster: Cluster, number: int) -> None:
        self._world = world
        self._cluster = cluster
        self.name = f"{cluster.name}-{number}"
        self.machine = Machine(world)
        self.lease = Lease(cluster.name)
        self.stands_until = 0.0
        self.reaches_store = True
        self.ended = False
        self._read()
        self._commit()

    def may_answer(self) -> bool:
        return self.lease.holds(self.machine.running_s())

    def read(self, claims: Claims, asked_s: float) -> None:
        """The store has answered; the answer comes later. A claim that the pod has seen may be gone again."""
        known = claims.all()
        newest = known[-1] if known else None
        if newest is not None and newest == self.lease.claim and len(known) > 1 and self._world.random.random() < 0.1:
            newest = known[-2]
        self._later(self.latency(), lambda: self.lease.read(newest, asked_s))

    def answer(self, offset: int, was_allowed: bool) -> None:
        del was_allowed
        if self.may_answer():
            self._cluster.acked.append(offset)
            self._world.acknowledged(self._cluster)

    def latency(self) -> float:
        random = self._world.random
        return random.expovariate(10) if random.random() < 0.9 else random.uniform(0, 3)

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        def run() -> None:
            if self.ended:
                return
            if self._world.now < self.stands_until:
                self._world.after(self.stands_until - self._world.now + self._world.random.random() / 100, run)
            else:
                do()

        self._world.after(seconds, run)

    def _read(self) -> None:
        asked_s = self.machine.running_s()
        if self.reaches_store:
            self._later(self.latency(), lambda: self.read(self._cluster.claims, asked_s))
        self._later(READ_EVERY_S, self._read)

    def _commit(self) -> None:
        was_allowed = self.may_answer()
        if was_allowed:  # else there is no connection
            offset = self._cluster.commit()
            self._later(self._world.random.expovariate(20), lambda: self.answer(offset, was_allowed))
        self._later(self._world.random.expovariate(5), self._commit)


class Cluster:
    """A site's pods over one log. Implements `take_over.OldSite`."""

    def __init__(self, world: World, name: str, claims: Claims, backups: Store) -> None:
        self.world = world
        self.name = name
        self.claims = claims
        self.backups = backups
        self.log: list[float] = []
        """When each record was committed."""
        self.acked: list[int] = []
        self.reachable = True
        self.pods = [Pod(world, self, number) for number in range(3)]

    def commit(self) -> int:
        self.log.append(self.world.now)
        return len(self.log) - 1

    def look(self) -> Look:
        self.world.run(self.world.random.random())
        seen: dict[str, Pod] = {}
        if self.reachable:
            seen = {pod.name: pod for pod in self.pods if self._answers(pod)}
        sites = {name: SiteStatus(self.name, pod.may_answer()) for name, pod in seen.items()}
        silent = [pod.name for pod in self.pods if pod.name not in seen]
        return Look(sites, silent, "" if self._is_led() else "no majority answers")

    def sites(self) -> Mapping[str, SiteStatus | None]:
        return self.look().sites

    def back_up(self) -> Point:
        self.world.run(self.world.random.random())
        if not self._is_led():
            raise CliError("no majority answers")
        return self.backups.add(self)

    def _is_led(self) -> bool:
        return self.reachable and 2 * sum(map(self._answers, self.pods)) > len(self.pods)

    def _answers(self, pod: Pod) -> bool:
        return not pod.ended and self.world.now >= pod.stands_until


class Store:
    """Implements `take_over.Backups`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.killed_in_use = False
        self.made: dict[str, tuple[Point, Cluster, list[float]]] = {}

    def add(self, cluster: Cluster) -> Point:
        point = Point(f"b{len(self.made):04d}", int(self._world.now * 1000))
        self.made[point.backup] = (point, cluster, list(cluster.log))
        return point

    def newest(self) -> Point | None:
        return self.made[max(self.made)][0] if self.made else None

    def use(self, point: Point) -> None:
        assert point.backup in self.made
        self._world.run(max(0.0, self._world.random.uniform(-3, 3)))
        if self.killed_in_use:
            self.killed_in_use = False
            raise Interrupted
