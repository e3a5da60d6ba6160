"""`muster reshard` of a running cluster: ask for it, and while the operator keeps it closed, write the new logs.

The operator owns the phases (docs/resharding.md). This command reads the old logs from the pods, has
`muster_pipeline.reshard` write and verify the new ones, and gives them to the leaders of the new partitions. Ended at
any time and started again, it goes on: what is read and written lies in the working directory, how much the new
partitions have taken in is in their logs.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path

import aiohttp
import msgspec

from muster_cli.errors import CliError
from muster_cli.progress import Amount
from muster_cli.reshard.site import Site
from muster_coordinator.podapi.client import PodApiError, PodClient, new_session
from muster_coordinator.podapi.fields import ADDRESSEE_HEADER
from muster_coordinator.podapi.models import FenceStatus, ReplicaStatus
from muster_coordinator.records.batch import iter_batches
from muster_coordinator.states import ReplicaRole
from muster_operator.api.models import ReshardPhase, ReshardStatus
from muster_pipeline.reshard.job import Summary, read_summary, reshard
from muster_pipeline.reshard.writer import log_directory

__all__ = ["abort", "reshard_cluster"]

POLL_S = 0.25
CALL_TIMEOUT_S = 10.0
ASK_TIMEOUT_S = 1.0
CHUNK_BYTES = 256 << 10
"""Of records that a pod takes in at once: decoding them takes it some tens of milliseconds."""
AT_ONCE = 4
"""Partitions that are read or filled at the same time."""

_OVER = (ReshardPhase.DONE, ReshardPhase.ABORTED)
_FROM_COPYING_ON = (ReshardPhase.COPYING, ReshardPhase.OPENING, ReshardPhase.DONE)
_PASSING = ("NotLeader", "NotCommitted")
"""Why a pod takes nothing in now, and another one, or the same later, may."""


class _Leader(msgspec.Struct):
    pod: str
    address: str
    status: ReplicaStatus
    token: int
    """Fencing token of the operator that the pod listens to, at the time at which it was asked."""


async def reshard_cluster(
    site: Site, partitions: int, work: Path, leave_out: Sequence[str], segment_bytes: int, progress: Amount
) -> Summary | None:
    """None: it has so many partitions already. Raises CliError, and what the job raises."""
    topic = await site.topic()
    reshard = topic.status.reshard
    if reshard is None or reshard.phase in (*_OVER, ReshardPhase.ABORTING) or reshard.partitions != partitions:
        if topic.layout.partitions == partitions and (reshard is None or reshard.phase in _OVER):
            return None
        reshard = await _begin(site, partitions)
    reshard = await _until(site, reshard.base, _FROM_COPYING_ON, progress)
    async with new_session() as http:
        run = _Run(site, http, reshard, work, progress)
        if reshard.phase is ReshardPhase.COPYING:
            await run.write(leave_out, segment_bytes)
            await run.fill()
        await _until(site, reshard.base, (ReshardPhase.DONE,), progress)
        return run.end()


async def _begin(site: Site, partitions: int) -> ReshardStatus:
    """What was taken back is begun again only for a changed topic, so an old wish is withdrawn first."""
    if (await site.topic()).spec.reshard is not None:
        await site.ask(None)
    await site.ask(partitions)
    generation = (await site.topic()).metadata.generation
    while True:
        reshard = (await site.topic()).status.reshard
        if reshard is not None and reshard.generation >= generation:
            return reshard
        await asyncio.sleep(POLL_S)


async def abort(site: Site, progress: Amount) -> bool:
    """Take a re-shard back; False: none is under way. Raises CliError: it cannot be taken back any more."""
    reshard = (await site.topic()).status.reshard
    if reshard is None or reshard.phase in _OVER:
        return False
    await site.ask(None)
    ended = await _until(site, reshard.base, (ReshardPhase.ABORTED, ReshardPhase.DONE), progress, aborting=True)
    if ended.phase is ReshardPhase.DONE:
        raise CliError("the new partitions serve already: re-shard back instead")
    return True


async def _until(
    site: Site, base: int, phases: Sequence[ReshardPhase], progress: Amount, *, aborting: bool = False
) -> ReshardStatus:
    while True:
        reshard = (await site.topic()).status.reshard
        if reshard is None or reshard.base != base:
            raise CliError("another re-shard has begun meanwhile")
        if reshard.total:
            progress(f"{reshard.phase.value.lower()} (partitions)", reshard.ready, reshard.total)
        if reshard.phase in phases:
            return reshard
        if reshard.phase in (ReshardPhase.ABORTING, ReshardPhase.ABORTED) and not aborting:
            raise CliError(f"the re-shard was taken back: {reshard.message}")
        await asyncio.sleep(POLL_S)


class _Run:
    """One re-shard, in `work/reshard-<its number>`."""

    def __init__(
        self, site: Site, http: aiohttp.ClientSession, reshard: ReshardStatus, work: Path, progress: Amount
    ) -> None:
        self._site = site
        self._http = http
        self._reshard = reshard
        self._root = work / f"reshard-{reshard.base}"
        self._new = self._root / "new"
        self._leaders: dict[int, _Leader] = {}  # that have taken something in
        self._asking = asyncio.Lock()
        self._asked_at = -POLL_S
        self._said: list[list[_Leader]] = []
        self._progress = progress

    # The old logs, and the new ones from them

    async def write(self, leave_out: Sequence[str], segment_bytes: int) -> None:
        """The new logs, here, unless an earlier run has written them."""
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
            leave_out=leave_out,
            segment_bytes=segment_bytes,
            progress=self._progress,
        )

    def end(self) -> Summary | None:
        """What was written, which is here no more; None if that was not here."""
        summary = read_summary(self._new) if self._new.exists() else None
        shutil.rmtree(self._root, ignore_errors=True)
        return summary

    async def _read_old(self, old: Path) -> None:
        """All or nothing gets its name: the fence stands, so a log that was read is as it will ever be."""
        making = old.with_name("old.partial")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        indexes = (await self._site.topic()).layout.indexes
        done = 0

        async def read(index: int) -> None:
            nonlocal done
            await self._repeat(lambda: self._read_log(index, making))
            done += 1
            self._progress("reading (partitions)", done, len(indexes))

        await self._each(indexes, read)
        making.rename(old)

    async def _read_log(self, index: int, making: Path) -> bool:
        """From the leader, up to its commit point, which is behind the fence. False: try again."""
        leader = await self._leader(index)
        if leader is None or leader.status.fence is None or not leader.status.fence.closed:
            return False
        directory = log_directory(making, index)
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
        return await self._segments(leader, index) == before  # else a cleaner was here

    async def _segments(self, leader: _Leader, index: int) -> list[tuple[int, int]] | None:
        """(base offset, committed bytes); None: the pod has restarted, and knows less to be committed than it said."""
        listed = msgspec.json.decode(await self._get(leader, "/v1/segments", {}))["partitions"]
        found = next((each for each in listed if each["partition"] == index), None)
        if found is None or found["commitPoint"] < leader.status.high_watermark:
            return None
        return [(each["baseOffset"], each["size"]) for each in found["segments"]]

    async def _get(self, leader: _Leader, path: str, headers: dict[str, str]) -> bytes:
        timeout = aiohttp.ClientTimeout(total=CALL_TIMEOUT_S)
        headers = {ADDRESSEE_HEADER: leader.pod, **headers}
        async with self._http.get(f"http://{leader.address}{path}", headers=headers, timeout=timeout) as answer:
            answer.raise_for_status()
            return await answer.read()

    # The new partitions

    async def fill(self) -> None:
        """Until each has all of its new log. Raises CliError."""
        numbers = range(self._reshard.partitions)
        sizes = [sum(each.stat().st_size for each in _segments_of(log_directory(self._new, n))) for n in numbers]
        filled = [0] * len(sizes)

        async def fill(number: int) -> None:
            imported = 0
            for position, end, batches, last in _chunks(log_directory(self._new, number)):
                if end > imported or last:
                    imported = (await self._take_in(number, position, batches, last)).imported
                if imported < end:
                    raise CliError(f"new partition {number} has taken in {imported} records of {end}")
                filled[number] += len(batches)
                self._progress("filling", sum(filled), sum(sizes))

        await self._each(numbers, fill)

    async def _take_in(self, number: int, position: int, batches: bytes, last: bool) -> FenceStatus:
        """How far the partition is then."""
        index, base = self._reshard.base + number, self._reshard.base
        found: list[FenceStatus] = []

        async def once() -> bool:
            leader = self._leaders.get(index) or await self._leader(index)
            if leader is None:
                return False
            pod = PodClient(self._http, leader.pod, leader.address)
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
                self._leaders[index] = leader
                found.append(result.fence)
            elif result.reason not in _PASSING:
                raise CliError(f"new partition {number} takes nothing in: {result.message}")
            else:
                self._leaders.pop(index, None)
            return result.fence is not None

        await self._repeat(once, lambda: self._leaders.pop(index, None))
        return found[0]

    # Pods come and go meanwhile

    async def _repeat(self, once: Callable[[], Awaitable[bool]], failed: Callable[[], object] = lambda: None) -> None:
        """Until it is done. Raises CliError when the re-shard is taken back."""
        while True:
            try:
                if await once():
                    return
            except (PodApiError, aiohttp.ClientError, OSError, TimeoutError):
                failed()
            await asyncio.sleep(POLL_S)
            await _until(self._site, self._reshard.base, (ReshardPhase.COPYING,), lambda *_: None)

    async def _each(self, items: Iterable[int], work: Callable[[int], Awaitable[None]]) -> None:
        """Some at a time; the first error ends them all."""
        limit = asyncio.Semaphore(AT_ONCE)

        async def limited(item: int) -> None:
            async with limit:
                await work(item)

        try:
            async with asyncio.TaskGroup() as group:
                for item in items:
                    group.create_task(limited(item))
        except* CliError as errors:
            raise errors.exceptions[0] from None

    async def _leader(self, index: int) -> _Leader | None:
        """Who says that it leads the partition, in the highest epoch."""
        async with self._asking:
            if time.monotonic() - self._asked_at > POLL_S:
                pods = await self._site.pods()
                self._said = await asyncio.gather(*(self._ask(name, address) for name, address in pods.items()))
                self._asked_at = time.monotonic()
        led = [each for said in self._said for each in said if each.status.partition == index]
        return max(led, key=lambda each: each.status.leader_epoch, default=None)

    async def _ask(self, name: str, address: str) -> list[_Leader]:
        try:
            status = await PodClient(self._http, name, address).status(ASK_TIMEOUT_S)
        except PodApiError:
            return []  # what it led is led elsewhere, or waits for it
        token = max(status.fencing_token, 0)
        return [_Leader(name, address, each, token) for each in status.partitions if each.role is ReplicaRole.LEADER]


def _segments_of(log: Path) -> list[Path]:
    return sorted(log.glob("*.log"))


def _chunks(log: Path) -> Iterator[tuple[int, int, bytes, bool]]:
    """(first offset, offset behind, whole batches, whether no more follow): the same at every run, one at least."""
    position, parts, size, end = 0, list[bytes](), 0, 0
    for segment in _segments_of(log):
        for batch in iter_batches(segment.read_bytes()):
            if parts and size + len(batch.data) > CHUNK_BYTES:
                yield position, end, b"".join(parts), False
                position, parts, size = end, [], 0
            parts.append(batch.data)
            size, end = size + len(batch.data), batch.end_offset
    yield position, end, b"".join(parts), True
