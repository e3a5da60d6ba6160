"""A pod's leases and moves, with production's leases of a gateway, over a shard and a Kafka in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.unit.mirror.harness import MemoryWriter, MirrorShard, Upstream, new_groups, replay

from muster_coordinator.mirror.moving.at_kafka import GroupAtKafka
from muster_coordinator.mirror.write_back import ToWrite, has_members
from muster_coordinator.pod.mirroring.connection import UpstreamError
from muster_coordinator.pod.mirroring.followed import Followed
from muster_coordinator.pod.mirroring.moving.moves import Moves
from muster_coordinator.pod.mirroring.writing.kafka import Producer, RefusedError, TransactionError
from muster_coordinator.pod.mirroring.writing.writes import WriteBack
from muster_coordinator.podapi.leases import LeaseAsk, LeasesRequest
from muster_coordinator.podapi.moves import MoveRequest, MoveStatus
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.moving import Fence, LeaseAnswer, Route
from muster_coordinator.settings import UpstreamSettings
from muster_gateway.route_lease import RouteLease, Way

GROUP = "orders"
LEASE_MS = 1_000
TICK_MS = 50


class Kafka:
    """Answers for an upstream partition as its broker would."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.problem = ""
        self.asked: list[str] = []
        self.before_answer: Callable[[], None] = lambda: None

    async def end_of(self, _partition: int) -> int:
        self.asked.append("end")
        if self.problem:
            raise UpstreamError(self.problem)
        return self.upstream.end

    async def group(self, _partition: int, group_id: str) -> GroupAtKafka:
        self.asked.append("group")
        if self.problem:
            raise UpstreamError(self.problem)
        self.before_answer()
        groups: Any = new_groups()
        replay(groups, self.upstream.batches)
        ask = groups.operations
        described = ask[m.DescribeGroupRequest](m.DescribeGroupRequest(group_id, 5), None, 0).response
        fetched = ask[m.OffsetFetchRequest](m.OffsetFetchRequest(group_id, None, -1, None, True), None, 0).response
        return GroupAtKafka(described, fetched)


class KafkaOfWrites:
    """Takes offsets of the last producer that has started, and of no other."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self.epoch = 0
        self.transactions = 0
        self.before_end: Callable[[], None] = lambda: None

    def broker_of(self, _partition: int) -> int:
        return 1

    async def offsets(self, partition: int, group_id: str) -> m.OffsetFetchResponse:
        return (await self._kafka.group(partition, group_id)).fetched

    async def check_without_members(self, partition: int, group_id: str) -> None:
        if has_members((await self._kafka.group(partition, group_id)).described):
            raise RefusedError("members", has_members=True)

    async def fence(self, _partition: int) -> Producer:
        self._kafka.asked.append("fence")
        self.epoch += 1
        return Producer(1, "muster-test-0", 7, self.epoch)

    def _check(self, producer: Producer) -> None:
        if self._kafka.problem:
            raise UpstreamError(self._kafka.problem)
        if producer.epoch != self.epoch:
            raise TransactionError("fenced")

    async def begin(self, producer: Producer, _group_id: str) -> None:
        self._check(producer)

    async def commit(self, producer: Producer, _partition: int, group_id: str, topics: ToWrite) -> None:
        self._check(producer)
        for _, partitions in topics:
            for index, offset, _, _ in partitions:
                self._kafka.upstream.commit(group_id, offset, index, producer=(producer.producer_id, producer.epoch))

    async def end(self, producer: Producer) -> None:
        self.before_end()
        self._check(producer)
        self._kafka.asked.append("end of a transaction")
        self.transactions += 1
        self._kafka.upstream.end_transaction((producer.producer_id, producer.epoch), commit=True)


class World:
    def __init__(self) -> None:
        self.upstream = Upstream()
        self.upstream.generation(GROUP, 4, "a", "b")
        self.upstream.commit(GROUP, 7)
        self.kafka = Kafka(self.upstream)
        self.kafka_of_writes = KafkaOfWrites(self.kafka)
        self.stuck = False
        """Nothing is committed any more."""
        self.follows = True
        self.gateways = {"one": RouteLease("one")}
        self.movable: dict[str, tuple[str, ...]] = {"one": ("ord",)}
        self.settings = UpstreamSettings(upstream_movable_groups="orders,other", upstream_lease_ms=LEASE_MS)
        self.mirror = MirrorShard(MemoryWriter())
        self.mirror.follow_to_end(self.upstream)
        self.lead()
        self.writes = WriteBack(self.settings, self.kafka_of_writes, lambda: self.led, self, lambda: None)  # type: ignore[arg-type]
        self.moves = Moves(self.settings, self.kafka, lambda: self.led, lambda: 1, self, self.writes)  # type: ignore[arg-type]

    def lead(self) -> None:
        told = lambda _: None, lambda _p, _b: None
        shard = self.mirror.shard
        self.led = {0: Followed(0, shard, self.mirror.machine, self, self.settings, *told)}  # type: ignore[arg-type]

    def fail_over(self, *, lost: int = 0) -> None:
        """Another leader, without the last `lost` batches."""
        self.mirror.shard.close("another one leads")
        writer = self.mirror.writer
        writer.batches = writer.batches[: len(writer.batches) - lost]
        now_ms = self.mirror.pod.now_ms
        self.mirror = MirrorShard(writer, self.mirror.shard.epoch + 1)
        self.mirror.pod.now_ms = now_ms
        self.lead()

    def monotonic_ms(self) -> int:
        return self.mirror.pod.now_ms

    def wall_ms(self) -> int:
        return self.mirror.pod.now_ms

    async def lease(self, name: str) -> LeaseAnswer | None:
        """One request of a gateway, which takes the answer."""
        gateway = self.gateways[name]
        asked = gateway.ask(self.monotonic_ms())
        ask = LeaseAsk(0, asked.number, asked.leader_epoch, asked.drained)
        asking = asyncio.create_task(self.moves.leases(LeasesRequest(name, self.movable[name], (ask,))))
        await asyncio.sleep(0)
        self._commit()
        answer = await asking
        assert (answer.partitions, answer.lease_ms) == (1, LEASE_MS)
        if not answer.answers:
            return None
        (each,) = answer.answers
        taken = LeaseAnswer(
            each.number,
            each.leader_epoch,
            each.lease_ms,
            tuple([Route(route.group_id, route.epoch, route.at_muster) for route in each.routes]),
            tuple([Fence(fence.group_id, fence.number) for fence in each.fences]),
        )
        gateway.take(taken, self.monotonic_ms())
        return taken

    def _commit(self) -> None:
        if not self.stuck:
            self.mirror.shard.parked.committed(self.mirror.writer.end_offset)

    async def tick(self, *, asks: bool = True) -> None:
        self.mirror.pod.now_ms += TICK_MS
        self.upstream.now_ms = self.mirror.pod.now_ms
        for name in self.gateways if asks else ():
            await self.lease(name)
        if self.follows and not self.stuck:
            self.mirror.follow_to_end(self.upstream)
        await asyncio.sleep(0.003)  # the pod looks at its moves
        self.mirror.pod.turn()
        self._commit()
        self.mirror.pod.turn()
        self._commit()

    async def until(self, reached: Callable[[], object], *, asks: bool = True) -> None:
        for _ in range(200):
            if reached():
                return
            await self.tick(asks=asks)
        raise AssertionError(f"it never comes to it: {self.last()}")

    async def start(self, group: str = GROUP, *, back: bool = False) -> MoveStatus:
        for name in self.gateways:
            await self.lease(name)
        answer = await self.moves.move(MoveRequest(group, back=back))
        assert answer.obstacles == ()
        assert answer.move is not None
        return answer.move

    def last(self) -> MoveStatus:
        return self.moves.status().moves[-1]

    def way(self, name: str = "one") -> Way:
        return self.gateways[name].way(GROUP, self.monotonic_ms())

    def beat(self) -> int:
        return int(self.mirror.ask(m.HeartbeatRequest(GROUP, 4, "a", None)).error_code)


@asynccontextmanager
async def running(world: World) -> AsyncIterator[World]:
    world.moves.start()
    try:
        yield world
    finally:
        world.moves.stop()
