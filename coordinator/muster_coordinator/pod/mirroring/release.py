"""The release of Kafka that the upstream is, as groups of the consumer protocol follow it (docs/adr/0058): the lowest
that its brokers announce.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

import structlog

from muster_coordinator.groups.consumer.config import KafkaVersion
from muster_coordinator.pod.mirroring.connection import UpstreamConnection, UpstreamError
from muster_coordinator.wire import k18_api_versions
from muster_coordinator.wire.served import NEW_IN_4_4

logger = structlog.get_logger(__name__)

LOOK_EVERY = 240
"""The number of rests between two looks: a minute by default."""
LOOK_AGAIN_AFTER = 4
"""The number of rests until the next look while a broker has not answered."""


class Brokers(Protocol):
    """`upstream.UpstreamCluster` implements it."""

    @property
    def brokers(self) -> tuple[int, ...]: ...

    def for_ends(self, node_id: int) -> UpstreamConnection | None: ...


class UpstreamRelease:
    """`version`: 4.3 until every broker has announced a later one. While a broker does not answer, the version stays
    unless another one announces a lower."""

    def __init__(self) -> None:
        self.version = KafkaVersion.KAFKA_4_3

    async def follow(self, upstream: Brokers, rest_s: float) -> None:
        """Look at the upstream from time to time, and never return."""
        while True:
            known = await self.look(upstream)
            await asyncio.sleep((LOOK_EVERY if known else LOOK_AGAIN_AFTER) * rest_s)

    async def look(self, upstream: Brokers) -> bool:
        """Ask every broker that Metadata has named. Returns whether all have answered."""
        announced = [await _announced(upstream.for_ends(node_id)) for node_id in upstream.brokers]
        known = bool(announced) and None not in announced
        if KafkaVersion.KAFKA_4_3 in announced:
            self._is(KafkaVersion.KAFKA_4_3)
        elif known:
            self._is(KafkaVersion.KAFKA_4_4)
        return known

    def _is(self, version: KafkaVersion) -> None:
        if version is not self.version:
            logger.info("upstream_release_changed", before=self.version.value, now=version.value)
        self.version = version


async def _announced(connection: UpstreamConnection | None) -> KafkaVersion | None:
    """None: the broker does not answer."""
    if connection is None:
        return None
    try:
        served = await connection.ask(k18_api_versions.API, 0, b"", k18_api_versions.decode_response)
    except UpstreamError:
        return None
    return _release(served)


def _release(served: Iterable[tuple[int, int, int]]) -> KafkaVersion:
    highest = {key: version for key, _, version in served}
    is_4_4 = all(highest.get(api.key, -1) >= api.max_version for api in NEW_IN_4_4)
    return KafkaVersion.KAFKA_4_4 if is_4_4 else KafkaVersion.KAFKA_4_3
