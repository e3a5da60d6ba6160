"""Who is tried when a group has lost its coordinator."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.chaos import locator as locator_module
from tests.chaos.locator import RECONNECT_S, Locator


class LostGroup:
    """Tells its locator that the pod refuses, as a group does."""

    name, is_lost, stopped = "g", True, False

    def __init__(self, locator: Locator) -> None:
        self._locator = locator
        self.tried_at: list[float] = []

    async def connect(self, address: str) -> None:
        self.tried_at.append(time.monotonic())
        self._locator.refused(address)


async def test_pod_that_refused_is_tried_again_after_the_backoff_of_kafkas_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others name it until another one is elected."""

    class Client:
        class writer:
            close = staticmethod(lambda: None)

    async def connect(address: str) -> Any:
        return Client()

    async def coordinators(client: Any, groups: Any) -> dict[str, str]:
        return dict.fromkeys(groups, "dead:1")

    monkeypatch.setattr(locator_module, "_connect", connect)
    monkeypatch.setattr(locator_module, "_coordinators", coordinators)
    monkeypatch.setattr(locator_module, "REFRESH_S", 60.0)
    locator = Locator(["a:1"])
    group: Any = LostGroup(locator)
    locator.lost(group)
    running = asyncio.create_task(locator.run())
    async with asyncio.timeout(30):
        while len(group.tried_at) < 4:
            await asyncio.sleep(0.001)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    pauses = [late - early for early, late in zip(group.tried_at, group.tried_at[1:], strict=False)]
    assert min(pauses) >= RECONNECT_S
