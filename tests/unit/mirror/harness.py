"""An upstream partition in memory, and a shard that mirrors it, with a log in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.replicas import AnyTopic
from tests.unit.shard.fake_world import Asked, FakePod

from muster_coordinator.groups.classic.tables import group_record
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.consumer.tables import ConsumerTables
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.mirror.coordinator import MirrorCoordinator
from muster_coordinator.mirror.following import (
    LookAgain,
    Nothing,
    Problem,
    ReadAgain,
    TakeIn,
    Verdict,
    is_another_topic,
    is_doubtful,
    judge,
)
from muster_coordinator.mirror.requests import TakeBackRequest, TakeInRequest, TakeInResponse
from muster_coordinator.mirror.routes import Routes
from muster_coordinator.records.batch import RecordBatch, encode_batch, placed, read_batch
from muster_coordinator.records.control import EndTxnMarker, encode_end_txn_marker
from muster_coordinator.records.group_metadata import GroupMember, GroupMetadataValue
from muster_coordinator.records.mirror_position import MirrorPosition
from muster_coordinator.records.offset_commit import encode_offset_commit_key, encode_offset_commit_value
from muster_coordinator.records.retain import retain
from muster_coordinator.records.structs import OffsetCommitValue, UnknownRecord
from muster_coordinator.requests.upstream import FetchedRecords
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.shard.replayed import ReplayedState
from muster_coordinator.shard.shard import Shard
from muster_coordinator.state_machine import StateMachine

TOPIC_ID = b"an id of a topic"
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
PARTITION = 7


def committed(offset: int, at_ms: int) -> bytes:
    return encode_offset_commit_value(OffsetCommitValue(offset, -1, "", at_ms))


class Upstream:
    """`batches` have rising offsets, with gaps after `compact`. Its high watermark is its end."""

    def __init__(self, topic_id: bytes = TOPIC_ID) -> None:
        self.topic_id = topic_id
        self.batches: list[RecordBatch] = []
        self.end = 0
        self.start = 0
        self.epoch = 3
        self.now_ms = 50 * DAY_MS

    # -- writes --------------------------------------------------------------------------------------------------------

    def append(self, *records: tuple[bytes, bytes | None], producer: tuple[int, int] = (-1, -1)) -> None:
        self._append([(*record, None) for record in records], producer=producer, transactional=producer[0] >= 0)

    def commit(self, group: str, offset: int, partition: int = 0, producer: tuple[int, int] = (-1, -1)) -> None:
        self.append(
            (encode_offset_commit_key(group, "t", partition), committed(offset, self.now_ms)), producer=producer
        )

    def remove(self, group: str, partition: int = 0) -> None:
        self.append((encode_offset_commit_key(group, "t", partition), None))

    def end_transaction(self, producer: tuple[int, int], *, commit: bool, coordinator_epoch: int = 1) -> None:
        marker = encode_end_txn_marker(EndTxnMarker(commit, coordinator_epoch))
        self._append([(*marker, None)], producer=producer, transactional=True, control=True)

    def generation(self, group: str, number: int, *members: str) -> None:
        joined = tuple(GroupMember(m, None, "client", "/127.0.0.1", 9000, 6000, b"sub", b"parts") for m in members)
        leader = members[0] if members else None
        value = GroupMetadataValue("consumer", number, "range" if members else None, leader, self.now_ms, joined)
        self.append(group_record(group, value)[:2])

    def remove_group(self, group: str) -> None:
        self.append(group_record(group, None)[:2])

    def _append(
        self, records: list[Any], *, producer: tuple[int, int], transactional: bool, control: bool = False
    ) -> None:
        data = encode_batch(
            records,
            base_offset=self.end,
            leader_epoch=self.epoch,
            timestamp_ms=self.now_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
            transactional=transactional,
            control=control,
        )
        self.batches.append(read_batch(data))
        self.end += len(records)

    # -- what happens to it --------------------------------------------------------------------------------------------

    def cut(self, offset: int) -> None:
        """An unclean election: the records from `offset` on are gone, and a new epoch begins."""
        self.batches = [batch for batch in self.batches if batch.end_offset <= offset]
        self.end = self.batches[-1].end_offset if self.batches else 0
        self.epoch += 1

    def compact(self, *, drop_tombstones: bool) -> None:
        """Keep the last record of each key, outside of transactions, and leave the last batch alone."""
        last: dict[bytes, int] = {}
        for batch in self.batches:
            if not batch.is_control and not batch.is_transactional:
                last.update({record.key: record.offset for record in batch.records() if record.key is not None})
        left: list[RecordBatch] = []
        for batch in self.batches[:-1]:
            if batch.is_control or batch.is_transactional:
                left.append(batch)
                continue
            kept = {
                record.offset
                for record in batch.records()
                if record.key is not None
                and last[record.key] == record.offset
                and not (drop_tombstones and record.value is None)
            }
            data = retain(batch, kept)
            if data:
                left.append(read_batch(data))
        self.batches = left + self.batches[-1:]

    # -- reads ---------------------------------------------------------------------------------------------------------

    def fetch(self, position: MirrorPosition, size: int = 1 << 20) -> FetchedRecords:
        """As a broker answers: the log ends of epochs first, then whole batches and a part of the next one."""
        if not self.start <= position.offset <= self.end:
            return FetchedRecords(PARTITION, 1, -1, None, b"")
        if position.epoch >= 0:
            ends = [batch for batch in self.batches if batch.leader_epoch <= position.epoch]
            later = [batch for batch in self.batches if batch.leader_epoch > position.epoch]
            epoch = ends[-1].leader_epoch if ends else -1
            end = later[0].base_offset if later else self.end
            if epoch < position.epoch or end < position.offset:
                return FetchedRecords(PARTITION, 0, self.end, (epoch, end), b"")
        data = b"".join(batch.data for batch in self.batches if batch.end_offset > position.offset)
        return FetchedRecords(PARTITION, 0, self.end, None, data[: max(size, self._first_bytes(position.offset))])

    def _first_bytes(self, offset: int) -> int:
        return next((len(batch.data) for batch in self.batches if batch.end_offset > offset), 0)

    def state(self) -> dict[str, Any]:
        """What a broker that loads this partition has."""
        groups = new_groups()
        replay(groups, self.batches)
        return shown(groups)


class MemoryWriter:
    """A log in memory. Implements `shard.ports.PartitionWriter`."""

    def __init__(self) -> None:
        self.batches: list[RecordBatch] = []

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else 0

    def append(
        self,
        records: list[Any],
        epoch: int,
        now_ms: int,
        producer: tuple[int, int] = (-1, -1),
        *,
        control: bool = False,
    ) -> None:
        data = encode_batch(
            records,
            base_offset=self.end_offset,
            leader_epoch=epoch,
            timestamp_ms=now_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
            transactional=producer[0] >= 0,
            control=control,
        )
        self.batches.append(read_batch(data))

    def append_imported(self, batch: RecordBatch, epoch: int) -> None:
        self.batches.append(read_batch(placed(batch, self.end_offset, epoch)))

    def confirm_read(self) -> int:
        return 0


class MirrorShard:
    """A shard over `writer`, loaded from what the log has, and a follower of one upstream partition."""

    def __init__(
        self,
        writer: MemoryWriter,
        epoch: int = 1,
        serves: Callable[[str], bool] = lambda _: False,
        consumers: ConsumerTables | None = None,
        now_ms: int = 1_000,
    ) -> None:
        self.writer = writer
        self.pod = FakePod()
        self.pod.now_ms = now_ms
        self.machine = new_machine(serves, consumers)
        replay(self.machine, writer.batches)
        self.shard = Shard(
            0,
            ReplayedState(self.machine),
            writer,
            epoch=epoch,
            scheduler=self.pod,
            events=self.pod,
            clock=self.pod,
            metrics=ShardMetrics(),
            commit_timeout_ms=5000,
        )
        self.shard.start_loading()
        self.shard.open_epoch(epoch)
        self.shard.activate()
        self.pod.turn()

    def ask(self, request: object) -> Any:
        asked = Asked()
        self.shard.submit(request, asked)
        self.pod.turn()
        self.shard.parked.committed(self.writer.end_offset)
        (answer,) = asked.got
        return answer

    def follow(self, upstream: Upstream, size: int = 1 << 20, retention_ms: int = DAY_MS) -> Verdict:
        """One round, as `pod.mirroring` makes it."""
        position = self.machine.position
        self.pod.now_ms = upstream.now_ms
        if position.offset < 0 and not position.clearing:
            begin = MirrorPosition(upstream.topic_id, upstream.start, -1, upstream.epoch, upstream.now_ms)
            assert self.ask(TakeInRequest(position.offset, (), begin)) == TakeInResponse()
            position = self.machine.position
        if is_another_topic(position, upstream.topic_id):
            return self._take_back(ReadAgain("another topic"))
        if is_doubtful(position, self.machine.has_strays, upstream.epoch):
            return self._take_back(ReadAgain("strays"))
        verdict = judge(position, upstream.epoch, upstream.fetch(position, size), upstream.now_ms, -1, retention_ms)
        if isinstance(verdict, ReadAgain):
            return self._take_back(verdict)
        if isinstance(verdict, TakeIn):
            response = self.ask(TakeInRequest(position.offset, verdict.batches, verdict.position))
            assert not response.problem
        return verdict

    def _take_back(self, verdict: ReadAgain) -> ReadAgain:
        while not self.ask(TakeBackRequest()).done:
            assert self.machine.position.clearing
        return verdict

    def follow_to_end(self, upstream: Upstream, size: int = 1 << 20) -> list[Verdict]:
        verdicts: list[Verdict] = []
        while not (verdicts and isinstance(verdicts[-1], Nothing) and verdicts[-1].at_end):
            verdicts.append(self.follow(upstream, size))
            assert not isinstance(verdicts[-1], Problem | LookAgain), verdicts[-1]
            assert len(verdicts) < 10_000, "it never comes to the end"
        return verdicts

    def state(self) -> dict[str, Any]:
        return shown(self.machine.groups)


def new_groups(
    serves: Callable[[str], bool] = lambda _: True, consumers: ConsumerTables | None = None
) -> GroupCoordinator:
    return GroupCoordinator(GroupConfig(), AnyTopic(), lambda: "suffix", serves, consumers)


def new_machine(
    serves: Callable[[str], bool] = lambda _: False, consumers: ConsumerTables | None = None
) -> MirrorCoordinator:
    routes = Routes(serves)
    return MirrorCoordinator(new_groups(routes.serves, consumers), routes, lambda: True)


def replay(machine: StateMachine, batches: list[RecordBatch]) -> None:
    decode = machine.new_decoder()
    state = ReplayedState(machine)
    for batch in batches:
        producer = (batch.producer_id, batch.producer_epoch) if batch.is_transactional else (-1, -1)
        if batch.is_control:
            state.replay_control(batch.records(), producer)
            continue
        for record in batch.records():
            change = decode(record.key, record.value)
            if not isinstance(change, UnknownRecord):
                machine.replay(change, record.offset, record.timestamp_ms, *producer)


def shown(groups: GroupCoordinator) -> dict[str, Any]:
    """The durable state without the places in the log, and without groups that have nothing left."""
    state = groups.durable_state()
    return {
        "groups": state.groups,
        "committed": {key: value for key, (_, value) in state.committed.items()},
        "pending": {key: value for key, (_, value) in state.pending.items()},
    }
