"""Resets of offsets at the leader of the group's partition, over a shard with a log in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable
from typing import Any, TypeVar, cast

import pytest
from aiohttp.test_utils import TestClient, TestServer
from tests.unit.mirror.harness import MemoryWriter, MirrorShard
from tests.unit.podapi.fake_pod import FakePod

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.classic.tables import group_record
from muster_coordinator.pod.mirroring.connection import UpstreamError
from muster_coordinator.pod.mirroring.records_of import Place
from muster_coordinator.pod.resets import NotLedError, Resets
from muster_coordinator.pod.routes.resets import reset_routes
from muster_coordinator.podapi import resets as api
from muster_coordinator.podapi.resets import (
    PlanAnswer,
    PlannedOffset,
    PlanRequest,
    ResetAnswer,
    ResetRequest,
    WantedOffset,
)
from muster_coordinator.podapi.server import build_app
from muster_coordinator.records.group_metadata import GroupMember, GroupMetadataValue
from muster_coordinator.requests import groups as m
from muster_coordinator.reset_aims import Edges

GROUP = "m-orders"
_T = TypeVar("_T")


class Records:
    """In place of Kafka: three partitions of t, of which the first has lost its oldest records."""

    def __init__(self) -> None:
        self.problem = ""
        self.all = {("t", 0): Edges(5, 50), ("t", 1): Edges(0, 9), ("t", 2): Edges(0, 0)}

    async def edges(self, places: Iterable[Place]) -> dict[Place, Edges]:
        if self.problem:
            raise UpstreamError(self.problem)
        return {place: self.all[place] for place in places if place in self.all}

    async def first_since(self, places: Iterable[Place], time_ms: int) -> dict[Place, int]:
        """One record a millisecond."""
        return {place: time_ms if time_ms < self.all[place].end else -1 for place in places}


class Topics:
    def find(self, topic: str) -> tuple[bytes, int] | None:
        return (b"", 3) if topic == "t" else None


class World:
    """`assignor`: of a member that the group has; "": it has none."""

    def __init__(self, assignor: str = "") -> None:
        writer = MemoryWriter()
        if assignor:
            member = GroupMember("one-1", "one", "c", "/h", 9_000, 9_000, b"", b"")
            value = GroupMetadataValue("consumer", 1, assignor, "one-1", 1_000, (member,))
            writer.append([(*group_record(GROUP, value)[:2], None)], 1, 1_000)
        self.mirror = MirrorShard(writer, serves=lambda group: group.startswith("m-"))
        self.records = Records()
        self.resets = self.of(cast(Any, self.records))
        self.commit({("t", 0): 20, ("t", 1): 3}, member=("one-1", 1) if assignor else ("", -1))

    def of(self, records: Any) -> Resets:
        return Resets({0: self.mirror.shard}, lambda: range(1), Topics(), records)

    def commit(self, offsets: dict[Place, int], group: str = GROUP, member: tuple[str, int] = ("", -1)) -> None:
        assert self.code(offsets, member, group) == 0

    def code(self, offsets: dict[Place, int], member: tuple[str, int], group: str = GROUP) -> int:
        """The error code of a commit. `member`: its id and generation."""
        topics = tuple((topic, ((number, offset, -1, ""),)) for (topic, number), offset in offsets.items())
        answer = self.mirror.ask(m.OffsetCommitRequest(group, member[1], member[0], None, -1, topics, 8))
        return max(int(code) for _, results in answer.topics for _, code in results)

    def beat(self) -> int:
        """The error code that the member of before gets."""
        return int(self.mirror.ask(m.HeartbeatRequest(GROUP, 1, "one-1", None)).error_code)

    def join_code(self) -> int:
        """The error code that a client gets which knows that its member is gone."""
        request = m.JoinGroupRequest(GROUP, 9_000, 9_000, "gone", None, "consumer", (("range", b""),), None, "c", "", 9)
        return int(self.mirror.ask(request).error_code)

    def committed(self) -> dict[Place, int]:
        answer = self.mirror.ask(m.OffsetFetchRequest(GROUP, None, -1, None, True))
        return {(topic, each[0]): each[1] for topic, partitions in answer.topics for each in partitions}

    def join(self, protocol: str = "range") -> None:
        """A member comes: the group is not empty any more."""
        request = m.JoinGroupRequest(
            group_id=GROUP,
            member_id="",
            group_instance_id="one",
            protocol_type="consumer",
            protocols=((protocol, b""),),
            rebalance_timeout_ms=9_000,
            session_timeout_ms=9_000,
            client_id="c",
            client_host="/h",
            reason=None,
            api_version=9,
        )
        self.mirror.shard.submit(request, _Ignored())
        self.mirror.pod.turn()

    async def run(self, call: Awaitable[_T]) -> _T:
        """Commits what is appended meanwhile."""
        task = asyncio.ensure_future(call)
        async with asyncio.timeout(30):
            while not task.done():
                await asyncio.sleep(0)
                self.mirror.pod.turn()
                self.mirror.shard.parked.committed(self.mirror.writer.end_offset)
        return task.result()

    async def plan(
        self, to: Any, number: int = 0, topics: tuple[str, ...] = (), group: str = GROUP, *, park: bool = False
    ) -> PlanAnswer:
        return await self.run(self.resets.plan(PlanRequest(group, to, number, topics, park)))

    async def reset(self, *offsets: PlannedOffset, park: bool = False) -> ResetAnswer:
        return await self.run(self.resets.reset(ResetRequest(GROUP, offsets, park)))


class _Ignored:
    def answer(self, response: Any) -> None: ...

    def refuse(self, code: Any) -> None: ...


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("to", "number", "topics", "after"),
    [
        ("earliest", 0, (), [5, 0]),
        ("earliest", 0, ("t",), [5, 0, 0]),
        ("latest", 0, ("t",), [50, 9, 0]),
        ("offset", 7, (), [7, 7]),
        ("offset", 3, (), [5, 3]),
        ("shiftBy", -2, (), [18, 1]),
        ("shiftBy", 40, (), [50, 9]),
        ("datetime", 8, ("t",), [8, 8, 0]),
        ("datetime", 30, (), [30, 9]),
    ],
)
async def test_plan_says_where_each_partition_would_be_and_writes_nothing(
    world: World, to: str, number: int, topics: tuple[str, ...], after: list[int]
) -> None:
    end = world.mirror.writer.end_offset
    answer = await world.plan(to, number, topics)
    assert answer.obstacles == ()
    assert [each.after for each in answer.offsets] == after
    assert [each.before for each in answer.offsets] == [20, 3, -1][: len(after)]
    assert world.mirror.writer.end_offset == end


async def test_plan_of_named_offsets_is_about_these_partitions_alone(world: World) -> None:
    def wanted(*offsets: tuple[int, int]) -> PlanRequest:
        return PlanRequest(GROUP, "offsets", offsets=tuple(WantedOffset("t", *each) for each in offsets))

    plan = await world.run(world.resets.plan(wanted((1, 2), (0, 3), (2, 0))))
    assert plan.offsets == (
        PlannedOffset("t", 0, 20, 5),  # its oldest record: 3 is gone
        PlannedOffset("t", 1, 3, 2),
        PlannedOffset("t", 2, -1, 0),
    )
    for request, why in ((wanted((3, 0)), "no partition t-3"), (wanted(), "names no offsets")):
        assert why in (await world.run(world.resets.plan(request))).obstacles[0]
    world.resets = world.of(None)
    assert (await world.run(world.resets.plan(wanted((0, 3))))).offsets == (PlannedOffset("t", 0, 20, 3),)


async def test_plan_is_carried_out_once_however_often_it_is_sent(world: World) -> None:
    offsets = (await world.plan("shiftBy", -2)).offsets
    assert await world.reset(*offsets) == ResetAnswer("Written")
    assert world.committed() == {("t", 0): 18, ("t", 1): 1}
    end = world.mirror.writer.end_offset
    assert await world.reset(*offsets) == ResetAnswer("Written")
    assert world.mirror.writer.end_offset == end, "nothing is written a second time"
    world.commit({("t", 0): 30})
    assert (await world.reset(*offsets)).outcome == "Changed"
    assert world.committed() == {("t", 0): 30, ("t", 1): 1}


async def test_plan_that_was_carried_out_in_part_is_carried_out_to_its_end(world: World) -> None:
    offsets = (await world.plan("latest", 0, ("t",))).offsets
    world.commit({("t", 1): 9})
    assert await world.reset(*offsets) == ResetAnswer("Written")
    assert world.committed() == {("t", 0): 50, ("t", 1): 9, ("t", 2): 0}


async def test_group_with_members_is_left_as_it_is(world: World) -> None:
    offsets = (await world.plan("earliest")).offsets
    world.join()
    assert await world.plan("earliest") == PlanAnswer(("the group has members: stop its consumers",))
    assert await world.reset(*offsets) == ResetAnswer("Refused", "the group has members: stop its consumers")
    assert world.committed() == {("t", 0): 20, ("t", 1): 3}


async def test_offsets_in_a_transaction_that_is_open_stand_in_the_way(world: World) -> None:
    offsets = (await world.plan("earliest")).offsets
    pending = (("t", ((0, 44, -1, ""),)),)
    asked = m.TxnOffsetCommitRequest("tx", GROUP, 1, 0, -1, "", None, pending, 3)
    assert world.mirror.ask(asked).topics == (("t", ((0, 0),)),)
    wanted = "a transaction with an offset of t-0 is open: end it"
    assert (await world.plan("earliest")).obstacles == (wanted,)
    assert await world.reset(*offsets) == ResetAnswer("Refused", wanted)


@pytest.mark.parametrize(
    ("to", "topics", "group", "wanted"),
    [
        ("shiftBy", ("t",), GROUP, "nothing is committed for t-2"),
        ("earliest", ("gone",), GROUP, "there is no topic gone"),
        ("earliest", (), "m-nobody", "name its topics"),
        ("earliest", ("t",), "k-orders", "Kafka coordinates the group"),
    ],
)
async def test_what_cannot_be_is_told(world: World, to: str, topics: tuple[str, ...], group: str, wanted: str) -> None:
    (obstacle,) = (await world.plan(to, 1, topics, group)).obstacles
    assert wanted in obstacle


async def test_plan_has_so_many_partitions_at_most(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster_coordinator.pod.resets.PLACES_MAX", 2)
    assert len((await world.plan("earliest")).offsets) == 2
    assert "name fewer topics" in (await world.plan("earliest", 0, ("t",))).obstacles[0]
    assert api.PLACES_MAX == 1_000


async def test_kafka_that_does_not_answer_and_partitions_that_it_lacks_are_told(world: World) -> None:
    world.records.problem = "broker k:9092: no route"
    assert "broker k:9092: no route" in (await world.plan("earliest")).obstacles[0]
    world.records.problem = ""
    del world.records.all["t", 1]
    assert (await world.plan("earliest")).obstacles == ("Kafka has no partition t-1",)


async def test_without_an_upstream_offsets_and_shifts_are_taken_as_they_are(world: World) -> None:
    world.resets = world.of(None)
    assert [each.after for each in (await world.plan("offset", 999)).offsets] == [999, 999]
    assert [each.after for each in (await world.plan("shiftBy", -5)).offsets] == [15, 0]
    for to in ("earliest", "latest", "datetime"):
        assert "no upstream" in (await world.plan(to)).obstacles[0]


async def test_pod_that_does_not_lead_or_ends_to_lead_says_so(world: World) -> None:
    other = Resets({}, lambda: range(1), Topics(), None)
    unknown = Resets({0: world.mirror.shard}, lambda: range(0), Topics(), None)
    for resets in (other, unknown):
        with pytest.raises(NotLedError):
            await resets.plan(PlanRequest(GROUP, "earliest"))
    offsets = (await world.plan("earliest")).offsets
    world.mirror.shard.close("another one leads")
    with pytest.raises(NotLedError, match="NOT_COORDINATOR"):
        await world.reset(*offsets)


# -- members that are parked ------------------------------------------------------------------------------------------

NOW_AND_HERE = (ErrorCode.NONE, "Stable")


def state(world: World) -> tuple[int, str]:
    """(what its member gets for a heartbeat, the group's state)"""
    described = world.mirror.ask(m.DescribeGroupRequest(GROUP, 5))
    return world.beat(), described.group_state


async def test_members_are_put_out_with_the_plan_and_let_in_when_it_was_carried_out() -> None:
    world = World("range")
    assert (await world.plan("earliest")).obstacles == ("the group has members: stop its consumers",)
    assert state(world) == NOW_AND_HERE
    plan = await world.plan("earliest", park=True)
    assert state(world) == (ErrorCode.UNKNOWN_MEMBER_ID, "Empty")
    assert world.code({("t", 0): 44}, ("one-1", 1)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.join_code() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await world.reset(*plan.offsets, park=True) == ResetAnswer("Written")
    assert world.committed() == {("t", 0): 5, ("t", 1): 0}
    assert world.code({("t", 0): 44}, ("one-1", 1)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.join_code() == ErrorCode.UNKNOWN_MEMBER_ID


async def test_nobody_is_put_out_for_what_cannot_be() -> None:
    world = World("sticky")
    for to, topics in (("shiftBy", ("t",)), ("earliest", ("gone",))):
        assert (await world.plan(to, 1, topics, park=True)).obstacles
        assert state(world) == NOW_AND_HERE
    world.records.problem = "broker k:9092: no route"
    assert "no route" in (await world.plan("earliest", park=True)).obstacles[0]
    assert state(world) == NOW_AND_HERE


async def test_members_that_may_keep_their_positions_stay() -> None:
    world = World("cooperative-sticky")
    plan = await world.plan("earliest", park=True)
    assert "cooperative-sticky" in plan.obstacles[0]
    wanted = (PlannedOffset("t", 0, 20, 5),)
    assert (await world.reset(*wanted, park=True)).outcome == "Refused"
    assert state(world) == NOW_AND_HERE
    assert world.committed() == {("t", 0): 20, ("t", 1): 3}


async def test_members_that_are_back_before_a_plan_is_carried_out_are_put_out_again() -> None:
    world = World("range")
    wanted = (PlannedOffset("t", 0, 20, 5), PlannedOffset("t", 1, 3, 0))
    assert await world.reset(*wanted, park=True) == ResetAnswer("Written")
    assert world.committed() == {("t", 0): 5, ("t", 1): 0}
    assert state(world) == (ErrorCode.UNKNOWN_MEMBER_ID, "Empty")
    assert world.join_code() == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("committed", "outcome"), [({("t", 0): 30}, "Changed"), ({("t", 0): 5, ("t", 1): 0}, "Written")]
)
async def test_members_that_are_back_and_have_committed_are_left(committed: dict[Place, int], outcome: str) -> None:
    world = World("range")
    world.commit(committed, member=("one-1", 1))
    wanted = (PlannedOffset("t", 0, 20, 5), PlannedOffset("t", 1, 3, 0))
    assert (await world.reset(*wanted, park=True)).outcome == outcome
    assert state(world) == NOW_AND_HERE


async def test_plan_that_fails_once_members_are_out_lets_them_in_again() -> None:
    world = World("range")
    calls = 0
    edges = world.records.edges

    async def fails_the_second_time(places: Iterable[Place]) -> dict[Place, Edges]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise UpstreamError("broker k:9092: no route")
        return await edges(places)

    world.records.edges = fails_the_second_time  # type: ignore[method-assign]
    assert "no route" in (await world.plan("earliest", park=True)).obstacles[0]
    assert calls == 2
    assert world.join_code() == ErrorCode.UNKNOWN_MEMBER_ID


# -- over HTTP --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def client(world: World) -> AsyncIterator[TestClient[Any, Any]]:
    app = build_app(FakePod("pod-0", 0), lambda: b"")
    app.router.add_routes(reset_routes(world.resets))
    async with TestClient(TestServer(app)) as client:
        yield client


async def test_calls_over_http(client: TestClient[Any, Any], world: World) -> None:
    async def call(path: str, body: Any) -> tuple[int, Any]:
        async with client.post(path, json=body) as response:
            return response.status, await response.json()

    planned = {"topic": "t", "partition": 0, "before": 20, "after": 6}
    turning = asyncio.create_task(_turn(world))
    try:
        status, plan = await call("/v1/resets/plan", {"group": GROUP, "to": "offset", "number": 6})
        assert (status, plan["offsets"][0]) == (200, planned)
        assert await call("/v1/resets", {"group": GROUP, "offsets": [planned]}) == (
            200,
            {"outcome": "Written", "why": ""},
        )
        for path, body in (
            ("/v1/resets/plan", {"group": GROUP, "to": "sideways"}),
            ("/v1/resets", {"group": GROUP, "offsets": []}),
            ("/v1/resets", {"group": GROUP, "offsets": [{**planned, "after": -1}]}),
        ):
            assert (await call(path, body))[0] == 400
    finally:
        turning.cancel()
    world.mirror.shard.close("another one leads")
    for path, more in (("/v1/resets/plan", {"to": "offset"}), ("/v1/resets", {"offsets": [planned]})):
        status, problem = await call(path, {"group": GROUP, **more})
        assert (status, problem["reason"]) == (409, "NotLeader")


async def _turn(world: World) -> None:
    while True:
        await asyncio.sleep(0)
        world.mirror.pod.turn()
        world.mirror.shard.parked.committed(world.mirror.writer.end_offset)
