"""One run: consumers of one group heartbeat, commit, come and go while the group moves between Kafka and Muster."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.simulation.moves.two_sides import GROUP, SESSION_MS, Sides
from tests.simulation.moves.world import Violation
from tests.unit.groups.consumer.consumer_harness import id_of, request

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests import groups as m

TOPIC, OTHER = "t-a", "t-b"
EXPRESSION = "t-.*"
BEAT_MS = 3_000
"""Longest time between two heartbeats of a consumer, far below a session."""
MOST_PARTITIONS = 8
TURNS, HEALED_TURNS = 60, 60
TOPICS_EVERY = 0.3
"""Chance in each turn that the pod lists topics."""
_OUT = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})

Place = tuple[str, int]


class Consumer:
    """`owned`: what it has. `may_be_out`: the group has gone back to Kafka, which does not know it; what it has may be
    another one's before it hears of that."""

    def __init__(self, run: ConsumersRun, name: str) -> None:
        self._run = run
        self.name = name
        self.epoch = 0
        self.owned: frozenset[Place] = frozenset()
        self.may_be_out = False
        self._names: tuple[str, ...] = ()
        self._regex = ""
        self._lost = False
        self.subscribe()

    def subscribe(self) -> None:
        names, self._regex = self._run.random.choice((((TOPIC,), ""), ((TOPIC, OTHER), ""), ((), EXPRESSION)))
        self._names = tuple(names)
        self._is_full = True

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(self._run.sides.kafka.topics.counts) if self._regex else frozenset(self._names)

    def beat(self) -> None:
        run = self._run
        by_topic: dict[str, list[int]] = {}
        for topic, index in sorted(self.owned):
            by_topic.setdefault(topic, []).append(index)
        fields: dict[str, Any] = {
            "topic_partitions": tuple([(id_of(each), tuple(of)) for each, of in by_topic.items()])
        }
        if self._is_full:
            fields |= {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": self._names}
            fields |= {"subscribed_topic_regex": self._regex}
        answer = run.sides.ask(request(self.name, self.epoch, **fields))
        if answer is None:
            return
        # The answer, not the request. Of two in a row a group knows no more which epoch the member has.
        self._lost = not self._lost and run.random.random() < run.lost
        if self._lost:
            self._is_full = True
            return
        if answer.error_code in _OUT:
            self._put_out(answer.error_code)
        elif answer.error_code == ErrorCode.NONE:
            self._take(answer)
        elif answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            raise Violation(f"{self.name} is answered {answer}")

    def _put_out(self, code: int) -> None:
        if not self.may_be_out:
            raise Violation(f"{self.name} of epoch {self.epoch} is answered {ErrorCode(code).name}")
        self.epoch, self.owned, self._is_full, self.may_be_out = 0, frozenset(), True, False

    def _take(self, answer: Any) -> None:
        run = self._run
        self._is_full = False
        self.may_be_out = False
        if answer.member_epoch < self.epoch:
            raise Violation(f"{self.name} goes back to epoch {answer.member_epoch} from {self.epoch}")
        if run.moved_at_epoch and answer.member_epoch != run.moved_at_epoch:
            raise Violation(f"epoch {answer.member_epoch} after a move at {run.moved_at_epoch}: nothing had changed")
        self.epoch = answer.member_epoch
        if answer.assignment is None:
            return
        owned = frozenset(
            (topic_id.decode().rstrip("."), index) for topic_id, indexes in answer.assignment for index in indexes
        )
        if run.moved_at_epoch and owned != self.owned:
            raise Violation(f"{self.name} has to change what it has after a move: nothing had changed")
        for other in run.consumers:
            if other is not self and not other.may_be_out and other.owned & owned:
                raise Violation(f"{self.name} gets {sorted(other.owned & owned)}, which {other.name} has")
        self.owned = owned

    def commit(self) -> None:
        run = self._run
        if not self.owned or not self.epoch:
            return
        topic, index = run.random.choice(sorted(self.owned))
        offset = run.committed.get((topic, index), 0) + 1
        asked = m.OffsetCommitRequest(GROUP, self.epoch, self.name, None, -1, ((topic, ((index, offset, -1, ""),)),), 9)
        answer = run.sides.ask(asked)
        if answer is None:
            return
        ((_, ((_, code),)),) = answer.topics
        if code == ErrorCode.NONE:
            run.committed[topic, index] = offset
        elif code in _OUT:
            self._put_out(code)
        elif code != ErrorCode.STALE_MEMBER_EPOCH:
            raise Violation(f"a commit of {self.name} is answered {ErrorCode(code).name}")

    def leave(self) -> None:
        self._run.sides.ask(request(self.name, -1))


class ConsumersRun:
    """`moved_at_epoch`: of the group when it came to Muster, if nothing has changed that it has to be assigned anew
    for; 0: something has. `lost`: the share of answers that do not arrive."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.sides = Sides(**{TOPIC: self.random.randint(1, 4), OTHER: self.random.randint(1, 3)})
        self.consumers: list[Consumer] = []
        self.committed: dict[Place, int] = {}
        self.moved_at_epoch = 0
        self.lost = 0.05
        self.to_muster = self.back = self.quiet = 0
        self._names = 0
        self._last_beat: dict[str, int] = {}
        for _ in range(self.random.randint(1, 3)):
            self._come()

    # -- what changes --------------------------------------------------------------------------------------------------

    def _come(self) -> None:
        self._names += 1
        self.moved_at_epoch = 0
        self.consumers.append(Consumer(self, f"c{self._names}"))

    def _go(self) -> None:
        """It leaves, or ends without a word and is removed with its session."""
        self.moved_at_epoch = 0
        gone = self.random.choice(self.consumers)
        if self.random.random() < 0.5:
            gone.leave()
        self.consumers.remove(gone)

    def _grow(self) -> None:
        topics = self.sides.kafka.topics
        topic = self.random.choice((*topics.counts, "t-new"))
        if topics.counts.get(topic, 0) < MOST_PARTITIONS:
            self.moved_at_epoch = 0
            topics.change(topic, topics.counts.get(topic, 0) + 1)

    def _trouble(self) -> None:
        what = self.random.random()
        if what < 0.25 and len(self.consumers) < 5:
            self._come()
        elif what < 0.4 and len(self.consumers) > 1:
            self._go()
        elif what < 0.6:
            self._grow()
        elif what < 0.75:
            self.moved_at_epoch = 0
            self.random.choice(self.consumers).subscribe()
        else:
            self.sides.elect()

    # -- turns ---------------------------------------------------------------------------------------------------------

    def turn(self, trouble: float, *, begins: bool = True) -> None:
        random, sides = self.random, self.sides
        sides.pass_time(random.randint(100, 1_500))
        if random.random() < trouble:
            self._trouble()
        if random.random() < TOPICS_EVERY:
            sides.learn_topics()
        for consumer in random.sample(self.consumers, len(self.consumers)):
            if random.random() < 0.4 or sides.now_ms - self._last_beat.get(consumer.name, 0) > BEAT_MS:
                self._last_beat[consumer.name] = sides.now_ms
                consumer.beat()
            if random.random() < 0.4:
                consumer.commit()
        if not sides.at_muster or random.random() < 0.7:
            sides.follow()
        self._move(begins=begins)
        self._check_offsets()

    def _move(self, *, begins: bool) -> None:
        sides = self.sides
        if begins and sides.moving is None and self.random.random() < 0.3:
            sides.start(back=sides.at_muster)
        before = sides.at_muster
        for _ in range(self.random.randint(0, 4)):
            if begins and self.random.random() < 0.05:  # behind the fence, perhaps
                self._grow()
                sides.learn_topics()
            quiet_at = self._quiet_epoch() if not sides.at_muster else 0
            sides.step()
            if sides.at_muster != before:
                before = sides.at_muster
                self._moved(quiet_at)
        for reason in sides.given_up:
            if "differ" in reason and "does not see" not in reason:
                raise Violation(reason)

    def _quiet_epoch(self) -> int:
        """The epoch of the group at Kafka, if nothing is left to be done for it there; 0: something is."""
        described: Any = self.sides.kafka.described().described
        if not getattr(described, "group_epoch", 0) or described.group_state != "Stable":
            return 0
        if any(consumer._is_full for consumer in self.consumers):
            return 0
        meant = [
            (name, index) for each in described.members for _, name, part in each.target_assignment for index in part
        ]
        is_whole = sorted(meant) == self._wanted() and len(described.members) == len(self.consumers)
        return int(described.group_epoch) if is_whole else 0

    def _wanted(self) -> list[Place]:
        counts = self.sides.kafka.topics.counts
        names = {name for consumer in self.consumers for name in consumer.topics if name in counts}
        return sorted((name, index) for name in names for index in range(counts[name]))

    def _moved(self, quiet_at: int) -> None:
        if self.sides.at_muster:
            self.moved_at_epoch = quiet_at
            self.to_muster += 1
            self.quiet += quiet_at > 0
            return
        self.moved_at_epoch = 0
        self.back += 1
        for consumer in self.consumers:
            consumer.may_be_out = True

    def _check_offsets(self) -> None:
        fetched = self.sides.ask(m.OffsetFetchRequest(GROUP, None, -1, None, False))
        if fetched is None:
            return
        there = {(topic, each[0]): each[1] for topic, partitions in fetched.topics for each in partitions}
        for place, offset in self.committed.items():
            if there.get(place) != offset:
                raise Violation(f"{place} was committed at {offset}, and is {there.get(place)}")

    def check_end(self) -> None:
        """Whatever was, each partition to which somebody subscribes has one owner now."""
        owned = sorted(place for consumer in self.consumers for place in consumer.owned)
        if owned != self._wanted():
            raise Violation(f"consumers have {owned} of {self._wanted()}")


def run(seed: int) -> ConsumersRun:
    """Raises Violation."""
    world = ConsumersRun(seed)
    for _ in range(TURNS):
        world.turn(0.15)
    world.lost = 0.0
    # Longer than a session, so that who is gone is removed.
    for _ in range(HEALED_TURNS):
        world.sides.learn_topics()
        world.turn(0.0)
    while world.sides.moving is not None:
        world.turn(0.0, begins=False)
    if not world.to_muster:
        raise Violation("the group never moves")
    for _ in range(2 * SESSION_MS // BEAT_MS):
        world.sides.pass_time(BEAT_MS)
        for consumer in world.consumers:
            consumer.beat()
    world.check_end()
    return world
