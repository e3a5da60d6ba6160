"""Asks a broker of the upstream where partitions of `__consumer_offsets` begin or end."""

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
    """(error code, offset) by partition. `places`: (partition, leader epoch, timestamp). Raises UpstreamError."""
    request = ListOffsetsRequest(_CONSUMER, _READ_UNCOMMITTED, ((OFFSETS.name, places),))
    answer = await connection.ask(
        k02_list_offsets.API,
        k02_list_offsets.MIRROR_VERSION,
        k02_list_offsets.encode_request(request),
        k02_list_offsets.decode_response,
    )
    return {
        partition: (code, offset) for _, partitions in answer.topics for partition, code, _, offset, _ in partitions
    }
