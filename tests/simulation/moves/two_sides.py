"""Kafka and Muster, each with a whole group coordinator, and one group of consumers that moves between them.

Leases and gateways are not here (`world`): a request goes to the side that serves the group, or waits behind the fence.
Time, and what is asked when, is told by who runs it.
"""

from __future__ import annotations

from typing import Any

from tests.unit.groups.consumer.consumer_harness import Topics
from tests.unit.mirror.harness import MemoryWriter, MirrorShard, Upstream, new_groups
from tests.unit.shard.fake_world import Asked, FakePod

from muster_coordinator.groups.consumer.config import ConsumerGroupConfig
from muster_coordinator.groups.consumer.regexes import resolve
from muster_coordinator.groups.consumer.tables import ConsumerTables
from muster_coordinator.mirror.moving.at_kafka import GroupAtKafka
from muster_coordinator.mirror.moving.back import DecideBackRequest, WayBack
from muster_coordinator.mirror.moving.deciding import BeginSessionsRequest, DecideRequest
from muster_coordinator.mirror.moving.leases import Leases
from muster_coordinator.mirror.moving.move import Move, Step, Task
from muster_coordinator.mirror.write_back import to_write
from muster_coordinator.records.consumer_group import ConsumerGroupMetadataValue, ConsumerGroupRecord
from muster_coordinator.records.consumer_group_codec import encode_consumer_group_value
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.requests import groups as m
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.shard.replayed import ReplayedState
from muster_coordinator.shard.shard import Shard

GROUP = "g"
SESSION_MS = 12_000
LEASE_MS = 3_000
WAIT_MS, FENCE_MS = 20 * LEASE_MS, 2 * LEASE_MS
OTHER_HASH = 0x5A5A_5A5A
"""Kafka's hash of topics is another number than Muster's of the same ones."""


class _Searches:
    """Implements `RegexResolving`: what was asked is looked for in the next turn."""

    def __init__(self) -> None:
        self.asked: list[c.RegexesToResolve] = []

    def attempt(self, request: c.RegexesToResolve) -> Any:
        return _Search(self, request)

    def done(self, shard: Shard, topics: Topics, now_ms: int) -> None:
        asked, self.asked = self.asked, []
        for each in asked:
            found = tuple(resolve(each.regexes, topics.counts, each.may_describe).items())
            shard.notify(c.RegexesResolved(each.group_id, found, topics.version, now_ms))


class _Search:
    def __init__(self, searches: _Searches, request: c.RegexesToResolve) -> None:
        self._searches, self._request = searches, request

    def answer(self, _leave: object) -> None:
        self._searches.asked.append(self._request)

    def refuse(self, _code: object) -> None:
        pass


class _KafkaWriter(MemoryWriter):
    """Kafka's log, as a fetch shows it."""

    def __init__(self, upstream: Upstream) -> None:
        super().__init__()
        self._upstream = upstream

    def append(self, records: list[Any], *args: Any, **options: Any) -> None:
        super().append(records, *args, **options)
        self._upstream.append(*[_as_kafka(record) for record in records])


def _as_kafka(record: Any) -> tuple[bytes, bytes | None]:
    change = record[2]
    if isinstance(change, ConsumerGroupRecord) and isinstance(change.value, ConsumerGroupMetadataValue):
        value = ConsumerGroupMetadataValue(change.value.epoch, change.value.metadata_hash ^ OTHER_HASH)
        return record[0], encode_consumer_group_value(value)
    return record[0], record[1]


class Kafka:
    def __init__(self, topics: Topics, config: ConsumerGroupConfig) -> None:
        self.upstream = Upstream()
        self.topics = topics
        self.pod = FakePod()
        self.pod.now_ms = self.upstream.now_ms
        self._searches = _Searches()
        tables = ConsumerTables(config, topics, self._searches, lambda: "made")
        self.groups = new_groups(consumers=tables)
        self._writer = _KafkaWriter(self.upstream)
        self.shard = Shard(
            0,
            ReplayedState(self.groups),
            self._writer,
            epoch=1,
            scheduler=self.pod,
            events=self.pod,
            clock=self.pod,
            metrics=ShardMetrics(),
            commit_timeout_ms=5_000,
        )
        self.shard.start_loading()
        self.shard.open_epoch(1)
        self.shard.activate()
        self.turn()

    def ask(self, request: object) -> Any:
        asked = Asked()
        self.shard.submit(request, asked)
        self.turn()
        (answer,) = asked.got
        return answer

    def turn(self) -> None:
        for _ in range(3):
            self.pod.turn()
            self.shard.parked.committed(self._writer.end_offset)
            self._searches.done(self.shard, self.topics, self.pod.now_ms)

    def at(self, now_ms: int) -> None:
        self.pod.now_ms = self.upstream.now_ms = now_ms
        self.shard.fire_timers()
        self.turn()

    def described(self, configs: dict[str, int] | None = None) -> GroupAtKafka:
        described = self.ask(m.DescribeGroupRequest(GROUP, 5))
        if described.group_state == "Dead":
            consumers = self.ask(c.DescribeConsumerGroupRequest(GROUP))
            described = described if consumers.error_code else consumers
        return GroupAtKafka(described, self.offsets(), configs or {})

    def offsets(self) -> m.OffsetFetchResponse:
        fetched = self.ask(m.OffsetFetchRequest(GROUP, None, -1, None, True))
        assert isinstance(fetched, m.OffsetFetchResponse)
        return fetched


class Sides:
    """`configs`: what administrators have set for the group at Kafka. `moving`: a move, until it is over."""

    def __init__(self, config: ConsumerGroupConfig | None = None, **topics: int) -> None:
        self._config = config or ConsumerGroupConfig(assignment_interval_ms=0, session_timeout_ms=SESSION_MS)
        self.now_ms = Upstream().now_ms
        self.kafka = Kafka(Topics(**topics), self._config)
        self.pods_topics = Topics(**topics)
        self.configs: dict[str, int] = {}
        self.moving: Move | None = None
        self.moves = 0
        self.given_up: list[str] = []
        self._epoch = 0
        self._writer = MemoryWriter()
        self.elect()
        self.pass_time(0)

    # -- Muster --------------------------------------------------------------------------------------------------------

    def elect(self) -> None:
        """Another leader, of the same log. A move that was not decided is forgotten."""
        self._epoch += 1
        self._searches = _Searches()
        tables = ConsumerTables(self._config, self.pods_topics, self._searches, lambda: "made")
        self.mirror = MirrorShard(self._writer, self._epoch, consumers=tables, now_ms=self.now_ms)
        self.moving = None
        self._leases = Leases(self._epoch, LEASE_MS, self.now_ms)

    @property
    def at_muster(self) -> bool:
        return self.mirror.machine.routes.serves(GROUP)

    def learn_topics(self) -> None:
        """The pod lists the topics of Kafka."""
        if self.pods_topics.counts != self.kafka.topics.counts:
            self.pods_topics.counts = dict(self.kafka.topics.counts)
            self.pods_topics.version += 1

    # -- requests and time ---------------------------------------------------------------------------------------------

    def ask(self, request: Any) -> Any:
        """The answer of the side that serves the group; None: the request waits behind the fence."""
        if self.moving is not None and self.moving.fence is not None:
            return None
        if self.at_muster:
            return self.ask_muster(request)
        return self.kafka.ask(request)

    def ask_muster(self, request: Any) -> Any:
        answer = self.mirror.ask(request)
        self._turn()
        return answer

    def _turn(self) -> None:
        for _ in range(3):
            self._searches.done(self.mirror.shard, self.pods_topics, self.now_ms)
            self.mirror.pod.turn()
            self.mirror.shard.parked.committed(self._writer.end_offset)

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.kafka.at(self.now_ms)
        self.mirror.pod.now_ms = self.now_ms
        self.mirror.shard.fire_timers()
        self._turn()

    def follow(self) -> None:
        self.mirror.follow_to_end(self.kafka.upstream)

    # -- moves ---------------------------------------------------------------------------------------------------------

    def start(self, *, back: bool = False) -> str:
        """What stands in the way; "": the move has begun."""
        moves = self.mirror.machine.moves
        obstacles = moves.obstacles_back(GROUP) if back else moves.obstacles(GROUP)
        obstacle = next(obstacles, "")
        if back and not obstacle:
            obstacle = moves.trouble_at_kafka(GROUP, self.kafka.described(), self.now_ms)
        if not obstacle:
            self.moves += 1
            kind = WayBack if back else Move
            self.moving = kind(GROUP, self.moves, WAIT_MS, FENCE_MS, self.now_ms)
        return obstacle

    def step(self) -> None:
        """What the leader can do now about the move. A gateway has nothing outstanding here: see `world`."""
        move = self.moving
        if move is None:
            return
        position = self.mirror.machine.position
        self._do(move, move.look(self._leases, position.offset, position.complete, False, self.now_ms))
        if move.step is Step.GIVEN_UP:
            self.given_up.append(move.reason)
        if move.step in (Step.MOVED, Step.GIVEN_UP):
            self.moving = None

    def _do(self, move: Move, task: Task | None) -> None:
        if task is Task.READ_END:
            move.end_read(self.kafka.upstream.end)
        elif task is Task.WRITE:
            assert isinstance(move, WayBack)
            self._write_back(move)
        elif task is Task.COMPARE:
            self._compare(move)

    def _compare(self, move: Move) -> None:
        there = self.kafka.described(self.configs)
        if isinstance(move, WayBack):
            answer = self.ask_muster(DecideBackRequest(GROUP, move, there))
            if not (answer.reason or answer.write_again):
                move.decided()
        elif not self.ask_muster(DecideRequest(GROUP, move, there)).reason:
            move.decided()
            self.ask_muster(BeginSessionsRequest(GROUP))

    def _write_back(self, move: WayBack) -> None:
        here = self.ask_muster(m.OffsetFetchRequest(GROUP, None, -1, None, False))
        topics = tuple([(topic, tuple(parts)) for topic, parts in to_write(here, self.kafka.offsets())])
        if topics:
            written = self.kafka.ask(m.OffsetCommitRequest(GROUP, -1, "", None, -1, topics, 8))
            codes = {code for _, parts in written.topics for _, code in parts}
            if codes != {0}:
                move.give_up(f"Kafka takes no offsets: {codes}")
                return
        self._do(move, move.written())

    def move(self, *, back: bool = False) -> None:
        """A whole move, with the time that it needs. Raises AssertionError if it is given up."""
        self.follow()
        assert self.start(back=back) == ""
        moving = self.moving
        assert moving is not None
        for _ in range(40):
            self.follow()
            self.step()
            if self.moving is None:
                break
            self.pass_time(200)
        assert moving.step is Step.MOVED, moving.reason
