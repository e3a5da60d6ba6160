"""The leaders of partitions, as the pods themselves report them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import aiohttp
import msgspec

from muster_cli.reshard.phases import POLL_S
from muster_cli.reshard.site import Site
from muster_coordinator.podapi.client import PodApiError, PodClient
from muster_coordinator.podapi.models import ReplicaStatus
from muster_coordinator.states import ReplicaRole

ASK_TIMEOUT_S = 1.0


class Leader(msgspec.Struct):
    """A pod that leads a partition, the address of its API, and the replica as it reports it."""

    pod: str
    address: str
    status: ReplicaStatus
    token: int
    """Fencing token of the operator that the pod listens to, at the time at which it was asked."""


class Leaders:
    """Asks all pods of a site, at most every `POLL_S` seconds."""

    def __init__(self, site: Site, http: aiohttp.ClientSession) -> None:
        self._site = site
        self._http = http
        self._asking = asyncio.Lock()
        self._asked_at = -POLL_S
        self._answers: Sequence[Sequence[Leader]] = ()

    async def find(self, index: int) -> Leader | None:
        """The pod that leads the partition in the highest epoch; None if no pod reports that it leads it."""
        async with self._asking:
            if time.monotonic() - self._asked_at > POLL_S:
                pods = await self._site.pods()
                self._answers = await asyncio.gather(*(self._ask(name, address) for name, address in pods.items()))
                self._asked_at = time.monotonic()
        led = [each for answer in self._answers for each in answer if each.status.partition == index]
        return max(led, key=lambda each: each.status.leader_epoch, default=None)

    async def _ask(self, name: str, address: str) -> Sequence[Leader]:
        try:
            status = await PodClient(self._http, name, address, self._site.tls).status(ASK_TIMEOUT_S)
        except PodApiError:
            return ()  # another pod leads its partitions, or will
        token = max(status.fencing_token, 0)
        return [Leader(name, address, each, token) for each in status.partitions if each.role is ReplicaRole.LEADER]
