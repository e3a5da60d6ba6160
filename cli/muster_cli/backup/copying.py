"""Copies the segments of one log up to its cut from a pod into a store, checked batch by batch on the way.

Only one range of at most `SLICE_BYTES` is asked for at a time, and rests between ranges keep to the given rate, so a
pod's clients do not notice it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from muster_cli.backup.cut import LedLog
from muster_cli.backup.manifest import PartitionCut, SegmentFile
from muster_cli.backup.store import Store
from muster_cli.errors import CliError
from muster_coordinator.partition_numbers import partition_name
from muster_coordinator.podapi.client import PodApiError, PodClient
from muster_coordinator.podapi.segments import SegmentEntry
from muster_coordinator.records.batch import CorruptBatchError, read_batch

SLICE_BYTES = 1 << 20
TAIL_BYTES = 4096
SLICE_TIMEOUT_S = 30.0

Known = Mapping[tuple[str, int, int], SegmentFile]
"""Segments that the store has, by log id, base offset and size."""


class ChangedError(Exception):
    """The log is not what it was at the cut: it was compacted, or another pod has to be asked."""


class LogCopier:
    """Copies logs. `known`: it adds what it has copied. `sent`: bytes that went into the store."""

    def __init__(self, store: Store, known: dict[tuple[str, int, int], SegmentFile], spool: Path, rate: int) -> None:
        """`spool`: a file for one segment at a time. `rate`: bytes per second."""
        self.known = known
        self.sent = 0
        self._store = store
        self._spool = spool
        self._rate = rate

    async def copy(self, log: LedLog) -> PartitionCut:
        """Raises ChangedError: take the cut again; CliError: the log is damaged, or the store failed."""
        entry = log.entry
        try:
            files = [await self._segment(log, segment) for segment in entry.segments]
            await _compare(log)
        except PodApiError as error:
            raise ChangedError(f"{partition_name(entry.partition)}: {error}") from error
        ends = [entry.segments[-1].base_offset, *(file.end_offset for file in files)] if files else [0]
        if max(ends) != entry.commit_point:
            raise ChangedError(
                f"{partition_name(entry.partition)}: ends at {max(ends)}, it was cut at {entry.commit_point}"
            )
        return PartitionCut(
            entry.partition, entry.log_id, entry.commit_point, entry.leader_epoch, entry.epochs, tuple(files)
        )

    async def _segment(self, log: LedLog, segment: SegmentEntry) -> SegmentFile:
        key = (log.entry.log_id, segment.base_offset, segment.size)
        path = f"/v1/segments/{log.entry.partition}/{segment.base_offset}"
        known = self.known.get(key)
        if known is not None:
            start = max(0, segment.size - TAIL_BYTES)
            tail = await _range(log.pod, path, start, segment.size) if segment.size else b""
            if hashlib.sha256(tail).hexdigest() == known.tail:
                return known
        with self._spool.open("wb") as spool:
            file = await self._fetch(log, segment, path, spool)
        await asyncio.to_thread(self._store.write, file.name, self._spool)
        self.sent += file.size
        self.known[key] = file
        return file

    async def _fetch(self, log: LedLog, segment: SegmentEntry, path: str, spool: BinaryIO) -> SegmentFile:
        digest, batches, tail, position = hashlib.sha256(), Batches(segment.base_offset), b"", 0
        while position < segment.size:
            data = await _range(log.pod, path, position, min(position + SLICE_BYTES, segment.size))
            digest.update(data)
            try:
                batches.take(data)
            except CorruptBatchError as error:
                await _compare(log)  # a cleaner may have come between
                name = partition_name(log.entry.partition)
                raise CliError(f"{name}: segment {segment.base_offset} of {log.pod.pod} is damaged: {error}") from error
            spool.write(data)
            tail = (tail + data)[-TAIL_BYTES:]
            position += len(data)
            await asyncio.sleep(len(data) / self._rate)
        if batches.rest:
            raise ChangedError(f"{partition_name(log.entry.partition)}: the cut is inside of a batch")
        return SegmentFile(
            segment.base_offset,
            segment.size,
            batches.end_offset,
            digest.hexdigest(),
            hashlib.sha256(tail).hexdigest(),
        )


class Batches:
    """Checks the batches of a segment that comes in pieces: their CRCs, and that offsets rise."""

    def __init__(self, base_offset: int) -> None:
        self.end_offset = base_offset
        self.rest = b""
        """Bytes of a batch that has not come as a whole."""
        self._position = 0

    def take(self, data: bytes) -> None:
        """Raises CorruptBatchError, with the position in the segment."""
        buffer, at = self.rest + data, 0
        while True:
            try:
                batch = read_batch(buffer, at)
            except CorruptBatchError as error:
                if error.truncated:
                    break
                raise CorruptBatchError(self._position + at, error.reason) from error
            if batch.base_offset < self.end_offset:
                reason = f"a batch at offset {batch.base_offset} follows offset {self.end_offset}"
                raise CorruptBatchError(self._position + at, reason)
            self.end_offset = batch.end_offset
            at += len(batch.data)
        self.rest = buffer[at:]
        self._position += at


async def _range(pod: PodClient, path: str, start: int, end: int) -> bytes:
    """Raises PodApiError; ChangedError if the pod has less."""
    data = await pod.read(path, {"Range": f"bytes={start}-{end - 1}"}, SLICE_TIMEOUT_S)
    if len(data) != end - start:
        raise ChangedError(f"{path} of {pod.pod} has {len(data)} bytes from {start} on, not {end - start}")
    return data


async def _compare(log: LedLog) -> None:
    """Raises ChangedError unless the segments are those of the cut still; the last one may have grown."""
    listed = await log.pod.segments()
    now = next((each for each in listed.partitions if each.partition == log.entry.partition), None)
    if now is None or now.log_id != log.entry.log_id:
        raise ChangedError(f"{partition_name(log.entry.partition)} is not on {log.pod.pod} any more")
    sizes = {each.base_offset: each.size for each in now.segments}
    *closed, head = log.entry.segments
    if any(sizes.get(each.base_offset) != each.size for each in closed) or sizes.get(head.base_offset, -1) < head.size:
        raise ChangedError(f"{partition_name(log.entry.partition)} was compacted meanwhile")
