"""The copy of a closed topic: old logs are read from pods, and new ones written and given to their leaders."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path

import aiohttp
import msgspec

from muster_cli.errors import CliError
from muster_cli.progress import Amount
from muster_cli.reshard.leaders import Leader, Leaders
from muster_cli.reshard.phases import FROM_COPYING_ON, POLL_S, until
from muster_cli.reshard.site import Site
from muster_coordinator.calls import FenceRefusal
from muster_coordinator.partition_numbers import partition_name, topic_of
from muster_coordinator.podapi.client import PodApiError, PodClient
from muster_coordinator.podapi.models import FenceStatus
from muster_coordinator.records.batch import iter_batches
from muster_operator.api.models import ReshardPhase, ReshardStatus
from muster_pipeline.reshard.job import Summary, read_summary, reshard
from muster_pipeline.reshard.writer import log_directory

CALL_TIMEOUT_S = 10.0
CHUNK_BYTES = 256 << 10
"""Bytes of records in one call that fills a partition. The pod decodes them in some tens of milliseconds."""
AT_ONCE = 4
"""Partitions that are read or filled at the same time."""

_RETRIED = (FenceRefusal.NOT_LEADER, FenceRefusal.NOT_COMMITTED)
"""Reasons for which a pod takes no records now, although it or another pod may take them later."""


class Copy:
    """The copy of one re-shard, in the directory `work/reshard-<base>`.

    A run that is interrupted and started again continues: the directory keeps what was read and written, and the logs
    of the new partitions tell how far they are filled.
    """

    def __init__(
        self, site: Site, http: aiohttp.ClientSession, reshard: ReshardStatus, work: Path, progress: Amount
    ) -> None:
        self._site = site
        self._http = http
        self._reshard = reshard
        self._topic = topic_of(reshard.base).name
        self._root = work / f"reshard-{reshard.base}"
        self._new = self._root / "new"
        self._leaders = Leaders(site, http)
        self._filled_by: dict[int, Leader] = {}  # leaders that have taken records, by partition
        self._progress = progress

    # The old logs, and the new ones that are made from them

    async def write(self, leave_out: Sequence[str], segment_bytes: int) -> None:
        """Write the new logs to the directory, unless an earlier run has done so. Raises PipelineError."""
        old = self._root / "old"
        if self._new.exists():
            return
        if not old.exists():
            await self._read_old(old)
        await asyncio.to_thread(
            reshard,
            [str(old)],
            self._new,
            self._reshard.partitions,
            topic=self._topic,
            leave_out=leave_out,
            segment_bytes=segment_bytes,
            progress=self._progress,
        )

    def end(self) -> Summary | None:
        """Remove the directory, and return the summary of what was written; None if another machine wrote it."""
        summary = read_summary(self._new) if self._new.exists() else None
        shutil.rmtree(self._root, ignore_errors=True)
        return summary

    async def _read_old(self, old: Path) -> None:
        """Read all old logs, which do not change while their partitions are closed. The directory is renamed last."""
        making = old.with_name("old.partial")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        indexes = (await self._site.topic()).layout.indexes
        done = 0

        async def read(index: int) -> None:
            nonlocal done
            if not await self._repeat(lambda: self._read_log(index, making)):
                raise CliError("another command has filled the new partitions meanwhile")
            done += 1
            self._progress("reading (partitions)", done, len(indexes))

        await self._each(indexes, read)
        making.rename(old)

    async def _read_log(self, index: int, making: Path) -> bool:
        """Read one log from its leader, up to the commit point, which includes the fence. False: try again."""
        leader = await self._leaders.find(index)
        if leader is None or leader.status.fence is None or not leader.status.fence.closed:
            return False
        directory = making / partition_name(index)
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        before = await self._segments(leader, index)
        if before is None:
            return False
        for base, size in before:
            with (directory / f"{base:020d}.log").open("wb") as file:
                while file.tell() < size:
                    where = {"Range": f"bytes={file.tell()}-{size - 1}"}
                    path = f"/v1/segments/{index}/{base}"
                    file.write(await self._get(leader, path, where))
        return await self._segments(leader, index) == before  # else the log was cleaned meanwhile

    async def _segments(self, leader: Leader, index: int) -> list[tuple[int, int]] | None:
        """(base offset, committed bytes) of each segment. None if the pod restarted and knows a lower commit point."""
        listed = msgspec.json.decode(await self._get(leader, "/v1/segments", {}))["partitions"]
        found = next((each for each in listed if each["partition"] == index), None)
        if found is None or found["commitPoint"] < leader.status.high_watermark:
            return None
        return [(each["baseOffset"], each["size"]) for each in found["segments"]]

    async def _get(self, leader: Leader, path: str, headers: dict[str, str]) -> bytes:
        pod = PodClient(self._http, leader.pod, leader.address, self._site.tls)
        return await pod.read(path, headers, timeout_s=CALL_TIMEOUT_S)

    # The new partitions

    async def fill(self) -> None:
        """Give each new partition its whole log. Raises CliError."""
        numbers = range(self._reshard.partitions)
        sizes = [sum(each.stat().st_size for each in _segments_of(self._log_of(n))) for n in numbers]
        filled = [0] * len(sizes)

        async def fill(number: int) -> None:
            imported = 0
            for position, end, batches, last in chunks(self._log_of(number)):
                if end > imported or last:
                    fence = await self._take_in(number, position, batches, last)
                    if fence is None:
                        return
                    imported = fence.imported
                if imported < end:
                    raise CliError(f"new partition {number} has taken in {imported} records of {end}")
                filled[number] += len(batches)
                self._progress("filling", sum(filled), sum(sizes))

        await self._each(numbers, fill)

    def _log_of(self, number: int) -> Path:
        return log_directory(self._new, number, self._topic)

    async def _take_in(self, number: int, position: int, batches: bytes, last: bool) -> FenceStatus | None:
        """Give a partition these batches, and return its fence with the end of what it has; None if all new partitions
        are complete. Raises CliError."""
        index, base = self._reshard.base + number, self._reshard.base
        found: list[FenceStatus] = []

        async def once() -> bool:
            leader = self._filled_by.get(index) or await self._leaders.find(index)
            if leader is None:
                return False
            pod = PodClient(self._http, leader.pod, leader.address, self._site.tls)
            result = await pod.take_in(
                index,
                batches,
                token=leader.token,
                reshard=base,
                position=position,
                last=last,
                timeout_s=CALL_TIMEOUT_S,
            )
            if result.fence is not None:
                self._filled_by[index] = leader
                found.append(result.fence)
            elif result.reason not in _RETRIED:
                raise CliError(f"new partition {number} takes nothing in: {result.message}")
            else:
                self._filled_by.pop(index, None)
            return result.fence is not None

        return found[0] if await self._repeat(once, lambda: self._filled_by.pop(index, None)) else None

    # Pods come and go during the copy

    async def _repeat(self, once: Callable[[], Awaitable[bool]], failed: Callable[[], object] = lambda: None) -> bool:
        """Call `once` until it returns True, and `failed` after each error.

        False: the operator has gone on, because all new partitions are complete; the last call may have done it, and
        its answer been late. Raises CliError if the re-shard is taken back.
        """
        while True:
            try:
                if await once():
                    return True
            except (PodApiError, aiohttp.ClientError, OSError, TimeoutError):
                failed()
            await asyncio.sleep(POLL_S)
            reached = await until(self._site, self._reshard.base, FROM_COPYING_ON, lambda *_: None)
            if reached.phase is not ReshardPhase.COPYING:
                return False

    async def _each(self, items: Iterable[int], work: Callable[[int], Awaitable[None]]) -> None:
        """Call `work` for all items, `AT_ONCE` at a time. The first error ends all of them."""
        limit = asyncio.Semaphore(AT_ONCE)

        async def limited(item: int) -> None:
            async with limit:
                await work(item)

        try:
            async with asyncio.TaskGroup() as group:
                for item in items:
                    group.create_task(limited(item))
        except ExceptionGroup as errors:  # with `except*` it would stay a group
            refused, others = errors.split(CliError)
            if refused is None or others is not None:
                raise
            raise refused.exceptions[0] from None


def _segments_of(log: Path) -> list[Path]:
    return sorted(log.glob("*.log"))


def chunks(log: Path) -> Iterator[tuple[int, int, bytes, bool]]:
    """(first offset, offset after the last, whole batches, whether it is the last chunk): the same in every run."""
    position, parts, size, end = 0, list[bytes](), 0, 0
    for segment in _segments_of(log):
        for batch in iter_batches(segment.read_bytes()):
            if parts and size + len(batch.data) > CHUNK_BYTES:
                yield position, end, b"".join(parts), False
                position, parts, size = end, [], 0
            parts.append(batch.data)
            size, end = size + len(batch.data), batch.end_offset
    yield position, end, b"".join(parts), True
