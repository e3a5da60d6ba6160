"""Groups that commit all the time, and what they were told: nothing of it may be lost."""

from __future__ import annotations

import asyncio
import time

from tests.support.kafka import KafkaClient

RETRIES_S = 5.0
"""A client looks for the coordinator again for this long; then the commit counts as failed."""


class Load:
    """`groups` groups that commit all the time, each after its last commit was answered. `bootstrap`: all pods."""

    def __init__(self, bootstrap: str, groups: int, topic: str = "t") -> None:
        self._pods = [address.rpartition(":") for address in bootstrap.split(",")]
        self._topic = topic
        self.acked = dict.fromkeys((f"group-{n}" for n in range(groups)), 0)
        self.failed: list[str] = []
        self.longest_s = 0.0
        self._stop = asyncio.Event()

    async def run(self) -> None:
        await asyncio.gather(*(self._commit(group) for group in self.acked))

    def stop(self) -> None:
        self._stop.set()

    async def check_nothing_is_lost(self) -> None:
        clients = await self._clients()
        for group, acked in self.acked.items():
            found = [await client.fetch(group, self._topic) for client in clients]
            assert max(offset for offset, code in found if code == 0) == acked, (group, found)
        for client in clients:
            await client.close()

    async def _clients(self) -> list[KafkaClient]:
        return [await KafkaClient.connect(int(port), host) for host, _, port in self._pods]

    async def _commit(self, group: str) -> None:
        clients, at = await self._clients(), 0
        try:
            while not self._stop.is_set():
                began = time.monotonic()
                while (code := await clients[at].commit(group, self.acked[group] + 1, self._topic)) != 0:
                    at = (at + 1) % len(clients)
                    if time.monotonic() - began > RETRIES_S:
                        self.failed.append(f"{group}: {code}")
                        return
                self.acked[group] += 1
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                await asyncio.sleep(0.01)
        finally:
            for client in clients:
                await client.close()
