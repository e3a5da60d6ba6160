"""What a pod's status says of the upstream that it mirrors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.pod import free_ports

from muster_coordinator.mirror.bypasses import Bypass
from muster_coordinator.outgoing.connector import Connector
from muster_coordinator.pod.mirroring.connection import UpstreamError
from muster_coordinator.pod.mirroring.health import MirrorHealth
from muster_coordinator.pod.mirroring.mirror import Mirror
from muster_coordinator.pod.mirroring.release import UpstreamRelease
from muster_coordinator.pod.mirroring.topics import UpstreamTopics
from muster_coordinator.pod.mirroring.upstream import Topic
from muster_coordinator.settings import UpstreamSettings


class Told:
    """A mirror of an upstream that answers as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.health = MirrorHealth()
        self.changes: list[str] = []
        self.answers: Callable[[], Topic] = self.refuse
        self.looks = 0
        settings = UpstreamSettings(f"127.0.0.1:{free_ports(1)[0]}", upstream_fetch_wait_ms=10)
        self.mirror = Mirror(
            settings,
            Connector(settings.outgoing, "test"),
            1.0,
            {},
            lambda: range(3),
            lambda: "test",
            self,
            self.health,
            UpstreamTopics(),
            UpstreamRelease(),
            self._changed,
        )
        monkeypatch.setattr(self.mirror._upstream, "look", self._look)

    def wall_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0

    def refuse(self) -> Topic:
        raise UpstreamError(f"no broker answers ({self.looks})")

    async def _look(self) -> None:
        self.looks += 1
        self.mirror._upstream.topic = self.answers()

    def _changed(self) -> None:
        self.changes.append(self.health.problem)

    async def until_looked(self, more: int = 2) -> None:
        self.mirror._look_again.set()
        wanted = self.looks + more
        async with asyncio.timeout(30):
            while self.looks < wanted:
                self.mirror._look_again.set()
                await asyncio.sleep(0.005)


async def test_problem_is_told_once_when_it_begins_and_once_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch)
    told.mirror.start()
    try:
        await told.until_looked(5)
        assert told.changes == ["no broker answers (1)"], "other words of the same problem are no news"
        told.answers = lambda: Topic(b"", dict.fromkeys(range(3), (0, 0)))
        await told.until_looked()
        assert told.changes[1:] == [""]
        told.answers = lambda: Topic(b"", dict.fromkeys(range(5), (0, 0)))
        await told.until_looked()
        assert "the upstream has 5 partitions" in told.changes[2]
        assert len(told.changes) == 3
    finally:
        told.mirror.stop()


async def test_bypass_is_told_once_when_it_begins_and_once_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch)
    used: dict[str, Bypass] = {}
    followed = SimpleNamespace(bypassed=used)
    monkeypatch.setattr(told.mirror, "_current", dict)
    told.mirror._followed = {0: cast(Any, followed)}
    told.mirror._tell()
    changes = len(told.changes)
    for number in range(5):
        used[f"m-{number}"] = Bypass(f"m-{number}", "app@10.0.0.1", False)
        told.mirror._tell()
    assert (told.health.bypassed, len(told.changes)) == ("m-0 by app@10.0.0.1", changes + 1)
    used.clear()
    told.mirror._tell()
    assert (told.health.bypassed, len(told.changes)) == ("", changes + 2)
    used.update({f"m-{number}": Bypass(f"m-{number}", "app@h", True) for number in range(5)})
    told.mirror._tell()
    assert told.health.bypassed == "m-0 by app@h, m-1 by app@h, m-2 by app@h, and 2 more groups"
