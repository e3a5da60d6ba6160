"""A group that has moved goes back to Kafka: with all its offsets, by one record, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.unit.pod.moving_world import GROUP, LEASE_MS, TICK_MS, World, running

from muster_coordinator.errors import ErrorCode
from muster_coordinator.pod.mirroring.moving import moves as production
from muster_coordinator.podapi.moves import MoveRequest
from muster_coordinator.records.group_route import GroupRoute
from muster_coordinator.requests import groups as m
from muster_gateway.route_lease import RouteLease, Way

BACK = MoveRequest(GROUP, back=True)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(production, "POLL_S", 0.001)
    monkeypatch.setattr(production, "ANSWER_PART", 50)


@asynccontextmanager
async def moved() -> AsyncIterator[World]:
    """A group at Muster, whose members' sessions at Kafka have ended."""
    async with running(World()) as world:
        await world.start()
        await world.until(lambda: world.last().step == "moved")
        await world.tick()
        world.upstream.generation(GROUP, 5)
        yield world


def commit(world: World, offset: int) -> int:
    """The error code."""
    answer = world.mirror.ask(m.OffsetCommitRequest(GROUP, 4, "a", None, -1, (("t", ((0, offset, -1, ""),)),), 8))
    ((_, ((_, code),)),) = answer.topics
    return int(code)


def at_kafka(world: World) -> int:
    """The offset that Kafka has."""
    return int(world.upstream.state()["committed"][GROUP, "t", 0].offset)


def test_group_goes_back_with_its_offsets() -> None:
    async def run() -> None:
        async with moved() as world:
            assert commit(world, 12) == 0
            assert (await world.start(back=True)).step == "waiting"
            await world.until(lambda: world.way() is Way.WAIT)
            await world.until(lambda: world.last().step == "moved")
            assert (world.last().back, at_kafka(world)) == (True, 12)
            await world.tick()
            assert (world.way(), world.beat()) == (Way.KAFKA, ErrorCode.NOT_COORDINATOR)
            assert commit(world, 13) == ErrorCode.NOT_COORDINATOR
            (routed,) = world.moves.status().routes
            assert (routed.epoch, routed.at_muster) == (2, False)
            assert (await world.moves.move(BACK)).obstacles == ("Kafka serves it already",)
            world.upstream.generation(GROUP, 6, "c")
            world.upstream.commit(GROUP, 20)
            await world.tick()
            assert world.mirror.state() == world.upstream.state(), "the mirror follows it again"
            await world.start()
            await world.until(lambda: world.last().step == "moved")
            await world.tick()
            assert (world.way(), world.moves.status().routes[0].epoch) == (Way.MUSTER, 3)

    asyncio.run(run())


def test_sessions_and_write_back_end_with_it() -> None:
    async def run() -> None:
        async with moved() as world:
            await world.start(back=True)
            await world.until(lambda: world.last().step == "moved")
            await world.tick()
            ends = world.mirror.writer.end_offset, world.upstream.end
            world.mirror.pod.now_ms += 60_001
            world.mirror.shard.fire_timers()
            world.mirror.pod.turn()
            world.writes.round()
            for _ in range(5):
                await world.tick()
            assert (world.mirror.writer.end_offset, world.upstream.end) == ends
            described = world.mirror.ask(m.DescribeGroupRequest(GROUP, 5))
            assert (described.group_state, described.members) == ("Empty", ())

    asyncio.run(run())


def test_commit_that_comes_while_it_is_written_is_at_kafka_before_the_route() -> None:
    async def run() -> None:
        async with moved() as world:
            commit(world, 12)

            def comes() -> None:
                world.kafka_of_writes.before_end = lambda: None
                assert commit(world, 13) == 0

            world.kafka_of_writes.before_end = comes
            await world.start(back=True)
            await world.until(lambda: world.last().step == "moved")
            assert (at_kafka(world), world.kafka_of_writes.transactions) == (13, 2)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ("members there", "it has members at Kafka, where it is Stable"),
        ("removed here", "Kafka has an offset of t-3 that was removed here"),
        ("a transaction", "it has offsets in a transaction that is open"),
        ("it rebalances", "it rebalances"),
        ("kafka is away", "Kafka cannot be asked: no broker answers"),
    ],
)
def test_what_stands_in_the_way_is_said(trouble: str, reason: str) -> None:
    async def run() -> None:
        async with moved() as world:
            if trouble == "members there":
                world.upstream.generation(GROUP, 6, "c")
            elif trouble == "removed here":
                world.upstream.commit(GROUP, 1, partition=3)
            elif trouble == "a transaction":
                topics = (("t", ((0, 9, -1, ""),)),)
                world.mirror.ask(m.TxnOffsetCommitRequest("id", GROUP, 9, 0, -1, "", None, topics, 3))
            elif trouble == "it rebalances":
                world.mirror.ask(m.LeaveGroupRequest(GROUP, (m.LeavingMember("a", None),)))
            else:
                world.kafka.problem = "no broker answers"
            await world.lease("one")
            for dry_run in (True, False):
                (said,) = (await world.moves.move(MoveRequest(GROUP, dry_run, back=True))).obstacles
                assert said.startswith(reason)
            assert [each.back for each in world.moves.status().moves] == [False]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ("members there", "it has members at Kafka"),
        ("kafka is away", "no broker answers"),
        ("it takes long", "it took too long: writing"),
        ("a gateway", "gateway two does not have the group in muster.movable.groups"),
    ],
)
def test_any_doubt_leaves_the_group_at_muster(trouble: str, reason: str) -> None:
    async def run() -> None:
        async with moved() as world:
            commit(world, 12)
            await world.start(back=True)
            await world.until(lambda: world.last().step == "draining")
            if trouble == "members there":
                world.upstream.generation(GROUP, 6, "c")
                commit(world, 7)  # nothing has to be written
            elif trouble == "kafka is away":
                world.kafka.problem = "no broker answers"
            elif trouble == "it takes long":
                world.kafka_of_writes.offsets = _never  # type: ignore[method-assign]
            else:
                world.gateways["two"], world.movable["two"] = RouteLease("two"), ("other",)
            await world.until(lambda: world.last().step == "given up")
            assert reason in world.last().reason
            await world.tick()
            assert (world.way(), world.beat(), commit(world, 14)) == (Way.MUSTER, 0, 0)
            assert [route.at_muster for route in world.moves.status().routes] == [True]

    asyncio.run(run())


async def _never(*_: object) -> m.OffsetFetchResponse:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("step", ["waiting", "draining", "writing", "comparing"])
def test_leader_that_ends_before_the_route_leaves_nothing_behind(step: str) -> None:
    async def run() -> None:
        async with moved() as world:
            commit(world, 12)
            await world.start(back=True)
            term = world.gateways["one"]
            if step == "draining":
                world.gateways["one"] = RouteLease("another")  # this one's lease has to run out
            if step == "writing":
                world.kafka_of_writes.offsets = _never  # type: ignore[method-assign]
            if step == "comparing":
                world.kafka.group = _never  # type: ignore[assignment, method-assign]
                world.kafka_of_writes.offsets = _offsets_of(world)  # type: ignore[method-assign]
            await world.until(lambda: world.last().step == step)
            world.gateways["one"] = term
            world.fail_over()
            await world.until(lambda: world.last().step == "given up")
            await world.tick()
            assert (world.way(), world.beat()) == (Way.MUSTER, 0)
            assert [route.at_muster for route in world.moves.status().routes] == [True]

    asyncio.run(run())


def _offsets_of(world: World):  # type: ignore[no-untyped-def]
    there = m.OffsetFetchResponse(GROUP, 0, (("t", ((0, 12, -1, "", 0),)),))

    async def offsets(*_: object) -> m.OffsetFetchResponse:
        return there

    return offsets


@pytest.mark.parametrize("lost", [0, 1])
def test_leader_that_ends_with_the_route_appended(lost: int) -> None:
    """The next one has it or has not, before it gives a lease."""

    async def run() -> None:
        async with moved() as world:
            await world.tick()
            await world.start(back=True)
            await world.until(lambda: world.last().step == "writing", asks=True)
            world.stuck = True
            await world.until(lambda: world.last().step == "deciding", asks=False)
            assert world.mirror.machine.routes.by_group == {GROUP: GroupRoute(GROUP, 2, False)}
            for _ in range(3 * LEASE_MS // TICK_MS):  # as long as it takes
                await world.tick(asks=False)
            assert world.last().step == "deciding"
            world.fail_over(lost=lost)
            world.stuck = False
            await world.tick()
            assert world.way() is (Way.MUSTER if lost else Way.KAFKA)
            assert world.beat() == (0 if lost else ErrorCode.NOT_COORDINATOR)

    asyncio.run(run())


def test_write_of_the_leader_before_changes_nothing_after_the_way_back() -> None:
    async def run() -> None:
        async with moved() as world:
            commit(world, 12)
            stands_still, goes_on = asyncio.Event(), asyncio.Event()
            end = world.kafka_of_writes.end

            async def late(producer):  # type: ignore[no-untyped-def]
                world.kafka_of_writes.end = end  # type: ignore[method-assign]
                stands_still.set()
                await goes_on.wait()
                await end(producer)

            world.kafka_of_writes.end = late  # type: ignore[method-assign]
            world.writes.round()
            await world.until(stands_still.is_set)
            world.fail_over()
            commit(world, 30)
            await world.until(lambda: world.moves.status().routes, asks=True)
            await world.start(back=True)
            await world.until(lambda: world.last().step == "moved")
            assert at_kafka(world) == 30
            transactions = world.kafka_of_writes.transactions
            goes_on.set()
            for _ in range(5):
                await world.tick()
            assert (at_kafka(world), world.kafka_of_writes.transactions) == (30, transactions)

    asyncio.run(run())
