"""Finds coordinators for groups that lost theirs: every known pod is asked, all lost groups in one request."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence

from tests.chaos.group import Group
from tests.chaos.requests import find_coordinators, metadata
from tests.support.kafka import KafkaClient

ASK_TIMEOUT_S = 0.3
RETRY_S, RETRY_MAX_S = 0.005, 0.02
"""Until a pod is asked again, twice as long each time: at most a fifth of what Kafka's clients wait by default
(`retry.backoff.ms`). A move is over after one or two; while a pod that died is replaced, 34 groups ask ten times.
"""
RECONNECT_S = 0.05
"""Until a pod that refused a connection is tried again: the default of `reconnect.backoff.ms` of Kafka's clients.
The other pods name a leader that died for some 50 ms more, and 34 groups that try it are a load of their own."""
REFRESH_S = 1.0
ANSWERS = (OSError, asyncio.IncompleteReadError, TimeoutError, AssertionError)


class Locator:
    """`pods`: every address that was ever named, in that order; others refer to them by index."""

    def __init__(self, bootstrap: Sequence[str]) -> None:
        self.pods: list[str] = list(bootstrap)
        self._bootstrap = tuple(bootstrap)
        self._known: dict[str, asyncio.Task[None]] = {}
        self._lost: dict[str, Group] = {}
        self._refused: dict[str, float] = {}  # when, by address
        self._someone_lost = asyncio.Event()
        self._connects: set[asyncio.Task[None]] = set()
        self._turn = itertools.count()

    def pod_index(self, address: str) -> int:
        if address not in self.pods:
            self.pods.append(address)
        return self.pods.index(address)

    def lost(self, group: Group) -> None:
        self._lost[group.name] = group
        self._someone_lost.set()

    def refused(self, address: str) -> None:
        self._refused[address] = time.monotonic()

    def _may_try(self, address: str) -> bool:
        refused_at = self._refused.get(address)
        return refused_at is None or time.monotonic() - refused_at >= RECONNECT_S

    async def run(self) -> None:
        """For ever: one asking task for each known pod; who is known comes from Metadata, as for Kafka's clients."""
        self._follow(self._bootstrap)
        try:
            while True:
                await asyncio.sleep(REFRESH_S)
                for task in self._known.values():
                    if task.done():
                        task.result()
                self._follow(await self._brokers())
        finally:
            tasks = [*self._known.values(), *self._connects]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def ask(self, group: str) -> str:
        """The address of a group's coordinator, from one of the pods; "" when that pod knows none."""
        addresses = list(self._known) or list(self._bootstrap)
        found = await self._ask(addresses[next(self._turn) % len(addresses)], [group])
        return found.get(group, "")

    def _follow(self, addresses: Sequence[str]) -> None:
        wanted = {*self._bootstrap, *addresses}
        for address in [each for each in self._known if each not in wanted]:
            self._known.pop(address).cancel()
        for address in wanted:
            if address not in self._known:
                self._known[address] = asyncio.create_task(self._keep_asking(address))

    async def _keep_asking(self, address: str) -> None:
        """On one connection, as Kafka's clients keep theirs."""
        client: KafkaClient | None = None
        retry_s = RETRY_S
        try:
            while True:
                await self._someone_lost.wait()
                waiting = [group for group in self._lost.values() if group.is_lost and not group.stopped]
                self._lost = {group.name: group for group in waiting}
                if not waiting:
                    self._someone_lost.clear()
                    retry_s = RETRY_S
                    continue
                client = await self._tell(client, address, waiting)
                await asyncio.sleep(retry_s if client is not None else RECONNECT_S)
                retry_s = min(2 * retry_s, RETRY_MAX_S)
        finally:
            if client is not None:
                client.writer.close()

    async def _tell(self, client: KafkaClient | None, address: str, waiting: Sequence[Group]) -> KafkaClient | None:
        """Send groups to the coordinators that the pod knows; the connection, if it is still of use."""
        found: dict[str, str] = {}
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                client = client or await _connect(address)
                found = await _coordinators(client, [group.name for group in waiting])
        except ANSWERS:
            if client is not None:
                client.writer.close()
            client = None
        for group in waiting:
            if group.name in found and self._may_try(found[group.name]):
                task = asyncio.create_task(group.connect(found[group.name]))
                self._connects.add(task)
                task.add_done_callback(self._connects.discard)
        return client

    async def _ask(self, address: str, groups: Sequence[str]) -> dict[str, str]:
        """As `_coordinators`, on a connection of its own."""
        async with asyncio.timeout(ASK_TIMEOUT_S):
            client = await _connect(address)
            try:
                return await _coordinators(client, groups)
            finally:
                client.writer.close()

    async def _brokers(self) -> list[str]:
        """The addresses of all brokers, from the first pod that answers; nothing when none does."""
        for address in list(self._known):
            try:
                async with asyncio.timeout(ASK_TIMEOUT_S):
                    client = await _connect(address)
                    try:
                        answer = await client.call(metadata())
                    finally:
                        client.writer.close()
            except ANSWERS:
                continue
            return [f"{broker.host}:{broker.port}" for broker in answer.brokers]
        return []


async def _connect(address: str) -> KafkaClient:
    host, _, port = address.rpartition(":")
    return await KafkaClient.connect(int(port), host)


async def _coordinators(client: KafkaClient, groups: Sequence[str]) -> dict[str, str]:
    """Group -> address of its coordinator, as far as the pod knows one. Raises one of ANSWERS."""
    answer = await client.call(find_coordinators(groups))
    return {each.key: f"{each.host}:{each.port}" for each in answer.coordinators if not each.error_code}
