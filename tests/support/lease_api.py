"""The leases of a pod's API, given as a test says."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web

from muster_coordinator.podapi.leases import FenceEntry, LeasesAnswer, LeasesRequest, PartitionLease, RouteEntry
from muster_coordinator.records.partitioner import partition_for

PARTITIONS = 3
"""The number of partitions of the offsets topic at Muster."""


class PodApi:
    """`leads`: partitions for which it gives leases. Listens at 127.0.0.1."""

    def __init__(self, leads: Sequence[int] = range(PARTITIONS)) -> None:
        self.leads = leads
        self.lease_ms = 400
        self.epoch = 1
        self.status = 200
        self.movable: tuple[str, ...] = ()
        self.routes: dict[str, RouteEntry] = {}
        self.fences: dict[str, int] = {}
        self.asked: list[LeasesRequest] = []
        self.drained: set[int] = set()
        self.port = 0
        self.tls: ssl.SSLContext | None = None

    async def leases(self, request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read(), type=LeasesRequest)
        self.asked.append(asked)
        if self.status != 200:
            return web.Response(body=b'{"reason":"NothingMovable","message":"m"}', status=self.status)
        answers = []
        for each in asked.asks:
            if each.partition in self.leads:
                if each.leader_epoch == self.epoch:
                    self.drained |= each.drained
                here = [group for group in self.routes if partition_for(group, PARTITIONS) == each.partition]
                fences = [group for group in self.fences if partition_for(group, PARTITIONS) == each.partition]
                answers.append(
                    PartitionLease(
                        each.partition,
                        each.number,
                        self.epoch,
                        self.lease_ms,
                        tuple([self.routes[group] for group in here]),
                        tuple([FenceEntry(group, self.fences[group]) for group in fences]),
                    )
                )
        answer = LeasesAnswer(PARTITIONS, self.lease_ms, tuple(answers), self.movable)
        return web.Response(body=msgspec.json.encode(answer))

    def move(self, group: str, epoch: int, *, at_muster: bool) -> None:
        self.fences.pop(group, None)
        self.routes[group] = RouteEntry(group, epoch, at_muster)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[PodApi]:
        app = web.Application()
        app.router.add_post("/v1/leases", self.leases)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port, ssl_context=self.tls)
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()
