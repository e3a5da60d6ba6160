"""The calls of a re-shard to the partitions that this pod leads: close them to clients, fill new ones, open them again.

A Fence record in the log says which of these a partition is in. It is committed like every other record, so every later
leader finds it, with or without an operator. Re-shards are numbered: a partition that was opened in one is never closed
in it again, however late a call arrives. Source: docs/resharding.md, ADR 9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from muster_coordinator.calls import FenceRefusal
from muster_coordinator.errors import ErrorCode
from muster_coordinator.records.batch import CorruptBatchError, RecordBatch, iter_batches
from muster_coordinator.records.control import NOT_IMPORTING, Fence
from muster_coordinator.records.errors import RecordDecodeError, UnsupportedValueVersionError
from muster_coordinator.records.structs import BatchRecord, UnknownRecord
from muster_coordinator.shard.shard import Shard
from muster_coordinator.state_machine import Decoder

COMMIT_WAIT_S = 5.0
"""A fence whose record is not committed by then is refused, and the re-shard asks again."""

_Imported = tuple[RecordBatch, list[tuple[BatchRecord, Any]]]


class FenceRefusedError(Exception):
    """The call did nothing, for this reason."""

    def __init__(self, reason: FenceRefusal, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Fencing:
    """The calls of a re-shard. Every call returns the committed Fence record and can be repeated.

    Raises FenceRefusedError.
    """

    def __init__(self, shards: Mapping[int, Shard], partition_changed: Callable[[int], None]) -> None:
        self._shards = shards
        self._partition_changed = partition_changed

    async def close(self, partition: int, reshard: int, *, importing: bool) -> Fence:
        """Stop answering clients. `importing`: the partition is a new one and takes in records."""
        shard = self._shard(partition)
        fence = shard.replayed.fence
        if fence is not None and fence.reshard == reshard and fence.closed:
            return await self._committed(shard, fence)
        if fence is not None and fence.reshard >= reshard:
            raise FenceRefusedError(FenceRefusal.STALE, f"re-shard {fence.reshard} was here already")
        if importing and shard.machine.key_count:
            raise FenceRefusedError(FenceRefusal.NOT_EMPTY, f"partition {partition} has state")
        return await self._append(shard, Fence(reshard, closed=True, imported=0 if importing else NOT_IMPORTING))

    async def open(self, partition: int, reshard: int) -> Fence:
        """Answer clients again."""
        shard = self._shard(partition)
        fence = shard.replayed.fence
        if fence is None or fence.reshard != reshard:
            raise FenceRefusedError(FenceRefusal.STALE, f"re-shard {reshard} did not close partition {partition}")
        if not fence.closed:
            return await self._committed(shard, fence)
        return await self._append(shard, Fence(reshard, False, fence.imported, fence.complete))

    async def take_in(self, partition: int, reshard: int, position: int, data: bytes, *, last: bool) -> Fence:
        """Append batches of the new log after the first `position` records of it. `last`: these are the last ones. If
        the partition is at another position, nothing is appended: the returned record says how far it is.

        A leader that dies between the batches and the Fence record leaves batches that no Fence record counts. They
        are imported again: the same records at the end of the log change nothing.
        """
        shard = self._shard(partition)
        fence = shard.replayed.fence
        if fence is None or fence.reshard != reshard or fence.imported == NOT_IMPORTING or not fence.closed:
            raise FenceRefusedError(
                FenceRefusal.STALE, f"partition {partition} takes in nothing for re-shard {reshard}"
            )
        if fence.complete or fence.imported != position:
            return await self._committed(shard, fence)
        batches = _parse(data, position, shard.machine.new_decoder())
        imported = position + sum(batch.records_count for batch, _ in batches)
        return await self._append(shard, Fence(reshard, True, imported, last), batches)

    def _shard(self, partition: int) -> Shard:
        shard = self._shards.get(partition)
        if shard is None or not shard.can_append:
            raise FenceRefusedError(FenceRefusal.NOT_LEADER, f"this pod does not lead partition {partition}")
        return shard

    async def _append(self, shard: Shard, fence: Fence, batches: Sequence[_Imported] = ()) -> Fence:
        try:
            for batch, changes in batches:
                shift = shard.writer.end_offset - batch.base_offset
                shard.writer.append_imported(batch, shard.epoch)
                for record, change in changes:
                    shard.machine.replay(change, record.offset + shift, record.timestamp_ms)
            shard.append_fence(fence)
        except Exception as error:
            shard.fail_turn(error)
            raise FenceRefusedError(FenceRefusal.NOT_LEADER, f"partition {shard.partition} failed: {error}") from error
        return await self._committed(shard, fence)

    async def _committed(self, shard: Shard, fence: Fence) -> Fence:
        waiting = _Waiting()
        shard.answer_when_committed(waiting, fence)
        try:
            async with asyncio.timeout(COMMIT_WAIT_S):
                await waiting.done
        except TimeoutError:
            raise FenceRefusedError(FenceRefusal.NOT_COMMITTED, "no majority has it yet") from None
        shard.committed_fence = fence
        self._partition_changed(shard.partition)
        return fence


class _Waiting:
    """`shard.ports.Answer` of a call."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answer(self, response: object) -> None:
        if not self.done.done():  # else the caller has given up
            self.done.set_result(None)

    def refuse(self, code: ErrorCode) -> None:
        if not self.done.done():
            self.done.set_exception(
                FenceRefusedError(FenceRefusal.NOT_LEADER, "this pod stopped leading the partition")
            )


def _parse(data: bytes, position: int, decode: Decoder) -> list[_Imported]:
    """Returns the batches of `data` with their decoded records. Raises FenceRefusedError unless these are whole batches
    with dense offsets from `position` on, outside transactions, of record types that the coordinator knows."""
    found: list[_Imported] = []
    try:
        for batch in iter_batches(data):
            dense = batch.last_offset_delta + 1 == batch.records_count
            if batch.base_offset != position or not dense or batch.is_control or batch.is_transactional:
                raise FenceRefusedError(
                    FenceRefusal.INVALID, f"the batch at offset {batch.base_offset} does not follow"
                )
            changes = [(record, decode(record.key, record.value)) for record in batch.records()]
            if any(type(change) is UnknownRecord for _, change in changes):
                raise FenceRefusedError(
                    FenceRefusal.INVALID, f"the batch at offset {batch.base_offset} has an unknown record"
                )
            found.append((batch, changes))
            position = batch.end_offset
    except (CorruptBatchError, RecordDecodeError, UnsupportedValueVersionError) as error:
        raise FenceRefusedError(FenceRefusal.INVALID, str(error)) from error
    return found
