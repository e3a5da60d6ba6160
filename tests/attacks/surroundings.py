"""What is around a pod: its clock, its file system, and the ports that are not for clients."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from tests.attacks.site import Site
from tests.support.kafka import KafkaClient

STEP_EVERY_S = 0.5
FILLED = "filled"


async def clock_forward(site: Site) -> None:
    """An hour, at once."""
    await _step(site, signal.SIGUSR1, once=True)


async def clock_back(site: Site) -> None:
    """An hour, at once."""
    await _step(site, signal.SIGUSR2, once=True)


async def clock_to_and_fro(site: Site) -> None:
    """An hour forward and back, again and again."""
    await _step(site, signal.SIGUSR1, signal.SIGUSR2, once=False)


async def _step(site: Site, *signals: signal.Signals, once: bool) -> None:
    while True:
        for number in signals:
            os.kill(site.target.pod_pid, number)
            site.counts["steps"] += 1
            await asyncio.sleep(STEP_EVERY_S)
        if once:
            return


async def full(site: Site) -> None:
    """Somebody else takes all that is left of the file system."""
    with (Path(site.target.data_dir).parent / FILLED).open("wb", buffering=0) as file:
        try:
            while True:
                site.counts["bytes written"] += file.write(bytes(1 << 16))
        except OSError:
            return


async def free(site: Site) -> None:
    (Path(site.target.data_dir).parent / FILLED).unlink()


async def idle_at_the_pods_port(site: Site) -> None:
    await _elsewhere(site, site.target.peer_port, b"", 2000)


async def garbage_at_the_pods_port(site: Site) -> None:
    await _elsewhere(site, site.target.peer_port, os.urandom(1 << 16), 32)


async def idle_at_the_api(site: Site) -> None:
    await _elsewhere(site, site.target.api_port, b"", 2000)


async def questions_to_the_api(site: Site) -> None:
    await _elsewhere(site, site.target.api_port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 20, 16)


async def _elsewhere(site: Site, port: int, data: bytes, many: int) -> None:
    async def one(_: int) -> None:
        client = await KafkaClient.connect(port)
        site.counts["connections"] += 1
        if data:
            await site.pour_and_read(client, data)
        await site.hold(client)

    await site.at_once(many, one)
