"""Time, Kafka, the log of a partition at Muster and its leaders. A run is a function of its seed."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from muster_coordinator.mirror.moving.back import WayBack
from muster_coordinator.mirror.moving.leases import Leases
from muster_coordinator.mirror.moving.move import Move, Step, Task
from muster_coordinator.requests.moving import LeaseAnswer, LeaseRequest, Route

GROUP = "orders"
LEASE_MS = 1_000
TROUBLE_MS = 6_000
"""Then everything heals."""
LOOK_MS = 20
WAIT_MS = 60_000
FENCE_MS = 6_000
AGAIN_MS = 500
"""After a move was given up, or was made."""
SESSION_MS = 1_000
"""How long Kafka has members of a group that has moved."""
WRITE_BACK_MS = 400
STILL_MS = 2_000
"""A leader that stands still for longer is followed by another one."""


class Violation(Exception):
    """The run broke what the protocol promises."""


def is_caught(run: Callable[[int], object], seeds: int) -> bool:
    """Whether the run of one of the first seeds breaks a promise."""
    for seed in range(seeds):
        try:
            run(seed)
        except Violation:
            return True
    return False


class World:
    """`kafka`: the commits that Kafka has taken, by name, of clients and written back; its offsets are the places in
    the list, and the last is the group's. `kafka_members`: a number for those who are members there: with the end of
    their sessions, at Muster, others are. `log`: what is committed at Muster: a route, a number (the mirror's
    position), or a commit's name. `flips`: how often the group is to change sides."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self.kafka: list[str] = []
        self.log: list[Route | int | str] = []
        self.leader: Leader | None = None
        self.leader_epoch = 0
        self.acknowledged_by_kafka: list[set[str]] = [set()]
        """By number of the members."""
        self.given_up = 0
        self.flips = self.random.choice((1, 2, 2, 3))
        self.kafka_members = 0
        self.kafka_has_members = True
        self.producer = 0
        """The one that has started last, whose offsets alone Kafka takes."""

    def after(self, delay_ms: int, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._count, event))

    def soon(self, event: Callable[[], None]) -> None:
        """After the network's time: mostly short."""
        late = self.random.random() < 0.05
        self.after(self.random.randint(50, 1_500) if late else self.random.randint(0, 8), event)

    def stands_still(self, chance: float) -> bool:
        return self.now_ms < TROUBLE_MS and self.random.random() < chance

    def run(self, until_ms: int) -> None:
        while self._events and self._events[0][0] <= until_ms:
            self.now_ms, _, event = heapq.heappop(self._events)
            event()
        self.now_ms = until_ms

    # -- Kafka ---------------------------------------------------------------------------------------------------------

    def kafka_takes(self, commit: str, members: int) -> bool:
        """Whether it takes a commit of one of these members."""
        if members != self.kafka_members:
            return False
        self.kafka_has_members = True
        self.kafka.append(commit)
        return True

    def kafka_acknowledged(self, commit: str, members: int) -> None:
        """A client has got Kafka's answer."""
        self.acknowledged_by_kafka[members].add(commit)
        self.check()

    def kafka_offset(self) -> str:
        """What Kafka has of the group; "": nothing."""
        return self.kafka[-1] if self.kafka else ""

    def kafka_starts_producer(self) -> int:
        self.producer += 1
        return self.producer

    def kafka_takes_back(self, commit: str, producer: int) -> bool:
        """Whether it takes an offset that is written back."""
        if producer != self.producer:
            return False
        route = self.route()
        if route is not None and not route.at_muster:
            raise Violation("an offset was written back after the way back")
        self.kafka.append(commit)
        return True

    def _sessions_end(self) -> None:
        """Nobody's session was renewed since the group has moved."""
        self.kafka_members += 1
        self.kafka_has_members = False
        self.acknowledged_by_kafka.append(set())

    # -- Muster --------------------------------------------------------------------------------------------------------

    def elect(self) -> None:
        """Another leader, from what is committed; of what the last one has under way a part may be. That one may not
        know for a while, and cannot commit any more."""
        if self.leader is not None:
            under_way = self.leader.under_way
            self.commits(under_way[: self.random.randint(0, len(under_way))])
        self.leader_epoch += 1
        self.leader = Leader(self)

    def route(self) -> Route | None:
        return next((each for each in reversed(self.log) if isinstance(each, Route)), None)

    def commits(self, records: Sequence[Route | int | str]) -> None:
        """A majority has these records of Muster's log."""
        for record in records:
            if isinstance(record, Route) and not record.at_muster and self.kafka_offset() != offset_in(self):
                raise Violation(f"the group went back, and Kafka does not have {offset_in(self)}")
            if isinstance(record, Route) and not record.at_muster and self.kafka_has_members:
                raise Violation("the group went back, and Kafka has members of before")
            self.log.append(record)
            if isinstance(record, Route) and record.at_muster:
                self.after(SESSION_MS, self._sessions_end)
        self.check()

    def check(self) -> None:
        """What Kafka has acknowledged is what Muster has taken over with the route, and the sides take turns."""
        at_muster, position, times = False, 0, 0
        for each in self.log:
            if isinstance(each, int):
                position = max(position, each)
            elif isinstance(each, str):
                if not at_muster:
                    raise Violation("Muster took a commit of a group that was Kafka's")
            else:
                if each.at_muster == at_muster:
                    raise Violation("the group moved twice to one side")
                at_muster = each.at_muster
                lost = self.acknowledged_by_kafka[times] - set(self.kafka[:position]) if at_muster else None
                if lost:
                    raise Violation(f"Kafka acknowledged {min(lost)}, and Muster does not have it")
                times += at_muster


def offset_in(world: World, under_way: Sequence[Route | int | str] = ()) -> str:
    """What Muster's log has of the group."""
    offset, at_muster = "", False
    for each in (*world.log, *under_way):
        if isinstance(each, Route):
            at_muster = each.at_muster
        elif isinstance(each, str):
            offset = each
        elif not at_muster and each:
            offset = world.kafka[each - 1]
    return offset


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
        self._offset = offset_in(world)
        self._producer: int | None = None
        self._writes = False
        self._leases = Leases(self.epoch, LEASE_MS, world.now_ms)
        self._fences = 0
        self._move: Move | None = None
        self._next_move_ms = world.random.randint(0, 3_000) if self.epoch == 1 else world.now_ms
        world.after(0, self._look)
        world.after(0, self._mirror)
        world.after(WRITE_BACK_MS, self._write_round)

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
        if not self._serves:
            self.hold(lambda: reply(False))
        else:
            self._offset = name
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
        under_way, self.under_way = self.under_way, []
        self._world.commits(under_way)
        held, self._held = self._held, []
        for _, done in held:
            done()

    def _mirror(self) -> None:
        if not self._leads:
            return
        end = len(self._world.kafka)
        if end > self._position:
            self._position = end
            if not self._serves:
                self._offset = self._world.kafka[end - 1]
            self._append(end, lambda: None)
        slow = self._world.random.random() < 0.05
        self._world.after(self._world.random.randint(100, 2_000) if slow else 10, self._mirror)

    def _look(self) -> None:
        """A leader of the past goes on until it learns."""
        world = self._world
        if not self._leads and world.random.random() < 0.02:
            return
        done = self._route.epoch if self._route is not None else 0
        if done < world.flips and self._move is None and world.now_ms >= self._next_move_ms:
            self._fences += 1
            kind = WayBack if self._serves else Move
            self._move = kind(GROUP, self._fences, WAIT_MS, FENCE_MS, world.now_ms)
        if self._move is not None:
            self._do(self._move.look(self._leases, self._position, True, False, world.now_ms), self._move)
            if self._move.reason or self._move.step is Step.MOVED:
                world.given_up += bool(self._move.reason)
                self._move = None
                self._next_move_ms = world.now_ms + world.random.choice((LOOK_MS, AGAIN_MS))
        world.after(LOOK_MS, self._look)

    def _do(self, task: Task | None, move: Move) -> None:
        world = self._world
        if task is Task.READ_END:
            world.soon(lambda: self._read_end(move))
        elif task is Task.COMPARE:
            world.soon(lambda: self._compare(move))
        elif task is Task.WRITE:
            self._write(lambda done: self._written(move, done))
        elif task is Task.DECIDE:
            epoch = self._route.epoch + 1 if self._route is not None else 1
            self._route = Route(GROUP, epoch, at_muster=not isinstance(move, WayBack))
            self._append(self._route, move.decided)

    def _read_end(self, move: Move) -> None:
        end = len(self._world.kafka)
        self._world.soon(lambda: move.end_read(end))

    def _compare(self, move: Move) -> None:
        end, offset, has_members = len(self._world.kafka), self._world.kafka_offset(), self._world.kafka_has_members

        def answered() -> None:
            if isinstance(move, WayBack):
                if has_members:
                    move.give_up("it has members")
                difference = offset != self._offset
            else:
                difference = end != self._position
            self._do(move.compared("an offset" if difference else ""), move)

        self._world.soon(answered)

    # -- write-back, in the order of `pod/mirroring/writing` -----------------------------------------------------------

    @property
    def _serves(self) -> bool:
        return self._route is not None and self._route.at_muster

    @property
    def _may_write(self) -> bool:
        return self._serves

    @property
    def _is_held(self) -> bool:
        """Rounds write nothing of a group that is on its way back: the way back does."""
        return isinstance(self._move, WayBack)

    def _write_round(self) -> None:
        """A leader of the past goes on until it learns."""
        if not self._leads and self._world.random.random() < 0.3:
            return
        if self._may_write and not self._is_held:
            self._write(lambda _done: None)
        self._world.after(WRITE_BACK_MS, self._write_round)

    def _written(self, move: Move, done: bool) -> None:
        assert isinstance(move, WayBack)
        if done:
            self._do(move.written(), move)
        else:
            move.give_up("another producer has started")

    def _write(self, then: Callable[[bool], None]) -> None:
        world = self._world
        if self._writes:
            world.after(LOOK_MS, lambda: self._write(then))
            return
        self._writes = True

        def done(taken: bool) -> None:
            self._writes = False
            if not taken:
                self._producer = None
            then(taken)

        def started(producer: int) -> None:
            self._producer = producer
            world.soon(lambda: world.soon(partial(asked, world.kafka_offset(), producer)))

        def asked(there: str, producer: int) -> None:
            here = self._offset
            self.confirm(lambda: confirmed(there, here, producer))

        def confirmed(there: str, here: str, producer: int) -> None:
            if here == there or not self._may_write:
                done(self._may_write)
                return
            still_ms = world.random.randint(100, 4_000) if world.stands_still(0.2) else 0
            if still_ms > STILL_MS and self._leads:
                world.elect()
            world.after(still_ms, lambda: world.soon(lambda: arrived(here, producer)))

        def arrived(here: str, producer: int) -> None:
            taken = world.kafka_takes_back(here, producer)
            world.soon(lambda: done(taken))

        if self._producer is not None:
            started(self._producer)
        else:
            world.soon(lambda: world.soon(partial(started, self.start_producer())))

    def start_producer(self) -> int:
        return self._world.kafka_starts_producer()

    def confirm(self, done: Callable[[], None]) -> None:
        """Call `done` when a majority has confirmed this leader, and has committed what is to be written."""
        self.hold(done)
