"""What is around a pod: its clock, its file system, and the ports that are not for clients."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path

from tests.attacks.site import Site
from tests.support.kafka import KafkaClient

STEP_EVERY_S = 0.5
FILLED = "filled"
READ_ONLY = "read-only"


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


async def read_only(site: Site) -> None:
    """Nothing more can be opened to write, made, renamed or removed in the pod's directory; its open files go on.

    Linux refuses to make a mount read-only while files of it are open to write. So another one is made read-only where
    nobody writes, and laid over the pod's at once.
    """
    directory, aside = site.target.data_dir, _aside(site)
    aside.mkdir()
    for command in (
        ("mount", "--bind", directory, str(aside)),
        ("mount", "-o", "remount,bind,ro", str(aside)),
        ("mount", "--bind", str(aside), directory),
    ):
        await asyncio.to_thread(_run, *command)
    site.counts["mounts"] += 1


async def writable(site: Site) -> None:
    for path in (site.target.data_dir, str(_aside(site))):
        await asyncio.to_thread(_run, "umount", "-l", path)


def _aside(site: Site) -> Path:
    return Path(site.target.data_dir).parent / READ_ONLY


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


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
