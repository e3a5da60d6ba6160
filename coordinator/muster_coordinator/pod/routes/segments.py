"""GET /v1/segments: the committed part of this pod's logs, read-only, for pipelines.

    GET /v1/segments                              JSON: partitions with their segments and committed sizes, and the
                                                  partitions that are here but not served yet
    GET /v1/segments/<partition>/<base offset>    the segment's bytes; a Range header asks for a part of them

A segment is served with the batches that only the journal has so far, so a reader sees every committed batch. Nothing
after the commit point is served, so bytes that a reader has got are never cut. A cleaner may replace a segment between
two requests: the ETag names the log id and the committed size, and a reader that goes on compares its last batch.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Container, Mapping

from aiohttp import web

from muster_coordinator.log.segments.partition_log import PartitionLog
from muster_coordinator.log.segments.segment import Segment
from muster_coordinator.podapi.segments import PartitionEntry, SegmentEntry, SegmentsAnswer
from muster_coordinator.podapi.server import json_answer
from muster_coordinator.replica.host import ReplicaHost
from muster_coordinator.states import OPEN_STATES

MAX_RANGE_BYTES = 8 << 20
"""Longest answer, in bytes. A longer range is cut, as RFC 9110 allows."""
_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{0,18})")


def segment_routes(hosts: Mapping[int, ReplicaHost], current: Callable[[], Container[int]]) -> list[web.RouteDef]:
    """`hosts`: the pod's replicas, as they are at each request. The list names only those of `current` partitions, of
    either topic, so neither what a re-shard has replaced nor what it has not finished.
    """
    api = _Api(hosts, current)
    return [
        web.get("/v1/segments", api.list),
        web.get(r"/v1/segments/{partition:\d{1,9}}/{base:\d{1,20}}", api.read),
    ]


class _Api:
    def __init__(self, hosts: Mapping[int, ReplicaHost], current: Callable[[], Container[int]]) -> None:
        self._hosts = hosts
        self._current = current

    async def list(self, request: web.Request) -> web.Response:
        listed = self._current()
        hosts = [host for partition, host in sorted(self._hosts.items()) if partition in listed]
        served = tuple(_partition(host) for host in hosts if _is_served(host))
        return json_answer(SegmentsAnswer(served, tuple(host.partition for host in hosts if _is_unserved(host))))

    async def read(self, request: web.Request) -> web.Response:
        """404: the segment is not here (any more); 416: the range begins after the committed bytes."""
        host = self._hosts.get(int(request.match_info["partition"]))
        if host is None or not _is_served(host):
            raise web.HTTPNotFound(text="no log of this partition is served here")
        log = host.replica.log
        segment = next((one for one in log.segments if one.base_offset == int(request.match_info["base"])), None)
        if segment is None:
            raise web.HTTPNotFound(text="the log has no such segment")
        size = _committed_bytes(log, segment, host.commit_point)
        start, end = _range(request.headers.get("Range", ""), size)
        body = await _bytes(log, segment, start, end)
        headers = {"Content-Range": f"bytes {start}-{end - 1}/{size}", "ETag": f'"{host.replica.log_id}-{size}"'}
        return web.Response(status=206, body=body, headers=headers, content_type="application/octet-stream")


def _is_served(host: ReplicaHost) -> bool:
    return host.replica.is_open and host.commit_point >= 0


def _is_unserved(host: ReplicaHost) -> bool:
    """Its log is being opened or is damaged, or no leader has said yet up to where it is committed."""
    return not _is_served(host) and not (host.replica.is_open and host.replica.never_used)


def _partition(host: ReplicaHost) -> PartitionEntry:
    log, commit_point = host.replica.log, host.commit_point
    segments = tuple(
        SegmentEntry(each.base_offset, _committed_bytes(log, each, commit_point))
        for each in log.segments
        if each.base_offset <= commit_point
    )
    epochs = tuple(each for each in log.epochs.entries if each[1] < commit_point)
    shard = host.shard
    leads = shard.epoch if shard is not None and shard.state in OPEN_STATES else -1
    return PartitionEntry(host.replica.partition, host.replica.log_id, commit_point, epochs, segments, leads)


def _committed_bytes(log: PartitionLog, segment: Segment, commit_point: int) -> int:
    """Committed bytes of the segment, with those of its batches that are in memory only."""
    pending = segment.pending_from(-1)
    if any(segment.base_offset < later.base_offset <= commit_point for later in log.segments):
        return segment.size + sum(map(len, pending))
    position = segment.position_near(commit_point)
    for info in segment.infos(position):
        if info.end_offset > commit_point:
            return info.position
        position = info.position + info.size
    if position < segment.size:
        return position  # bytes that are no batch: nothing after them can be read
    committed = len(pending) - len(segment.pending_from(commit_point))
    return segment.size + sum(map(len, pending[:committed]))


def _range(header: str, size: int) -> tuple[int, int]:
    """Raises HTTPRequestRangeNotSatisfiable."""
    match = _RANGE.fullmatch(header)
    start = int(match[1]) if match else 0
    end = int(match[2]) + 1 if match and match[2] else size
    end = min(end, size, start + MAX_RANGE_BYTES)
    if start >= end:
        raise web.HTTPRequestRangeNotSatisfiable(headers={"Content-Range": f"bytes */{size}"})
    return start, end


async def _bytes(log: PartitionLog, segment: Segment, start: int, end: int) -> bytes:
    """Take what is in memory now and read the rest in a thread, while the log holds the segment against the cleaner."""
    on_disk = segment.size
    memory = b"".join(segment.pending_from(-1))[max(0, start - on_disk) : max(0, end - on_disk)]
    if start >= on_disk:
        return memory
    with log.holds:
        return await asyncio.to_thread(segment.read, min(end, on_disk) - start, start) + memory
