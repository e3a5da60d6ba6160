"""One upstream partition that this pod follows, for one leadership of the partition that mirrors it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import structlog

from muster_coordinator.errors import ErrorCode
from muster_coordinator.mirror.bypasses import Bypass
from muster_coordinator.mirror.coordinator import MirrorCoordinator
from muster_coordinator.mirror.following import (
    LookAgain,
    Nothing,
    Problem,
    ReadAgain,
    TakeIn,
    is_another_topic,
    is_doubtful,
    judge,
)
from muster_coordinator.mirror.requests import (
    TakeBackRequest,
    TakeBackResponse,
    TakeInRequest,
    TakeInResponse,
)
from muster_coordinator.podapi.mirror import MirroredPartition
from muster_coordinator.records.mirror_position import FROM_START, MirrorPosition
from muster_coordinator.requests.upstream import FetchedRecords, PartitionToFetch
from muster_coordinator.settings import UpstreamSettings
from muster_coordinator.shard.ports import Clock
from muster_coordinator.shard.shard import Shard

logger = structlog.get_logger(__name__)


class Followed:
    """`partition`: the number that Kafka knows. `busy`: while the shard has not answered yet."""

    def __init__(
        self,
        partition: int,
        shard: Shard,
        machine: MirrorCoordinator,
        clock: Clock,
        settings: UpstreamSettings,
        advanced: Callable[[int], None],
        bypassed: Callable[[int, Iterable[Bypass]], None],
    ) -> None:
        """`advanced` is called with the partition when more of it was read, and is committed; `bypassed` with groups of
        Muster's that are used at the upstream."""
        self.partition = partition
        self.shard = shard
        self.epoch = shard.epoch
        self.busy: asyncio.Future[None] | None = None
        self.problem = ""
        self.high_watermark = -1
        self.restarts = 0
        self.machine = machine
        if settings.upstream_write_back_interval_ms:
            machine.bypasses.quiet = {each.group_id for each in machine.routes.by_group.values() if each.at_muster}
        self._clock = clock
        self._settings = settings
        self._advanced = advanced
        self._bypassed = bypassed
        self._at_end_ms = -1
        self._asked_epoch = -1
        self._rests_until_ms = 0
        self._must_read_again = ""

    @property
    def position(self) -> MirrorPosition:
        return self.machine.position

    @property
    def certain_offset(self) -> int:
        """Up to this offset the records read are those of the topic; -1: nothing is certain."""
        return -1 if self.machine.has_strays else self.position.offset

    @property
    def is_ready(self) -> bool:
        return self.busy is None and self._clock.monotonic_ms() >= self._rests_until_ms

    @property
    def needs_start(self) -> bool:
        """Somebody has to find out where the topic's partition starts (`begin`)."""
        return self.position.offset == FROM_START

    @property
    def bypassed(self) -> Mapping[str, Bypass]:
        """Groups of Muster's that have members at the upstream now."""
        return self.machine.bypasses.with_members if self.position.complete else {}

    def status(self) -> MirroredPartition:
        position = self.position
        lag = self.high_watermark - position.offset if min(self.high_watermark, position.offset) >= 0 else -1
        return MirroredPartition(
            partition=self.partition,
            position=position.offset,
            upstream_end=self.high_watermark,
            lag=max(lag, -1),
            complete=position.complete,
            records=self.machine.event_counts["mirror_records_taken_in"],
            read_again=self.restarts,
            problem=self.problem,
        )

    def failed(self, problem: str) -> None:
        """Rest for a moment. `problem`: what a person shall see."""
        if problem != self.problem:
            logger.warning("mirror_problem", partition=self.partition, problem=problem)
        self.problem = problem
        self._rests_until_ms = self._clock.monotonic_ms() + self._settings.upstream_fetch_wait_ms

    # -- before a fetch ------------------------------------------------------------------------------------------------

    def take_back_if_needed(self, topic_id: bytes, leader_epoch: int) -> bool:
        """True if what was read has to be taken back before anything can be read; then a part of it is."""
        position = self.position
        if not position.clearing and is_another_topic(position, topic_id):
            self._read_again("the topic is another one: it was deleted and created again, or the cluster is another")
        elif not position.clearing and is_doubtful(position, self.machine.has_strays, leader_epoch):
            self._read_again("leaders ended here and there at the same time: the last records may have been cut there")
        if not position.clearing and not self._must_read_again:
            return False
        self._submit(TakeBackRequest())
        return True

    def _read_again(self, reason: str) -> None:
        if not self._must_read_again:
            self.restarts += 1
            logger.error("mirror_reads_again", partition=self.partition, offset=self.position.offset, reason=reason)
        self._must_read_again = reason

    def begin(self, topic_id: bytes, start_offset: int, leader_epoch: int) -> None:
        """The upstream partition starts here."""
        now_ms = self._clock.wall_ms()
        position = MirrorPosition(topic_id, start_offset, leader_epoch=leader_epoch, since_ms=now_ms)
        self._submit(TakeInRequest(self.position.offset, (), position))

    def to_fetch(self, leader_epoch: int) -> PartitionToFetch:
        self._asked_epoch = leader_epoch
        return PartitionToFetch(self.partition, leader_epoch, self.position.offset, self.position.epoch)

    # -- after a fetch -------------------------------------------------------------------------------------------------

    def fetched(self, answer: FetchedRecords) -> bool:
        """Take what came of `to_fetch`. Returns whether Metadata has to be asked for again."""
        position, now_ms = self.position, self._clock.wall_ms()
        if not answer.error_code:
            self.high_watermark = answer.high_watermark
        verdict = judge(
            position, self._asked_epoch, answer, now_ms, self._at_end_ms, self._settings.upstream_delete_retention_ms
        )
        match verdict:
            case TakeIn():
                self._submit(TakeInRequest(position.offset, verdict.batches, verdict.position))
            case Nothing():
                self._at_end_ms = now_ms if verdict.at_end else self._at_end_ms
                self.problem = ""
            case ReadAgain():
                self._read_again(verdict.reason)
            case Problem():
                self.failed(verdict.reason)
            case LookAgain():
                self.failed(verdict.reason)
                return True
        return False

    def _submit(self, request: TakeInRequest | TakeBackRequest) -> None:
        self.busy = asyncio.get_running_loop().create_future()
        self.shard.submit(request, self)

    # -- shard.ports.Answer --------------------------------------------------------------------------------------------

    def answer(self, response: TakeInResponse | TakeBackResponse) -> None:
        if isinstance(response, TakeBackResponse):
            self._must_read_again = ""
        elif response.problem:
            self.failed(response.problem)
        else:
            self.problem = ""
            if self.position.offset >= self.high_watermark:
                self._at_end_ms = self._clock.wall_ms()
            self._advanced(self.partition)
            if self.position.complete:  # what was read last is what is so now
                self._bypassed(self.partition, self.machine.bypasses.news())
        self._done()

    def refuse(self, code: ErrorCode) -> None:
        self.failed(f"this pod could not append: {code.name}")
        self._done()

    def _done(self) -> None:
        busy, self.busy = self.busy, None
        if busy is not None and not busy.done():
            busy.set_result(None)
