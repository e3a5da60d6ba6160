"""Time, Kafka, the log of a partition at Muster and its leaders. A run is a function of its seed."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

from muster_coordinator.mirror.moving.leases import Leases
from muster_coordinator.mirror.moving.move import Move, Task
from muster_coordinator.requests.moving import LeaseAnswer, LeaseRequest, Route

GROUP = "orders"
LEASE_MS = 1_000
LOOK_MS = 20
WAIT_MS = 60_000
FENCE_MS = 6_000
AGAIN_MS = 500
"""After a move was given up."""


class Violation(Exception):
    """The run broke what the protocol promises."""


class World:
    """`kafka`: the commits that Kafka has taken, by name; its offsets are the places in the list. `log`: what is
    committed at Muster: a route, a number (the mirror's position), or a commit's name."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self.kafka: list[str] = []
        self.log: list[Route | int | str] = []
        self.leader: Leader | None = None
        self.leader_epoch = 0
        self.acknowledged_by_kafka: set[str] = set()
        self.given_up = 0

    def after(self, delay_ms: int, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._count, event))

    def soon(self, event: Callable[[], None]) -> None:
        """After the network's time: mostly short."""
        late = self.random.random() < 0.05
        self.after(self.random.randint(50, 1_500) if late else self.random.randint(0, 8), event)

    def run(self, until_ms: int) -> None:
        while self._events and self._events[0][0] <= until_ms:
            self.now_ms, _, event = heapq.heappop(self._events)
            event()
        self.now_ms = until_ms

    # -- Kafka ---------------------------------------------------------------------------------------------------------

    def kafka_takes(self, commit: str) -> None:
        self.kafka.append(commit)

    def kafka_acknowledged(self, commit: str) -> None:
        """A client has got Kafka's answer."""
        self.acknowledged_by_kafka.add(commit)
        self.check()

    # -- Muster --------------------------------------------------------------------------------------------------------

    def elect(self) -> None:
        """Another leader, from what is committed; of what the last one has under way a part may be. That one may not
        know for a while, and cannot commit any more."""
        if self.leader is not None:
            under_way = self.leader.under_way
            self.log.extend(under_way[: self.random.randint(0, len(under_way))])
            self.check()
        self.leader_epoch += 1
        self.leader = Leader(self)

    def route(self) -> Route | None:
        return next((each for each in reversed(self.log) if isinstance(each, Route)), None)

    def check(self) -> None:
        """What Kafka has acknowledged is what Muster has taken over with the route, and there is one route."""
        places = [place for place, each in enumerate(self.log) if isinstance(each, Route)]
        if len(places) > 1:
            raise Violation("the group was taken over twice")
        first = places[0] if places else len(self.log)
        if any(isinstance(each, str) for each in self.log[:first]):
            raise Violation("Muster took a commit of a group that was Kafka's")
        if places:
            position = max((each for each in self.log[:first] if isinstance(each, int)), default=0)
            lost = self.acknowledged_by_kafka - set(self.kafka[:position])
            if lost:
                raise Violation(f"Kafka acknowledged {min(lost)}, and Muster does not have it")


class Leader:
    """The log of the group's partition. `under_way`: appended, and not committed yet."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.epoch = world.leader_epoch
        self.under_way: list[Route | int | str] = []
        self._held: list[tuple[int, Callable[[], None]]] = []
        self._appended = len(world.log)
        self._position = max((each for each in world.log if isinstance(each, int)), default=0)
        self._route = world.route()
        self._leases = Leases(self.epoch, LEASE_MS, world.now_ms)
        self._fences = 0
        self._move: Move | None = None
        self._next_move_ms = world.random.randint(0, 3_000) if self.epoch == 1 else world.now_ms
        world.after(0, self._look)
        world.after(0, self._mirror)

    @property
    def _leads(self) -> bool:
        return self._world.leader is self

    def ask(self, request: LeaseRequest, reply: Callable[[LeaseAnswer], None]) -> None:
        self._leases.asked(request, self._world.now_ms)
        fence = self._move.fence if self._move is not None else None
        answer = LeaseAnswer(
            request.number,
            self.epoch,
            LEASE_MS,
            (self._route,) if self._route is not None else (),
            (fence,) if fence is not None else (),
        )
        self.hold(lambda: reply(answer))

    def commit(self, name: str, reply: Callable[[bool], None]) -> None:
        """A client's commit: `reply(False)` for NOT_COORDINATOR."""
        if self._route is None:
            self.hold(lambda: reply(False))
        else:
            self._append(name, lambda: reply(True))

    def hold(self, done: Callable[[], None]) -> None:
        """`done` is called when all that was appended is committed, which a leader of the past never sees."""
        self._held.append((self._appended, done))
        self._world.soon(self._replicated)

    def _append(self, record: Route | int | str, done: Callable[[], None]) -> None:
        self.under_way.append(record)
        self._appended += 1
        self.hold(done)

    def _replicated(self) -> None:
        if not self._leads:
            return
        self._world.log.extend(self.under_way)
        self.under_way.clear()
        self._world.check()
        held, self._held = self._held, []
        for _, done in held:
            done()

    def _mirror(self) -> None:
        if not self._leads:
            return
        end = len(self._world.kafka)
        if end > self._position:
            self._position = end
            self._append(end, lambda: None)
        slow = self._world.random.random() < 0.05
        self._world.after(self._world.random.randint(100, 2_000) if slow else 10, self._mirror)

    def _look(self) -> None:
        """A leader of the past goes on until it learns."""
        world = self._world
        if not self._leads and world.random.random() < 0.02:
            return
        if self._route is None and self._move is None and world.now_ms >= self._next_move_ms:
            self._fences += 1
            self._move = Move(GROUP, self._fences, WAIT_MS, FENCE_MS, world.now_ms)
        if self._move is not None:
            self._do(self._move.look(self._leases, self._position, True, False, world.now_ms), self._move)
            if self._move.reason:
                world.given_up += 1
                self._move = None
                self._next_move_ms = world.now_ms + AGAIN_MS
        world.after(LOOK_MS, self._look)

    def _do(self, task: Task | None, move: Move) -> None:
        world = self._world
        if task is Task.READ_END:
            world.soon(lambda: self._read_end(move))
        elif task is Task.COMPARE:
            world.soon(lambda: self._compare(move))
        elif task is Task.DECIDE:
            self._route = Route(GROUP, 1, at_muster=True)
            self._append(self._route, move.decided)

    def _read_end(self, move: Move) -> None:
        end = len(self._world.kafka)
        self._world.soon(lambda: move.end_read(end))

    def _compare(self, move: Move) -> None:
        at_kafka = len(self._world.kafka)
        self._world.soon(lambda: self._do(move.compared("" if at_kafka == self._position else "an offset"), move))
