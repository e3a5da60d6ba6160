"""A pod's leases and moves, with production's leases of a gateway, over a shard and a Kafka in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.pod.moving_world import GROUP, LEASE_MS, TICK_MS, World, running

from muster_coordinator.errors import ErrorCode
from muster_coordinator.mirror.following import TakeIn
from muster_coordinator.pod.mirroring.moving import moves as production
from muster_coordinator.pod.mirroring.moving.moves import Moves, NothingMovableError, NotLeaderError
from muster_coordinator.podapi.leases import LeaseAsk, LeasesRequest
from muster_coordinator.podapi.moves import MoveRequest
from muster_coordinator.records.group_route import GroupRoute
from muster_coordinator.settings import UpstreamSettings
from muster_gateway.route_lease import RouteLease, Way


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(production, "POLL_S", 0.001)
    monkeypatch.setattr(production, "ANSWER_PART", 50)


def test_group_moves_while_gateways_hold_it() -> None:
    async def run() -> None:
        async with running(World()) as world:
            assert (await world.start()).step == "waiting"
            assert world.way() is Way.KAFKA
            await world.until(lambda: world.way() is Way.WAIT)
            assert world.last().step == "draining"
            await world.until(lambda: world.last().step == "moved")
            assert world.way() is Way.WAIT, "until it hears of it"
            await world.tick()
            assert (world.way(), world.beat()) == (Way.MUSTER, 0)
            assert 0 < world.last().fenced_ms <= 20 * TICK_MS
            (routed,) = world.moves.status().routes
            assert (routed.group, routed.partition, routed.epoch, routed.at_muster) == (GROUP, 0, 1, True)
            assert world.kafka.asked[-2:] == ["end", "group"]
            again = await world.moves.move(MoveRequest(GROUP))
            assert again.obstacles == ("Muster serves it already",)

    asyncio.run(run())


def test_sessions_begin_with_the_move() -> None:
    async def run() -> None:
        async with running(World()) as world:
            await world.start()
            await world.until(lambda: world.last().step == "moved")
            await world.tick()
            world.mirror.pod.now_ms += 6_001
            world.mirror.shard.fire_timers()
            world.mirror.pod.turn()
            assert world.beat() == ErrorCode.UNKNOWN_MEMBER_ID

    asyncio.run(run())


def test_fence_waits_for_a_request_that_is_outstanding() -> None:
    async def run() -> None:
        async with running(World()) as world:
            await world.start()
            term = world.gateways["one"].sent(GROUP)
            await world.until(lambda: world.last().step == "draining")
            for _ in range(20):
                await world.tick()
            assert (world.last().step, world.way()) == ("draining", Way.WAIT)
            assert world.gateways["one"].answered(GROUP, term, world.monotonic_ms())
            await world.until(lambda: world.last().step == "moved")

    asyncio.run(run())


def test_gateway_that_is_gone_is_waited_for_as_long_as_its_lease() -> None:
    async def run() -> None:
        world = World()
        world.gateways["two"], world.movable["two"] = RouteLease("two"), ("",)
        async with running(world):
            await world.until(lambda: world.moves._by_partition, asks=True)
            await world.start()
            world.gateways["two"].sent(GROUP)
            await world.until(lambda: world.last().step == "draining")
            gone, began_ms = world.gateways.pop("two"), world.monotonic_ms()
            await world.until(lambda: world.last().step == "moved")
            assert world.monotonic_ms() - began_ms >= LEASE_MS - TICK_MS
            assert gone.way(GROUP, world.monotonic_ms()) is Way.WAIT
            assert not gone.answered(GROUP, 0, world.monotonic_ms()), "the client never hears of it"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ("kafka is away", "no broker answers"),
        ("kafka differs", "Kafka and the mirror differ: the offset of t-0"),
        ("the mirror lags", "it took too long: passing"),
        ("a transaction", "it took too long: passing"),
        ("a gateway", "gateway two does not have the group in muster.movable.groups"),
    ],
)
def test_any_doubt_leaves_the_group_at_kafka(trouble: str, reason: str) -> None:
    async def run() -> None:
        async with running(World()) as world:
            await world.start()
            await world.until(lambda: world.last().step == "draining")
            if trouble == "kafka is away":
                world.kafka.problem = "no broker answers"
            elif trouble == "kafka differs":
                world.kafka.before_answer = lambda: world.upstream.commit(GROUP, 8)
                world.follows = False
            elif trouble == "the mirror lags":
                world.follows = False
                world.upstream.commit(GROUP, 8)
            elif trouble == "a transaction":
                world.upstream.commit(GROUP, 8, producer=(9, 0))
            else:
                world.gateways["two"], world.movable["two"] = RouteLease("two"), ("other",)
            await world.until(lambda: world.last().step == "given up")
            assert reason in world.last().reason
            await world.tick()
            assert (world.way(), world.moves.status().routes) == (Way.KAFKA, ())
            assert world.beat() == ErrorCode.NOT_COORDINATOR
            world.kafka.problem, world.follows, world.kafka.before_answer = "", True, lambda: None
            world.gateways.pop("two", None)
            world.upstream.end_transaction((9, 0), commit=True)
            await world.until(lambda: not world.mirror.machine.groups.has_pending(GROUP))
            for _ in range(30):
                await world.tick()
            await world.start()
            await world.until(lambda: world.last().step == "moved")

    asyncio.run(run())


@pytest.mark.parametrize("step", ["waiting", "draining", "reading", "passing", "comparing"])
def test_leader_that_ends_before_the_route_leaves_nothing_behind(step: str) -> None:
    async def run() -> None:
        async with running(World()) as world:
            await world.start()
            if step == "passing":
                world.follows = False
                world.upstream.commit(GROUP, 8)
            if step == "reading":
                world.kafka.end_of = _never  # type: ignore[method-assign]
            if step == "comparing":
                world.kafka.group = _never  # type: ignore[method-assign]
            await world.until(lambda: world.last().step == step)
            world.fail_over()
            world.follows = True
            await world.until(lambda: world.last().step == "given up")
            assert world.last().reason == "this pod leads the partition no more"
            await world.tick()
            assert (world.way(), world.moves.status().routes) == (Way.KAFKA, ())
            assert world.beat() == ErrorCode.NOT_COORDINATOR

    asyncio.run(run())


async def _never(*_: object) -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize("lost", [0, 1])
def test_leader_that_ends_with_the_route_appended(lost: int) -> None:
    """The next one has it or has not, before it gives a lease."""

    async def run() -> None:
        async with running(World()) as world:
            await world.start()
            await world.until(lambda: world.last().step == "draining")
            world.stuck = True
            for name in world.gateways:
                world.gateways[name] = RouteLease(name)  # its connection is gone: nothing is outstanding
            await world.until(lambda: world.last().step == "deciding", asks=False)
            assert world.mirror.machine.routes.by_group == {GROUP: GroupRoute(GROUP, 1, True)}
            assert await world.lease("one") is None, "nothing is committed"
            assert world.way() is Way.WAIT
            for _ in range(200):  # as long as it takes
                await world.tick(asks=False)
            assert world.last().step == "deciding"
            world.fail_over(lost=lost)
            world.stuck = False
            await world.tick()
            assert world.way() is (Way.KAFKA if lost else Way.MUSTER)
            assert world.beat() == (ErrorCode.NOT_COORDINATOR if lost else 0)

    asyncio.run(run())


def test_decision_that_commits_late_is_one() -> None:
    """The shard refuses what takes too long, and the route may commit nevertheless."""

    async def run() -> None:
        async with running(World()) as world:
            await world.start()
            await world.until(lambda: world.last().step == "draining")
            world.stuck = True
            await world.until(lambda: world.last().step == "deciding", asks=False)
            for _ in range(3):
                world.mirror.pod.now_ms += 6_000
                world.mirror.shard.refuse_overdue()
                await world.tick(asks=False)
            assert world.last().step == "deciding"
            world.stuck = False
            await world.until(lambda: world.last().step == "moved")
            await world.tick()
            assert (world.way(), world.beat()) == (Way.MUSTER, 0)

    asyncio.run(run())


def test_new_leader_waits_for_leases_that_it_does_not_know() -> None:
    async def run() -> None:
        async with running(World()) as world:
            began_ms = world.monotonic_ms()
            await world.start()
            await world.until(lambda: world.last().step == "draining")
            assert world.monotonic_ms() - began_ms >= LEASE_MS
            assert isinstance(world.mirror.follow(world.upstream), TakeIn) is False

    asyncio.run(run())


def test_what_stands_in_the_way_is_said_and_nothing_starts() -> None:
    async def run() -> None:
        async with running(World()) as world:
            nobody = await world.moves.move(MoveRequest(GROUP))
            assert "no gateway asks this pod for leases" in nobody.obstacles[0]
            await world.lease("one")
            assert (await world.moves.move(MoveRequest(GROUP, dry_run=True))).obstacles == ()
            (first, *_) = (await world.moves.move(MoveRequest("elsewhere"))).obstacles
            assert "muster.upstream.movable.groups of this pod does not name it" in first
            assert "there is no such group" in (await world.moves.move(MoveRequest("other"))).obstacles
            world.kafka.problem = "no broker answers"
            said = (await world.moves.move(MoveRequest(GROUP))).obstacles
            assert said == ("Kafka cannot be asked: no broker answers",)
            assert world.moves.status().moves == ()
            world.led = {}
            with pytest.raises(NotLeaderError, match="partition 0"):
                await world.moves.move(MoveRequest(GROUP))

    asyncio.run(run())


def test_nothing_moves_where_nothing_is_movable() -> None:
    async def run() -> None:
        world = World()
        parts: Any = (world.kafka, lambda: world.led, lambda: 1, world, world.writes)
        moves = Moves(UpstreamSettings(), *parts)
        with pytest.raises(NothingMovableError, match=r"muster\.upstream\.movable\.groups is empty"):
            await moves.move(MoveRequest(GROUP))
        told = await moves.leases(LeasesRequest("one", ("",), ()))  # a group may have moved before
        assert (told.partitions, told.movable) == (1, ())

    asyncio.run(run())


def test_partitions_of_others_are_left_out_and_the_number_is_told() -> None:
    async def run() -> None:
        world = World()
        answer = await world.moves.leases(LeasesRequest("one", ("",), (LeaseAsk(5, 1, -1),)))
        assert (answer.partitions, answer.answers) == (1, ())

    asyncio.run(run())
