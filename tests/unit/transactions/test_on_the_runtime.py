"""The transaction coordinator on the shard runtime: shard, log, replication, checkpoint and standby of the groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.replicas import LIMIT_S, AnyTopic, ReplicaPod, ReplicaPods
from tests.unit.shard.fake_world import World
from tests.unit.transactions.harness import FIRST_ID, GROUP_IN, OFFSETS, PARTITION, Topics

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.pod.chores.checkpointing import Checkpointer
from muster_coordinator.requests import groups as g
from muster_coordinator.requests import transactions as m
from muster_coordinator.transactions.config import TransactionConfig
from muster_coordinator.transactions.coordinator import TransactionCoordinator
from muster_coordinator.transactions.ports import MarkerWriter
from muster_coordinator.transactions.producer_ids import BLOCK_SIZE

NewPods = Callable[..., Awaitable[ReplicaPods]]
GROUP_PARTITION = 1
"""The offsets partition in the transactions; the groups' pods have it as their partition 0."""


class HeldMarkers:
    """A marker writer that only notes what it was asked for, and what was refused."""

    def __init__(self) -> None:
        self.asked: list[m.MarkersToWrite] = []
        self.refused: list[m.MarkersToWrite] = []

    def attempt(self, request: m.MarkersToWrite) -> Attempt:
        return Attempt(request, self.asked.append, self.refused.append)


@dataclass
class Attempt:
    """`shard.ports.Answer` of one attempt."""

    request: m.MarkersToWrite
    may_write: Callable[[m.MarkersToWrite], None]
    refused: Callable[[m.MarkersToWrite], None]

    def answer(self, response: object) -> None:
        assert response is self.request
        self.may_write(self.request)

    def refuse(self, code: ErrorCode) -> None:
        self.refused(self.request)


def machine(markers: MarkerWriter, config: TransactionConfig | None = None) -> TransactionCoordinator:
    return TransactionCoordinator(config or TransactionConfig(), PARTITION, Topics(), markers)


# -- one shard --------------------------------------------------------------------------------------------------------


def world_with(markers: HeldMarkers) -> World:
    world = World(machine(markers))
    world.activate()
    world.turn()
    return world


def ask(world: World, request: object) -> Any:
    """The answer, when all is committed."""
    asked = world.ask(request)
    world.turn()
    world.commit()
    (response,) = asked.got
    return response


def ongoing(world: World) -> m.InitProducerIdResponse:
    producer = ask(world, m.InitProducerIdRequest("tx", 60_000))
    ask(world, m.AddOffsetsToTxnRequest("tx", producer.producer_id, producer.producer_epoch, GROUP_IN[GROUP_PARTITION]))
    assert isinstance(producer, m.InitProducerIdResponse)
    return producer


def fire(world: World) -> None:
    world.shard.fire_timers()
    world.turn()


def test_nobody_hears_of_a_decision_before_it_is_committed() -> None:
    markers = HeldMarkers()
    world = world_with(markers)
    producer = ongoing(world)
    asked = world.ask(m.EndTxnRequest("tx", producer.producer_id, producer.producer_epoch, True, 5))
    world.turn()
    fire(world)
    assert (asked.got, markers.asked) == ([], [])
    world.commit()
    assert asked.got == [m.EndTxnResponse(ErrorCode.NONE, producer.producer_id, 1)]
    assert [one.committed for one in markers.asked] == [True]


def test_markers_of_a_leader_that_is_not_confirmed_are_not_written() -> None:
    """Another one may lead, and may have decided otherwise, if this one's decision is not in its log."""
    markers = HeldMarkers()
    world = world_with(markers)
    producer = ongoing(world)
    ask(world, m.EndTxnRequest("tx", producer.producer_id, producer.producer_epoch, True, 4))
    world.writer.read_round = 3
    fire(world)
    world.commit()
    assert markers.asked == []
    world.shard.parked.reads_confirmed(3)
    assert len(markers.asked) == 1


def test_markers_that_were_refused_are_asked_for_again() -> None:
    """The commit took too long: the shard refuses everything that waits."""
    markers = HeldMarkers()
    world = world_with(markers)
    producer = ongoing(world)
    ask(world, m.EndTxnRequest("tx", producer.producer_id, producer.producer_epoch, True, 4))
    world.writer.read_round = 3
    fire(world)
    world.pod.now_ms += 501
    world.shard.refuse_overdue()
    assert markers.asked == []
    (refused,) = markers.refused
    fire(world)
    codes = ((GROUP_PARTITION, int(ErrorCode.COORDINATOR_NOT_AVAILABLE)),)
    world.shard.notify(m.MarkersWritten("tx", refused.prepared_at, ((OFFSETS, codes),)))
    world.turn()
    world.pod.now_ms += TransactionConfig().marker_retry_ms
    fire(world)
    world.shard.parked.reads_confirmed(3)
    assert len(markers.asked) == 1


def test_written_markers_come_back_as_an_event() -> None:
    markers = HeldMarkers()
    world = world_with(markers)
    producer = ongoing(world)
    ask(world, m.EndTxnRequest("tx", producer.producer_id, producer.producer_epoch, False, 4))
    fire(world)
    (asked,) = markers.asked
    world.shard.notify(m.MarkersWritten("tx", asked.prepared_at, ((OFFSETS, ((GROUP_PARTITION, 0),)),)))
    world.turn()
    world.commit()
    described = ask(world, m.DescribeTransactionRequest("tx"))
    assert (described.state, described.topics) == ("CompleteAbort", ())


# -- replicas ---------------------------------------------------------------------------------------------------------


async def ask_pod(pod: ReplicaPod, request: object) -> Any:
    return await asyncio.wait_for(pod.ask(request).done, LIMIT_S)


async def begin(pod: ReplicaPod, name: str = "tx") -> tuple[int, int]:
    response = await ask_pod(pod, m.InitProducerIdRequest(name, 60_000))
    assert response.error_code == ErrorCode.NONE
    producer = (response.producer_id, response.producer_epoch)
    added = await ask_pod(pod, m.AddOffsetsToTxnRequest(name, *producer, GROUP_IN[GROUP_PARTITION]))
    assert added.error_code == ErrorCode.NONE
    return producer


async def test_follower_goes_on_with_the_transaction_and_with_other_producer_ids(new_pods: NewPods) -> None:
    markers = HeldMarkers()
    pods = await new_pods(3, new_machine=partial(machine, markers))
    producer = await begin(pods[0])
    await pods.caught_up()
    await pods.until(lambda: pods[1].up.hosts[0].role.state_at_rest is not None)
    await pods[0].kill()
    await pods.elect(1)
    assert (await ask_pod(pods[1], m.EndTxnRequest("tx", *producer, True, 5))).error_code == ErrorCode.NONE
    await pods.until(lambda: bool(markers.asked))
    other = await ask_pod(pods[1], m.InitProducerIdRequest("other", 60_000))
    assert (producer[0], other.producer_id) == (FIRST_ID, FIRST_ID + BLOCK_SIZE)


@pytest.mark.parametrize("checkpoints", [False, True])
async def test_state_is_loaded_from_log_and_checkpoint(new_pods: NewPods, checkpoints: bool) -> None:
    markers = HeldMarkers()
    pods = await new_pods(1, new_machine=partial(machine, markers), checkpoints=checkpoints)
    producer = await begin(pods[0])
    if checkpoints:
        (checkpointer,) = (each for each in pods[0].up._chores if isinstance(each, Checkpointer))
        await checkpointer.work()
        assert checkpointer.counts.done == 1
    await ask_pod(pods[0], m.EndTxnRequest("tx", *producer, True, 4))
    before = pods[0].shard().machine
    await pods.until(lambda: bool(markers.asked))
    asked = len(markers.asked)
    await pods[0].stop()
    await pods[0].start()
    await pods.elect(0)
    loaded = pods[0].shard().machine
    assert isinstance(before, TransactionCoordinator)
    assert isinstance(loaded, TransactionCoordinator)
    assert loaded.durable_state() == before.durable_state()
    await pods.until(lambda: len(markers.asked) > asked)
    assert markers.asked[-1].prepared_at == loaded.durable_state().ids["tx"][0]


# -- with groups ------------------------------------------------------------------------------------------------------


class MarkersToGroups:
    """Gives markers to whoever leads the groups' partition, and the answer to the shard that has asked. `lose`: so many
    of the next markers are lost on the way there, and the sender learns that they were."""

    def __init__(self, groups: ReplicaPods) -> None:
        self.groups = groups
        self.transactions: ReplicaPods | None = None
        self.lose = 0
        self.codes: list[int] = []  # of all attempts
        self._tasks: set[asyncio.Task[None]] = set()

    def attempt(self, request: m.MarkersToWrite) -> Attempt:
        return Attempt(request, self._start, self._refused)

    def _start(self, request: m.MarkersToWrite) -> None:
        task = asyncio.get_running_loop().create_task(self._write(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _refused(self, request: m.MarkersToWrite) -> None:
        """The shard has closed: in these tests nothing takes too long."""

    async def _write(self, request: m.MarkersToWrite) -> None:
        leader = leader_of(self.groups)
        coordinator = leader_of(self.transactions) if self.transactions is not None else None
        if coordinator is None:
            return
        shard, code = coordinator.shard(), int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.lose:
            self.lose -= 1
        elif leader is not None:
            marker = g.WriteTxnMarkerRequest(
                request.producer_id, request.producer_epoch, request.committed, shard.epoch, request.client_version
            )
            response = await leader.ask(marker).done
            code = response.error_code if isinstance(response, g.WriteTxnMarkerResponse) else int(response)
        self.codes.append(code)
        what = ((OFFSETS, ((GROUP_PARTITION, code),)),)
        shard.notify(m.MarkersWritten(request.transactional_id, request.prepared_at, what))


def leader_of(pods: ReplicaPods) -> ReplicaPod | None:
    return next((pod for pod in pods.pods if pod.leads()), None)


@pytest_asyncio.fixture
async def both(new_pods: NewPods, tmp_path: Path) -> AsyncIterator[tuple[ReplicaPods, ReplicaPods, MarkersToGroups]]:
    """Three pods with transactions, three with groups."""
    groups = ReplicaPods(
        tmp_path / "groups",
        new_machine=lambda: GroupCoordinator(GroupConfig(), AnyTopic(), lambda: "suffix"),
    )
    await groups.start()
    await groups.elect(0, bootstrap=True)
    markers = MarkersToGroups(groups)
    config = TransactionConfig(marker_retry_ms=20)
    transactions = markers.transactions = await new_pods(3, new_machine=partial(machine, markers, config))
    yield transactions, groups, markers
    await groups.stop()


async def call(pods: ReplicaPods, request: object, until: Callable[[Any], bool]) -> Any:
    """Ask whoever leads until it says so, as a client does."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            leader = leader_of(pods)
            response = await leader.ask(request).done if leader is not None else None
            if response is not None and not isinstance(response, ErrorCode) and until(response):
                return response
            await asyncio.sleep(0.005)


class Client:
    """A producer of transactions, in version 1 or 2. `expected`: the group's offset by what the client was answered."""

    def __init__(self, transactions: ReplicaPods, groups: ReplicaPods, version: int) -> None:
        self.transactions, self.groups, self.version = transactions, groups, version
        self.producer = (-1, -1)
        self.expected = -1

    async def init(self) -> None:
        response = await call(
            self.transactions, m.InitProducerIdRequest("tx", 60_000), lambda got: got.error_code == ErrorCode.NONE
        )
        self.producer = (response.producer_id, response.producer_epoch)

    async def commit_offset(self, offset: int) -> None:
        await self.add()
        await self.write_offset(offset)

    async def add(self) -> None:
        if self.version == 1:
            offsets = m.AddOffsetsToTxnRequest("tx", *self.producer, GROUP_IN[GROUP_PARTITION])
            await call(self.transactions, offsets, lambda got: got.error_code == ErrorCode.NONE)
        else:
            add = m.AddPartitionsRequest("tx", *self.producer, ((OFFSETS, (GROUP_PARTITION,)),), 5)
            await call(self.transactions, add, lambda got: got.topics[0][1][0][1] == ErrorCode.NONE)

    async def write_offset(self, offset: int) -> None:
        commit = g.TxnOffsetCommitRequest("tx", "g", *self.producer, -1, "", None, (("t", ((0, offset, -1, ""),)),), 3)
        await call(self.groups, commit, lambda got: got.topics[0][1][0][1] == ErrorCode.NONE)

    async def end(self, offset: int, committed: bool) -> None:
        request = m.EndTxnRequest("tx", *self.producer, committed, 4 if self.version == 1 else 5)
        response = await call(self.transactions, request, lambda got: got.error_code == ErrorCode.NONE)
        if self.version == 2:
            self.producer = (response.producer_id, response.producer_epoch)
        if committed:
            self.expected = offset

    async def check(self) -> None:
        """Every transaction is complete, and the group has what was committed, and nothing else."""
        await call(
            self.transactions,
            m.DescribeTransactionRequest("tx"),
            lambda got: got.state in ("CompleteCommit", "CompleteAbort"),
        )
        fetch = g.OffsetFetchRequest("g", None, -1, (("t", (0,)),), True)
        response = await call(self.groups, fetch, lambda got: got.topics[0][1][0][4] == ErrorCode.NONE)
        assert response.topics[0][1][0][1] == self.expected


@pytest.mark.long
@pytest.mark.parametrize("version", [1, 2])
async def test_offsets_are_those_of_the_committed_transactions_whoever_leads(
    both: tuple[ReplicaPods, ReplicaPods, MarkersToGroups], version: int
) -> None:
    """Both sides get another leader in every step of a transaction; now and then markers are lost."""
    transactions, groups, markers = both
    client = Client(transactions, groups, version)
    await client.init()
    for number in range(12):
        offset, committed = 100 + number, number % 3 != 1
        await client.commit_offset(offset)
        if number % 4 == 0:
            await transactions.elect((number // 4 + 1) % 3, force=True)
        if number % 4 == 1:
            await groups.elect((number // 4 + 1) % 3, force=True)
        markers.lose = number % 3
        await client.end(offset, committed)
        if number % 4 == 2:
            await transactions.elect((number // 4 + 2) % 3, force=True)
        if number % 4 == 3:
            await groups.elect((number // 4 + 2) % 3, force=True)
        await client.check()


async def test_second_producer_aborts_what_the_first_had_begun(
    both: tuple[ReplicaPods, ReplicaPods, MarkersToGroups],
) -> None:
    transactions, groups, _ = both
    first, second = Client(transactions, groups, 2), Client(transactions, groups, 2)
    await first.init()
    await first.commit_offset(5)
    await second.init()
    await second.commit_offset(7)
    late = g.TxnOffsetCommitRequest("tx", "g", *first.producer, -1, "", None, (("t", ((0, 6, -1, ""),)),), 3)
    refused = await call(groups, late, lambda got: True)
    assert refused.topics[0][1][0][1] == ErrorCode.INVALID_PRODUCER_EPOCH
    await second.end(7, committed=True)
    await second.check()


STEPS = ("init", "add", "offsets", "prepare", "marker", "complete")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("topic", ["transactions", "groups"])
@pytest.mark.parametrize("step", STEPS)
async def test_leader_is_killed_after_each_step_of_a_transaction(
    both: tuple[ReplicaPods, ReplicaPods, MarkersToGroups], step: str, topic: str, version: int
) -> None:
    """Nothing that was answered is lost, nothing that was aborted is committed, and no transaction stays open."""
    transactions, groups, markers = both
    pods = transactions if topic == "transactions" else groups
    client = Client(transactions, groups, version)

    async def killed_after(done: str) -> None:
        if done == step:
            await kill_leader(pods)

    for number in range(4):
        offset, committed = 100 + number, number % 2 == 0
        await client.init()
        await killed_after("init")
        await client.add()
        await killed_after("add")
        await client.write_offset(offset)
        await killed_after("offsets")
        written = len(markers.codes)
        markers.lose = step == "prepare"
        await client.end(offset, committed)
        await killed_after("prepare")
        if step == "marker":
            async with asyncio.timeout(LIMIT_S):
                while len(markers.codes) == written:
                    await asyncio.sleep(0)
        await killed_after("marker")
        await client.check()
        await killed_after("complete")
        await client.check()


async def kill_leader(pods: ReplicaPods) -> None:
    """As SIGKILL. Another pod is elected, and the killed one comes back on its disk."""
    leader = leader_of(pods)
    assert leader is not None
    await leader.kill()
    await pods.elect((pods.pods.index(leader) + 1) % len(pods.pods), force=True)
    await leader.start()
