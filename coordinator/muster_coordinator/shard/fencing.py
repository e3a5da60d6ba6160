"""What a re-shard does to the partitions that this pod leads: close them to clients, fill new ones, open them again.

A Fence record in the log says which it is, so it is committed like everything else and every later leader finds it, an
operator or not. Re-shards are numbered: what was opened in one is never closed in it again, however late a call comes.
Source: docs/resharding.md, ADR 9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.batch import BatchRecord, CorruptBatchError, RecordBatch, iter_batches
from muster_coordinator.records.control import NOT_IMPORTING, Fence
from muster_coordinator.records.decode import Change, RecordDecodeError, UnknownRecord, decode_record
from muster_coordinator.records.errors import UnsupportedValueVersionError
from muster_coordinator.shard.ports import Clock
from muster_coordinator.shard.shard import Shard

__all__ = ["FenceRefusedError", "Fencing"]

COMMIT_WAIT_S = 5.0

_Imported = tuple[RecordBatch, list[tuple[BatchRecord, Change]]]


class FenceRefusedError(Exception):
    """The call does nothing; ``reason`` is a stable code."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Fencing:
    """Every call returns the committed Fence record, and can be repeated. Raises FenceRefusedError:

    NotLeader       this pod does not lead the partition, or stopped leading it meanwhile: ask the leader
    NotCommitted    no majority has it yet: repeat
    Stale           a later re-shard, or a later step of this one, was here already
    NotEmpty        a partition with groups shall take in records
    Invalid         the bytes are no batches that a re-shard writes
    """

    def __init__(self, shards: Mapping[int, Shard], clock: Clock, partition_changed: Callable[[int], None]) -> None:
        self._shards = shards
        self._clock = clock
        self._partition_changed = partition_changed

    async def close(self, partition: int, reshard: int, *, importing: bool) -> Fence:
        """No client is answered any more. ``importing``: the partition is a new one, and takes in records."""
        shard = self._shard(partition)
        fence = shard.coordinator.fence
        if fence is not None and fence.reshard == reshard and fence.closed:
            return await self._committed(shard, fence)
        if fence is not None and fence.reshard >= reshard:
            raise FenceRefusedError("Stale", f"re-shard {fence.reshard} was here already")
        if importing and not shard.coordinator.is_empty:
            raise FenceRefusedError("NotEmpty", f"partition {partition} has groups")
        return await self._append(shard, Fence(reshard, closed=True, imported=0 if importing else NOT_IMPORTING))

    async def open(self, partition: int, reshard: int) -> Fence:
        """Clients are answered again."""
        shard = self._shard(partition)
        fence = shard.coordinator.fence
        if fence is None or fence.reshard != reshard:
            raise FenceRefusedError("Stale", f"re-shard {reshard} did not close partition {partition}")
        if not fence.closed:
            return await self._committed(shard, fence)
        return await self._append(shard, Fence(reshard, False, fence.imported, fence.complete))

    async def take_in(self, partition: int, reshard: int, position: int, data: bytes, *, last: bool) -> Fence:
        """Append batches of the new log, of which ``position`` records were taken in before; with ``last`` no more
        follow. At another position nothing is done: the answer says how far the partition is.

        A leader that dies between batches and Fence record leaves batches that are not counted, and come once more: the
        same records again, at the end of the log, change nothing.
        """
        shard = self._shard(partition)
        fence = shard.coordinator.fence
        if fence is None or fence.reshard != reshard or fence.imported == NOT_IMPORTING or not fence.closed:
            raise FenceRefusedError("Stale", f"partition {partition} takes in nothing for re-shard {reshard}")
        if fence.complete or fence.imported != position:
            return await self._committed(shard, fence)
        batches = _parse(data, position)
        imported = position + sum(batch.records_count for batch, _ in batches)
        return await self._append(shard, Fence(reshard, True, imported, last), batches)

    def _shard(self, partition: int) -> Shard:
        shard = self._shards.get(partition)
        if shard is None or not shard.can_append:
            raise FenceRefusedError("NotLeader", f"this pod does not lead partition {partition}")
        return shard

    async def _append(self, shard: Shard, fence: Fence, batches: Sequence[_Imported] = ()) -> Fence:
        try:
            for batch, changes in batches:
                shift = shard.replica.end_offset - batch.base_offset
                shard.replica.append_imported(batch, shard.epoch)
                for record, change in changes:
                    shard.coordinator.replay(change, record.offset + shift, record.timestamp_ms)
            shard.replica.append_fence(shard.epoch, fence, self._clock.wall_ms())
            shard.coordinator.replay_fence(fence)
            shard.fence_changed()
        except Exception as error:
            shard.fail_turn(error)
            raise FenceRefusedError("NotLeader", f"partition {shard.partition} failed: {error}") from error
        return await self._committed(shard, fence)

    async def _committed(self, shard: Shard, fence: Fence) -> Fence:
        waiting = _Waiting()
        shard.answer_when_committed(waiting, fence)
        try:
            async with asyncio.timeout(COMMIT_WAIT_S):
                await waiting.done
        except TimeoutError:
            raise FenceRefusedError("NotCommitted", "no majority has it yet") from None
        shard.committed_fence = fence
        self._partition_changed(shard.partition)
        return fence


class _Waiting:
    """``shard.answers.Answer`` of a call."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answer(self, response: object) -> None:
        if not self.done.done():  # else the caller has given up
            self.done.set_result(None)

    def refuse(self, code: ErrorCode) -> None:
        if not self.done.done():
            self.done.set_exception(FenceRefusedError("NotLeader", "this pod stopped leading the partition"))


def _parse(data: bytes, position: int) -> list[_Imported]:
    """Whole batches with dense offsets from ``position`` on, outside transactions, of records that are known. All is
    looked at before anything is appended."""
    found: list[_Imported] = []
    try:
        for batch in iter_batches(data):
            dense = batch.last_offset_delta + 1 == batch.records_count
            if batch.base_offset != position or not dense or batch.is_control or batch.is_transactional:
                raise FenceRefusedError("Invalid", f"the batch at offset {batch.base_offset} is none that follows")
            changes = [(record, decode_record(record.key, record.value)) for record in batch.records()]
            if any(type(change) is UnknownRecord for _, change in changes):
                raise FenceRefusedError("Invalid", f"the batch at offset {batch.base_offset} has an unknown record")
            found.append((batch, changes))
            position = batch.end_offset
    except (CorruptBatchError, RecordDecodeError, UnsupportedValueVersionError) as error:
        raise FenceRefusedError("Invalid", str(error)) from error
    return found
