"""Lag of groups: whose is shown, how far they are behind, and what is not known is not made up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from tests.unit.mirror.harness import MemoryWriter, MirrorShard
from tests.unit.pod.test_records_of import LATEST, Broker, Cluster

from muster_coordinator.errors import ErrorCode
from muster_coordinator.pod.mirroring import ends as asking
from muster_coordinator.pod.mirroring import lag as production
from muster_coordinator.pod.mirroring.ends import EndsOfKafka, in_batches
from muster_coordinator.pod.mirroring.followed import Followed
from muster_coordinator.pod.mirroring.lag import KEPT_ROUNDS, LONGEST_PAUSE, LOOK_EVERY, ROUND_EVERY, GroupLag
from muster_coordinator.pod.mirroring.upstream import UpstreamCluster
from muster_coordinator.records.group_route import GroupRoute
from muster_coordinator.records.structs import OffsetCommitRecord, OffsetCommitValue
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.cluster import MetadataTopic
from muster_coordinator.settings import UpstreamSettings
from muster_coordinator.wire import k03_metadata
from muster_coordinator.wire.codec import Reader

REST_S = 0.25
KEPT_MS = round(KEPT_ROUNDS * ROUND_EVERY * REST_S * 1000)


class WireBroker(Broker):
    """Metadata comes as bytes."""

    asked = 0

    async def ask(self, api: Any, version: int, body: bytes, decode: Callable[[Any], Any]) -> Any:
        self.asked += 1
        answer = await super().ask(api, version, body, decode)
        if api is not k03_metadata.API:
            return answer
        return decode(Reader(k03_metadata.encode_response(version, answer), 0, api.flexible(version)))


class AskedCluster(Cluster):
    """The partitions of `test_records_of` end so: t-0 at 9, t-1 at 4, u-0 at 2."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[int, Any] = {
            node_id: WireBroker(self, broker.offsets) for node_id, broker in self.found.items()
        }

    def for_ends(self, node_id: int) -> Any:
        return self.found.get(node_id)


class World:
    """One pod that leads partition 0; groups that begin with "m" are Muster's."""

    def __init__(self, most: int) -> None:
        self.led = MirrorShard(MemoryWriter(), serves=lambda group: group.startswith("m"))
        nothing: Any = lambda *_: None  # noqa: E731
        settings = UpstreamSettings()
        followed = Followed(0, self.led.shard, self.led.machine, self.led.pod, settings, nothing, nothing)
        self.current = {0: followed}
        self.cluster = AskedCluster()
        self.rounds = 0
        self.lag = GroupLag(most, self._new_round, lambda topic: 2, lambda: self.current, self.led.pod, REST_S)

    def _new_round(self) -> EndsOfKafka:
        self.rounds += 1
        return EndsOfKafka(cast(UpstreamCluster, self.cluster))

    def commit(self, group: str, topic: str, *offsets: int) -> None:
        """To the partitions from 0 on."""
        places = tuple((number, offset, -1, "") for number, offset in enumerate(offsets))
        answer = self.led.ask(m.OffsetCommitRequest(group, -1, "", None, -1, ((topic, places),), 8))
        assert not any(code for _, results in answer.topics for _, code in results)

    def consume(self, group: str) -> None:
        """Make a group of the consumer protocol, with a member."""
        joining = (group, "member", 0, None, None, 60_000, ("t",), None, None, (), "client", "/127.0.0.1", 1)
        assert not self.led.ask(c.ConsumerGroupHeartbeatRequest(*joining)).error_code
        assert self.led.machine.groups.has_consumers(group)

    def shown(self) -> dict[tuple[str, str], int]:
        return {(each.group, each.topic): each.records for each in self.lag.shown()}


async def test_lag_is_the_sum_over_partitions_with_an_offset_and_never_below_zero() -> None:
    world = World(10)
    world.commit("m-1", "t", 2, 1)
    world.commit("m-1", "u", 2)
    world.commit("m-2", "t", 3)
    world.commit("m-3", "t", 30, 3)
    await world.lag.round()
    assert world.shown() == {("m-1", "t"): 7 + 3, ("m-1", "u"): 0, ("m-2", "t"): 6, ("m-3", "t"): 1}
    world.commit("m-1", "t", 9, 4)
    world.cluster.found[1].offsets["t", 0, LATEST] = 12
    await world.lag.round()
    assert world.shown()["m-1", "t"] == 3
    assert world.lag.left_out == {"limit": 0, "unknown": 0}


async def test_groups_of_both_kinds_are_shown_and_those_of_kafka_are_not() -> None:
    world = World(10)
    world.consume("m-consumers")
    world.led.machine.groups.replay(*_committed("m-consumers"))
    world.led.machine.groups.replay(*_committed("kafkas"))
    world.led.machine.groups.replay(*_committed("adopted"))
    world.led.machine.routes.replay(GroupRoute("adopted", 1, True))
    await world.lag.round()
    assert set(world.shown()) == {("m-consumers", "t"), ("adopted", "t")}
    assert world.lag.left_out == {"limit": 0, "unknown": 0}
    world.led.machine.routes.replay(GroupRoute("adopted", 2, False))
    assert set(world.shown()) == {("m-consumers", "t")}, "it is Kafka's again"


def _committed(group: str) -> tuple[Any, int, int]:
    return OffsetCommitRecord(group, "t", 0, OffsetCommitValue(5, -1, "", 1_000)), 1_000, 1_000


async def test_the_first_groups_by_name_are_shown_and_the_others_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(production, "AT_ONCE", 3)
    world = World(4)
    for number in (5, 3, 9, 1, 7, 2, 8, 4):
        world.commit(f"m-{number}", "t", 0)
    await world.lag.round()
    assert sorted(group for group, _ in world.shown()) == ["m-1", "m-2", "m-3", "m-4"]
    assert world.lag.left_out == {"limit": 4, "unknown": 0}
    monkeypatch.setattr(production, "OFFSETS_MAX", 3)
    world.commit("m-2", "u", 0)
    await world.lag.round()
    assert sorted(world.shown()) == [("m-1", "t"), ("m-2", "t"), ("m-2", "u")]
    assert world.lag.left_out == {"limit": 6, "unknown": 0}
    monkeypatch.setattr(production, "SERIES_MAX", 2)
    await world.lag.round()
    assert sorted(world.shown()) == [("m-1", "t"), ("m-3", "t")], "m-2 has two topics"
    assert world.lag.left_out == {"limit": 6, "unknown": 0}


async def test_groups_topics_and_leaderships_that_are_gone_leave_no_series() -> None:
    world = World(10)
    world.commit("m-1", "t", 2, 1)
    world.commit("m-2", "u", 1)
    world.commit("m-3", "t", 1)
    await world.lag.round()
    assert world.led.ask(m.DeleteGroupRequest("m-3")).error_code == 0
    assert set(world.shown()) == {("m-1", "t"), ("m-2", "u")}, "without another round"
    world.cluster.topics = (
        MetadataTopic("t", partitions=(world.cluster.topics[0].partitions[0],)),  # type: ignore[index]
        MetadataTopic("u", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    )
    await world.lag.round()
    assert world.shown() == {("m-1", "t"): 7}, "of the partition that is left"
    assert set(world.lag._ends) == {("t", 0)}, "what is gone takes no memory"
    assert world.lag.left_out == {"limit": 0, "unknown": 0}
    world.current = {}
    assert world.shown() == {}
    await world.lag.round()
    assert world.lag.left_out == {"limit": 0, "unknown": 0}


async def test_topic_of_which_one_end_is_not_known_is_left_out_once_the_last_answer_is_old() -> None:
    world = World(10)
    world.commit("m-1", "t", 2, 1)
    world.commit("m-1", "u", 1)
    await world.lag.round()
    world.cluster.found[1].problem = "no route"  # it leads t-0
    world.led.pod.now_ms += KEPT_MS
    world.commit("m-1", "t", 5, 1)
    await world.lag.round()
    assert world.shown() == {("m-1", "t"): 4 + 3, ("m-1", "u"): 1}, "by the end that was known"
    world.led.pod.now_ms += 1
    assert world.shown() == {("m-1", "u"): 1}
    assert world.lag.left_out == {"limit": 0, "unknown": 1}
    world.cluster.found[1].problem = ""
    await world.lag.round()
    assert world.shown()["m-1", "t"] == 7


async def test_topic_that_the_account_may_not_see_is_unknown() -> None:
    world = World(10)
    world.commit("m-1", "t", 2)
    world.cluster.topics = (MetadataTopic("t", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),)
    await world.lag.round()
    assert world.shown() == {}
    assert world.lag.left_out == {"limit": 0, "unknown": 1}


async def test_broker_that_does_not_answer_is_asked_once_in_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "AT_ONCE", 1)
    world = World(10)
    world.commit("m-1", "t", 2, 1)
    world.commit("m-1", "u", 1)
    away, other = world.cluster.found.values()
    away.problem = "no route"
    await world.lag.round()
    assert (away.asked, other.asked) == (1, 4), "two of Metadata, one for t-1, one for u-0"
    assert world.shown() == {("m-1", "u"): 1}
    other.problem = "no route"
    await world.lag.round()
    assert (away.asked, other.asked) == (2, 5), "the round is over when nobody answers"


async def test_rounds_in_vain_come_ever_later_and_looks_without_offsets_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(10)
    pauses: list[float] = []

    class OverError(BaseException):
        pass

    async def sleep(seconds: float) -> None:
        if seconds:
            pauses.append(seconds / REST_S)
        if len(pauses) == 2:
            world.commit("m-1", "t", 2, 1)
            for broker in world.cluster.found.values():
                broker.problem = "no route"
        if len(pauses) == 8:
            for broker in world.cluster.found.values():
                broker.problem = ""
        if len(pauses) == 9:
            raise OverError

    monkeypatch.setattr(production.asyncio, "sleep", sleep)
    with pytest.raises(OverError):
        await world.lag._run()
    assert pauses[:2] == [LOOK_EVERY, LOOK_EVERY]
    assert pauses[2:8] == [*(ROUND_EVERY * times for times in (2, 4, 8, 16)), LONGEST_PAUSE, LONGEST_PAUSE]
    assert pauses[8] == ROUND_EVERY


async def test_questions_are_batched_by_whole_topics_and_by_what_brokers_tell_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asking, "AT_ONCE", 4)
    counts = {"a": 1, "b": 2, "c": 9, "d": 1}
    places = [("a", 0), ("b", 0), ("b", 1), ("c", 3), ("d", 0)]
    batches = list(in_batches(places, lambda topic: counts[topic]))
    assert batches == [[("a", 0), ("b", 0), ("b", 1)], [("c", 3)], [("d", 0)]]


async def test_nothing_is_asked_where_no_group_is_to_be_shown() -> None:
    world = World(0)
    world.lag.start()
    assert world.lag._task is None
    assert world.shown() == {}
    assert world.lag.left_out == {"limit": 0, "unknown": 0}
