"""Offsets of groups that have moved are written to Kafka: all of them, only what has changed, and by nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.mirror.harness import MemoryWriter, MirrorShard, Upstream

from muster_coordinator.mirror.write_back import ToWrite
from muster_coordinator.pod.mirroring.connection import UpstreamError
from muster_coordinator.pod.mirroring.followed import Followed
from muster_coordinator.pod.mirroring.writing.kafka import Producer, RefusedError, TransactionError
from muster_coordinator.pod.mirroring.writing.writes import LONG_LEASES, WriteBack
from muster_coordinator.records.group_route import GroupRoute, encode_route
from muster_coordinator.records.structs import OffsetCommitRecord, OffsetCommitValue
from muster_coordinator.requests import groups as m
from muster_coordinator.settings import UpstreamSettings
from muster_coordinator.state_machine import Result

GROUP = "orders"


class Kafka:
    """What a broker has, and answers. Of producers it takes only the last that has started."""

    def __init__(self) -> None:
        self.epoch = 0
        self.pending: list[tuple[str, ToWrite]] = []
        self.members: set[str] = set()
        self.lost_ends = 0
        """How many EndTxn requests get lost, so that their transactions do not end."""
        self.before_commit: Callable[[], Coroutine[Any, Any, None]] = _nothing
        self.after_fence: Callable[[], None] = lambda: None
        self.has: dict[tuple[str, str, int], tuple[int, int, str | None]] = {}
        self.commits: list[tuple[str, ToWrite]] = []
        self.error: Exception | None = None
        self.before_answer: Callable[[], None] = lambda: None

    def broker_of(self, _partition: int) -> int:
        return 1

    async def offsets(self, _partition: int, group_id: str) -> m.OffsetFetchResponse:
        if isinstance(self.error, UpstreamError):
            raise self.error
        of_group = [(place[1:], value) for place, value in self.has.items() if place[0] == group_id]
        topics = {topic for (topic, _), _ in of_group}
        self.before_answer()
        return m.OffsetFetchResponse(
            group_id,
            0,
            tuple(
                (topic, tuple((place[1], *value, 0) for place, value in of_group if place[0] == topic))  # type: ignore[misc]
                for topic in topics
            ),
        )

    async def check_without_members(self, _partition: int, group_id: str) -> None:
        if group_id in self.members:
            raise RefusedError("members", has_members=True)

    async def fence(self, _partition: int) -> Producer:
        self.epoch += 1
        self.pending = []
        producer = Producer(1, "muster-test-0", 7, self.epoch)
        self.after_fence()
        return producer

    def _check(self, producer: Producer) -> None:
        if producer.epoch != self.epoch:
            raise TransactionError("fenced")

    async def begin(self, producer: Producer, _group_id: str) -> None:
        self._check(producer)

    async def commit(self, producer: Producer, _partition: int, group_id: str, topics: ToWrite) -> None:
        if self.error is not None:
            raise self.error
        await self.before_commit()
        self._check(producer)
        self.pending.append((group_id, topics))

    async def end(self, producer: Producer) -> None:
        self._check(producer)
        if self.lost_ends:
            self.lost_ends -= 1
            raise TransactionError("no answer")
        done, self.pending = self.pending, []
        self.commits += done
        for group_id, topics in done:
            for topic, partitions in topics:
                self.has.update(
                    {(group_id, topic, index): (offset, epoch, text) for index, offset, epoch, text in partitions}
                )


async def _nothing() -> None:
    pass


class World:
    def __init__(self) -> None:
        self.upstream = Upstream()
        self.upstream.commit(GROUP, 7)
        self.upstream.commit("kafkas", 3)
        self.kafka = Kafka()
        self.kafka.has = {(GROUP, "t", 0): (7, -1, ""), ("kafkas", "t", 0): (3, -1, "")}
        self.mirror = MirrorShard(MemoryWriter())
        self.mirror.follow_to_end(self.upstream)
        self.settings = UpstreamSettings(upstream_write_back_interval_ms=1_000, upstream_lease_ms=1_000)
        self.lead()
        self.asked_again = 0
        self.writes = WriteBack(self.settings, self.kafka, lambda: self.led, self, self._again)  # type: ignore[arg-type]

    def _again(self) -> None:
        self.asked_again += 1

    def lead(self) -> None:
        told = lambda _: None, lambda _p, _b: None
        shard = self.mirror.shard
        self.led = {0: Followed(0, shard, self.mirror.machine, self, self.settings, *told)}  # type: ignore[arg-type]

    def fail_over(self) -> None:
        self.mirror.shard.close("another one leads")
        now_ms = self.mirror.pod.now_ms
        self.mirror = MirrorShard(self.mirror.writer, self.mirror.shard.epoch + 1)
        self.mirror.pod.now_ms = now_ms
        self.lead()

    def monotonic_ms(self) -> int:
        return self.mirror.pod.now_ms

    wall_ms = monotonic_ms

    def route(self, group: str, *, at_muster: bool, epoch: int = 1) -> None:
        route = GroupRoute(group, epoch, at_muster)
        operations: Any = self.mirror.machine.operations
        operations[GroupRoute] = lambda *_: Result(((*encode_route(route), route),), response=route)
        self.mirror.ask(route)

    def commit(self, offset: int, partition: int = 0, metadata: str = "") -> None:
        topics = (("t", ((partition, offset, 4, metadata),)),)
        answer = self.mirror.ask(m.OffsetCommitRequest(GROUP, -1, "", None, -1, topics, 8))
        assert answer.topics == (("t", ((partition, 0),)),)

    async def round(self, after_ms: int = 1_000) -> None:
        self.mirror.pod.now_ms += after_ms
        self.writes.round()
        while self.writes._of_broker:
            await asyncio.sleep(0)
            self.mirror.pod.turn()
            self.mirror.shard.parked.committed(self.mirror.writer.end_offset)


def _run(test: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        await test(World())

    asyncio.run(run())


def test_what_has_changed_is_written_once() -> None:
    async def test(world: World) -> None:
        world.route(GROUP, at_muster=True)
        assert world.writes.unwritten_ms(0, GROUP) == -1
        await world.round()
        assert world.kafka.commits == [], "Kafka has it"
        assert world.writes.unwritten_ms(0, GROUP) == 0
        world.commit(9, metadata="päckchen")
        world.commit(1, partition=3)
        world.mirror.pod.now_ms += 400
        assert world.writes.unwritten_ms(0, GROUP) == 400
        await world.round()
        assert world.kafka.commits == [(GROUP, [("t", [(0, 9, 4, "päckchen"), (3, 1, 4, "")])])]
        assert (world.writes.unwritten_ms(0, GROUP), world.writes.offsets_written) == (0, 2)
        world.commit(2, partition=3)
        await world.round()
        await world.round()
        assert world.kafka.commits[1:] == [(GROUP, [("t", [(3, 2, 4, "")])])]

    _run(test)


def test_groups_of_kafkas_are_left_alone_and_those_that_went_back() -> None:
    async def test(world: World) -> None:
        world.kafka.has = {}
        await world.round()
        assert world.kafka.commits == []
        world.route(GROUP, at_muster=True)
        await world.round()
        assert [group for group, _ in world.kafka.commits] == [GROUP]
        world.commit(9)
        world.route(GROUP, at_muster=False, epoch=2)
        await world.round()
        assert len(world.kafka.commits) == 1
        assert world.writes.longest_ms == 0

    _run(test)


def test_route_that_changes_between_question_and_write_stops_the_write() -> None:
    async def test(world: World) -> None:
        world.route(GROUP, at_muster=True)
        await world.round()
        world.commit(9)
        world.kafka.before_answer = lambda: world.route(GROUP, at_muster=False, epoch=2)
        await world.round()
        assert world.kafka.commits == []

    _run(test)


def test_leader_of_the_past_writes_nothing() -> None:
    async def test(world: World) -> None:
        world.route(GROUP, at_muster=True)
        await world.round()
        world.commit(9)
        world.kafka.before_answer = world.fail_over
        await world.round()
        assert world.kafka.commits == []
        world.kafka.before_answer = lambda: None
        await world.round()
        assert world.kafka.commits == [(GROUP, [("t", [(0, 9, 4, "")])])], "the next one does"

    _run(test)


def test_write_of_the_leader_before_that_comes_late_changes_nothing() -> None:
    async def test(world: World) -> None:
        world.route(GROUP, at_muster=True)
        await world.round()
        world.commit(9)

        async def stands_still() -> None:
            """Until the next leader has written."""
            world.kafka.before_commit = _nothing
            world.fail_over()
            world.commit(10)
            world.writes._of_broker.clear()
            await world.round()

        world.kafka.before_commit = stands_still
        await world.round()
        for _ in range(20):
            await asyncio.sleep(0)
        assert world.kafka.commits == [(GROUP, [("t", [(0, 10, 4, "")])])]
        assert world.kafka.has[(GROUP, "t", 0)] == (10, 4, "")

    _run(test)


def test_leader_of_the_past_that_fences_the_next_one_writes_nothing() -> None:
    async def test(world: World) -> None:
        world.route(GROUP, at_muster=True)
        await world.round()
        world.commit(9)
        world.writes._by_partition[0].producer = None
        past = world.mirror.shard

        def is_followed() -> None:
            world.kafka.after_fence = lambda: None
            past.close("another one leads")

        world.kafka.after_fence = is_followed
        await world.round()
        assert (world.kafka.commits, world.kafka.epoch) == ([], 2)
        world.fail_over()
        await world.round()
        world.kafka.epoch += 1  # the one of the past starts once more
        world.commit(10)
        await world.round()
        await world.round()
        assert world.kafka.has[(GROUP, "t", 0)] == (10, 4, ""), "the next one has started again"

    _run(test)


def test_transaction_without_an_answer_is_ended_before_the_next() -> None:
    async def test(world: World) -> None:
        world.route(GROUP, at_muster=True)
        await world.round()
        world.commit(9)
        world.kafka.lost_ends = 1
        await world.round()
        assert world.kafka.commits == []
        assert world.writes.problem_of(0, GROUP) == "no answer"
        world.commit(10)
        await world.round()
        assert world.kafka.commits == [(GROUP, [("t", [(0, 10, 4, "")])])]
        assert (world.kafka.epoch, world.writes.problem_of(0, GROUP)) == (2, "")

    _run(test)


def test_producer_goes_on_from_round_to_round() -> None:
    async def test(world: World) -> None:
        world.route(GROUP, at_muster=True)
        for offset in (9, 10, 11):
            world.commit(offset)
            await world.round()
        assert (len(world.kafka.commits), world.kafka.epoch) == (3, 1)

    _run(test)


def test_what_changes_while_it_is_written_is_written_again() -> None:
    async def test(world: World) -> None:
        world.route(GROUP, at_muster=True)
        await world.round()
        world.commit(9)

        async def changes() -> None:
            world.kafka.before_commit = _nothing
            world.commit(10)
            world.writes.round()  # it takes note
            world.mirror.pod.now_ms += 300

        world.kafka.before_commit = changes
        await world.round()
        assert world.kafka.has[(GROUP, "t", 0)] == (9, 4, "")
        assert world.writes.unwritten_ms(0, GROUP) >= 300
        await world.round()
        assert world.kafka.has[(GROUP, "t", 0)] == (10, 4, "")
        assert world.writes.unwritten_ms(0, GROUP) == 0

    _run(test)


def test_group_with_members_there_holds_up_no_other() -> None:
    async def test(world: World) -> None:
        for group in (GROUP, "kafkas"):
            world.route(group, at_muster=True)
        world.kafka.members = {GROUP}
        world.kafka.has = {}
        await world.round()
        assert [group for group, _ in world.kafka.commits] == ["kafkas"]
        assert world.writes.problem_of(0, GROUP) == "members"

    _run(test)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RefusedError("members", has_members=True), True),
        (RefusedError("no READ"), False),
        (UpstreamError("no broker answers"), False),
    ],
)
def test_what_kafka_refuses_is_said_and_tried_again(error: Exception, told: bool) -> None:
    async def test(world: World) -> None:
        world.route(GROUP, at_muster=True)
        await world.round()
        world.commit(9)
        world.kafka.error = error
        await world.round()
        assert world.writes.problem_of(0, GROUP) == str(error)
        assert (world.writes.refused, world.writes.used_there) == (1, [])
        await world.round(LONG_LEASES * 1_000)
        assert world.writes.used_there == ([GROUP] if told else [])
        assert world.writes.unwritten_ms(0, GROUP) >= LONG_LEASES * 1_000
        assert world.asked_again == (2 if isinstance(error, UpstreamError) else 0)
        world.kafka.error = None
        await world.round()
        assert (world.writes.problem_of(0, GROUP), world.writes.refused) == ("", 0)
        assert world.kafka.has[(GROUP, "t", 0)] == (9, 4, "")

    _run(test)


def test_own_writes_are_no_bypass_and_others_are() -> None:
    async def test(world: World) -> None:
        world.route(GROUP, at_muster=True)
        await world.round()
        for offset in (9, 10):
            world.commit(offset)
            await world.round()
        bypasses = world.mirror.machine.bypasses

        def comes(offset: int) -> list[str]:
            value = OffsetCommitValue(offset, 4, "", 0)
            bypasses.left_out(OffsetCommitRecord(GROUP, "t", 0, value), True)
            return [each.group_id for each in bypasses.news()]

        assert comes(9) == comes(10) == []
        assert comes(10) == [GROUP], "it was written once"

    _run(test)


def test_next_leader_takes_no_offset_for_a_bypass_before_it_has_compared() -> None:
    async def test(world: World) -> None:
        world.route(GROUP, at_muster=True)
        world.fail_over()
        bypasses = world.mirror.machine.bypasses
        assert bypasses.quiet == {GROUP}
        await world.round()
        assert bypasses.quiet == set()

    _run(test)
