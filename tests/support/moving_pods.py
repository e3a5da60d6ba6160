"""The APIs of pods that move groups, as a test asks them."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import msgspec
from tests.support.local_cluster import LocalCluster

from muster_coordinator.podapi.moves import MoveAnswer, MovesAnswer, MoveStatus


class Pods:
    """The pods' APIs. Moves are asked for at all: the leader of the partition takes one."""

    def __init__(self, session: aiohttp.ClientSession, muster: LocalCluster) -> None:
        self._session = session
        self.muster = muster

    def apis(self) -> list[str]:
        return [each["apiAddress"] for each in self._record()]

    def listeners(self) -> list[str]:
        return [each["kafkaAddress"] for each in self._record()]

    async def move(self, group: str, *, back: bool = False) -> int:
        """Returns when it has moved, with how often it was asked to: a busy machine may take longer than a fence may
        stand."""
        tries = 1
        while not await self.tried(group, back=back):
            status = await self.status(group)
            assert "it took too long" in status.reason, status
            tries += 1
        return tries

    async def tried(self, group: str, *, back: bool = False) -> bool:
        """True if it has moved, and was not given up."""
        await self.start(group, back=back)
        return await self.has_moved(group)

    async def has_moved(self, group: str) -> bool:
        """Waits for the end of its move."""
        async with asyncio.timeout(60):
            while (step := (await self.status(group)).step) not in ("moved", "given up"):
                await asyncio.sleep(0.02)
        return step == "moved"

    async def start(self, group: str, *, dry_run: bool = False, back: bool = False) -> None:
        """Asks again while something stands in the way, such as a mirror that is behind, or members at Kafka whose
        session has not ended yet."""
        obstacles: object = "no leader"
        try:
            async with asyncio.timeout(60):
                while True:
                    for api in self.apis():
                        async with self._session.post(
                            f"http://{api}/v1/moves", json={"group": group, "dryRun": dry_run, "back": back}
                        ) as answer:
                            if answer.status == 200:
                                obstacles = msgspec.json.decode(await answer.read(), type=MoveAnswer).obstacles
                                if not obstacles:
                                    return
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"{group}: {obstacles}") from None

    async def status(self, group: str) -> MoveStatus:
        _, found = await self._found(group)
        return found

    async def leader_of(self, group: str) -> int:
        """The process that moved the group."""
        api, _ = await self._found(group)
        return next(each["process"]["pid"] for each in self._record() if each["apiAddress"] == api)

    async def _found(self, group: str) -> tuple[str, MoveStatus]:
        for api in self.apis():
            async with self._session.get(f"http://{api}/v1/moves") as answer:
                for each in reversed(msgspec.json.decode(await answer.read(), type=MovesAnswer).moves):
                    if each.group == group:
                        return api, each
        raise AssertionError(f"no pod knows of a move of {group}")

    def _record(self) -> list[dict[str, Any]]:
        pods: list[dict[str, Any]] = msgspec.json.decode((self.muster.data / "run.json").read_bytes())["pods"]
        return pods
