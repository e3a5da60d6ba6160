"""When a checkpoint of a partition is taken, and how: of the state that is there, or as a load of its own.

A small state is packed before the event loop goes on, and written once all of it is committed. A large one would
change meanwhile: a second one is made then, in the background, from the checkpoint before and the committed records
behind it. That takes a fifth of a processor at most, half of one where more is written than that can keep up with, and
the memory of one partition at a time. A checkpoint is dropped when the log was cut, or a leadership ended, before its
end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec
import structlog

from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.groups.snapshot import SNAPSHOT_VERSION
from muster_coordinator.log.checkpoint import CheckpointHead, CheckpointWriter
from muster_coordinator.log.disk import Disk
from muster_coordinator.pod.chores.chore import Background
from muster_coordinator.replica.host import ReplicaHost
from muster_coordinator.replica.loading import load_log
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.shard.ports import Clock

__all__ = ["Checkpointer", "CheckpointerSettings"]

logger = structlog.get_logger(__name__)

PART_ENTRIES = 200
"""Groups or offsets in one part: well below a millisecond of work."""
PARTS_AT_ONCE = 4
"""A state of up to so many parts is packed without a pause, in less than two milliseconds."""
COMMITTED_WITHIN_S = 1.0
COMMIT_POLL_S = 0.02
REST = 4
"""Pauses last so many times as long as the work between them."""
BEHIND = 2
REST_BEHIND = 1
"""The same where so many times more than is due lies behind the last checkpoint: replay is not faster than commits of
ten offsets each, and a tail that grows for as long as the load lasts makes the start after a crash as long."""


@dataclass(frozen=True)
class CheckpointerSettings:
    """``interval_bytes``: so much of a log, and at least as much as its last checkpoint is large, must lie behind that
    before another one is taken: no more is ever written into checkpoints than into the log.
    """

    interval_bytes: int
    check_interval_ms: int = 5_000

    def due_bytes(self, checkpoint_bytes: int) -> int:
        """Of the log behind a checkpoint of that size: from there on the next one is due."""
        return max(self.interval_bytes, checkpoint_bytes)


class Checkpointer(Background):
    """``hosts``: those of the pod's replicas, as they are at any time; ``blocking`` runs a function in a thread."""

    kind = "checkpoint"

    def __init__(
        self,
        disk: Disk,
        settings: CheckpointerSettings,
        clock: Clock,
        hosts: dict[int, ReplicaHost],
        new_coordinator: Callable[[], GroupCoordinator],
        blocking: Callable[..., Awaitable[Any]],
    ) -> None:
        super().__init__(settings.check_interval_ms / 1000)
        self._disk = disk
        self._settings = settings
        self._clock = clock
        self._hosts = hosts
        self._new_coordinator = new_coordinator
        self._blocking = blocking
        self._last: dict[str, tuple[int, int]] = {}  # log id -> offset and bytes of its newest checkpoint
        self._rest_factor = REST

    async def work(self) -> None:
        for host in tuple(self._hosts.values()):
            due = self._due(host) if host.may_tend else 0
            if due >= 1:
                self._rest_factor = REST if due < BEHIND else REST_BEHIND
                await self.take(host)
        self.counts.lag_bytes = sum(
            host.replica.log.bytes_from(self._newest(host)[0]) for host in self._hosts.values() if host.may_tend
        )

    def _due(self, host: ReplicaHost) -> float:
        """How many times what makes a checkpoint due lies behind the last one."""
        offset, size = self._newest(host)
        return host.replica.log.bytes_from(offset) / self._settings.due_bytes(size)

    def _newest(self, host: ReplicaHost) -> tuple[int, int]:
        """Offset and bytes of the newest checkpoint; the start of the log if there is none."""
        replica = host.replica
        last = self._last.get(replica.log_id)
        if last is None:
            file = replica.open_checkpoint()
            last = (file.head.offset, file.size) if file is not None else (replica.log.start_offset, 0)
            if file is not None:
                file.close()
            self._last[replica.log_id] = last
        return last

    async def take(self, host: ReplicaHost) -> bool:
        """False if none was taken. Says why in the log."""
        started_ms = self._clock.monotonic_ms()
        try:
            async with host.log_lock:
                head = await self._take(host)
        except Exception as error:
            self.counts.failed += 1
            logger.warning("checkpoint_not_taken", partition=host.partition, error=f"{type(error).__name__}: {error}")
            return False
        if head is None:
            self.counts.given_up += 1
            return False
        self.counts.done += 1
        self.counts.byte_count += self._last[host.replica.log_id][1]
        duration_ms = self._clock.monotonic_ms() - started_ms
        logger.info("checkpoint_taken", partition=host.partition, offset=head.offset, duration_ms=duration_ms)
        return True

    async def _take(self, host: ReplicaHost) -> CheckpointHead | None:
        replica = host.replica
        generation = host.generation
        made = await self._at_hand(host, generation) or await self._built(host, generation)
        if made is None:
            return None
        offset, parts = made
        head = CheckpointHead(SNAPSHOT_VERSION, replica.log_id, offset, replica.log.epochs.epoch_at(offset - 1))
        writer = await self._blocking(CheckpointWriter, self._disk, replica.directory, head)
        try:
            if not await self._write(parts, writer, host, generation):
                return None
            self._last[replica.log_id] = (offset, writer.size)
        finally:
            await self._blocking(writer.discard)
        return head

    async def _at_hand(self, host: ReplicaHost, generation: int) -> tuple[int, Iterable[bytes]] | None:
        """Offset and parts of the replica's state; None where that is not small, or not committed in time."""
        at_rest = host.role.state_at_rest
        if at_rest is None or at_rest[1] <= self._newest(host)[0]:
            return None
        coordinator, offset = at_rest
        parts = list(islice(_parts(coordinator), PARTS_AT_ONCE + 1))
        if len(parts) > PARTS_AT_ONCE:
            return None
        until_s = self._clock.monotonic_s() + COMMITTED_WITHIN_S
        while host.commit_point < offset:
            if await self._paused_in_vain(COMMIT_POLL_S, host, generation) or self._clock.monotonic_s() >= until_s:
                return None
        return offset, parts

    async def _built(self, host: ReplicaHost, generation: int) -> tuple[int, Iterable[bytes]] | None:
        """The same of a state of its own, made of the log; None if that was given up, or the log is empty."""
        coordinator = self._new_coordinator()
        load = load_log(host.replica, coordinator, ShardMetrics(), to_offset=host.commit_point)
        offset = await self._load(load, host, generation)
        if offset is None or offset <= host.replica.log.start_offset:
            return None
        return offset, _parts(coordinator)

    async def _load(self, load: Generator[None, None, int], host: ReplicaHost, generation: int) -> int | None:
        """Up to which offset; None if it was given up."""
        while True:
            started_s = self._clock.monotonic_s()
            try:
                next(load)
            except StopIteration as end:
                offset: int = end.value
                return offset
            if await self._rest(started_s, host, generation):
                return None

    async def _write(
        self, parts: Iterable[bytes], writer: CheckpointWriter, host: ReplicaHost, generation: int
    ) -> bool:
        started_s = self._clock.monotonic_s()
        for part in parts:
            await self._blocking(writer.add, part)
            if await self._rest(started_s, host, generation):
                return False
            started_s = self._clock.monotonic_s()
        await self._blocking(writer.publish)
        return True

    async def _rest(self, started_s: float, host: ReplicaHost, generation: int) -> bool:
        """After the work since ``started_s``; like ``_paused_in_vain``."""
        worked_s = self._clock.monotonic_s() - started_s
        return await self._paused_in_vain(worked_s * self._rest_factor, host, generation)

    async def _paused_in_vain(self, seconds: float, host: ReplicaHost, generation: int) -> bool:
        """True if there is no use in going on: the pod stops, somebody else needs the log, a leadership ended."""
        return await self.pause(seconds) or host.log_wanted or host.generation != generation


def _parts(coordinator: GroupCoordinator) -> Iterable[bytes]:
    """Encoded as they are asked for."""
    return map(msgspec.msgpack.Encoder().encode, coordinator.snapshot(PART_ENTRIES))
