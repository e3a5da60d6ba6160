"""Asks a broker of the upstream where partitions begin or end, or what they have of a time."""

from __future__ import annotations

from muster_coordinator.partition_numbers import OFFSETS
from muster_coordinator.pod.mirroring.connection import UpstreamConnection
from muster_coordinator.requests.cluster import ListOffsetsRequest
from muster_coordinator.wire import k02_list_offsets

EARLIEST = -2
LATEST = -1
_READ_UNCOMMITTED = 0
_CONSUMER = -1


async def list_offsets(
    connection: UpstreamConnection, places: tuple[tuple[int, int, int], ...]
) -> dict[int, tuple[int, int]]:
    """(error code, offset) by partition of `__consumer_offsets`. `places`: (partition, leader epoch, timestamp). Raises
    UpstreamError."""
    found = await list_offsets_of(connection, ((OFFSETS.name, places),))
    return {partition: answer for (_, partition), answer in found.items()}


async def list_offsets_of(
    connection: UpstreamConnection, topics: tuple[tuple[str, tuple[tuple[int, int, int], ...]], ...]
) -> dict[tuple[str, int], tuple[int, int]]:
    """(error code, offset) by topic and partition; offset -1: there is none. Raises UpstreamError."""
    answer = await connection.ask(
        k02_list_offsets.API,
        k02_list_offsets.MIRROR_VERSION,
        k02_list_offsets.encode_request(ListOffsetsRequest(_CONSUMER, _READ_UNCOMMITTED, topics)),
        k02_list_offsets.decode_response,
    )
    return {
        (topic, partition): (code, offset)
        for topic, partitions in answer.topics
        for partition, code, _, offset, _ in partitions
    }
