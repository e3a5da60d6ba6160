"""A committing load: N groups, each on a connection of its own, and what they saw.

    python -m tests.chaos.load --bootstrap HOST:PORT,... [--groups 100] [--interval-ms 10] [--history FILE]

Prints `ready` once every group has an acknowledged commit, and goes on until standard input ends, Ctrl-C or SIGTERM.
Then every group's offset is fetched over a new connection, the history is checked, and a summary printed (`--json`:
as JSON). Any server that speaks Kafka's protocol will do.

Exit codes: 0 nothing lost, reverted or invented; 1 something was, or could not be read back; 2 wrong usage; 3 not every
group could commit in time.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import uvloop
from tests.chaos.checker import check, counts, violations
from tests.chaos.figures import milliseconds, overall
from tests.chaos.group import Group
from tests.chaos.history import Fetch, History
from tests.chaos.locator import Locator
from tests.support.kafka import KafkaClient

OVERDUE_S = 0.5
"""An answer that takes longer makes a group look for its coordinator, without giving the request up."""
WATCH_EVERY_S = 0.02
LAG_S = 0.01
READY_TIMEOUT_S = 60.0
FINAL_TIMEOUT_S = 60.0
FINAL_AT_ONCE = 20
RETRY_S = 0.05


class Load:
    """All groups of a run."""

    def __init__(self, bootstrap: list[str], groups: int, interval_s: float, prefix: str = "chaos") -> None:
        self._interval_s = interval_s
        self._lags: list[tuple[float, float]] = []
        self.locator = Locator(bootstrap)
        self.groups = [Group(n, f"{prefix}-{n}", interval_s, self.locator) for n in range(groups)]

    async def run(self, stop: asyncio.Event, ready: asyncio.Event) -> History:
        """Commit until `stop`; then read everything back. Raises TimeoutError when a group cannot commit at all."""
        watchdog = asyncio.create_task(self._watch())
        seeking = asyncio.create_task(self.locator.run())
        try:
            for group in self.groups:
                self.locator.lost(group)
            await self._wait_until_ready()
            ready.set()
            await _first(stop.wait(), seeking, watchdog)
            await self._settle()
            await self._read_back()
        finally:
            for task in (watchdog, seeking):
                task.cancel()
            await asyncio.gather(watchdog, seeking, return_exceptions=True)
            for group in self.groups:
                group.close()
        histories = [group.history for group in self.groups]
        return History(self.locator.pods, histories, self._interval_s, self._lags)

    async def _wait_until_ready(self) -> None:
        async with asyncio.timeout(READY_TIMEOUT_S):
            while not all(group.acknowledged for group in self.groups):
                await asyncio.sleep(WATCH_EVERY_S)

    async def _watch(self) -> None:
        """Notes overdue answers, and when this loop itself was late: that is this machine's fault, not a pod's."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(WATCH_EVERY_S)
            now = time.monotonic()
            if now - before - WATCH_EVERY_S > LAG_S:
                self._lags.append((now, now - before - WATCH_EVERY_S))
            for group in self.groups:
                if not group.is_lost and group.overdue(now, OVERDUE_S):
                    group.is_lost = True
                    self.locator.lost(group)

    async def _settle(self) -> None:
        """No new requests; answers under way have a little time."""
        for group in self.groups:
            group.stop()
        deadline = time.monotonic() + OVERDUE_S
        while any(group.busy for group in self.groups) and time.monotonic() < deadline:
            await asyncio.sleep(WATCH_EVERY_S)
        for group in self.groups:
            group.close()

    async def _read_back(self) -> None:
        at_once = asyncio.Semaphore(FINAL_AT_ONCE)

        async def one(group: Group) -> None:
            async with at_once:
                await self._read_back_group(group)

        try:
            async with asyncio.timeout(FINAL_TIMEOUT_S):
                await asyncio.gather(*(one(group) for group in self.groups))
        except TimeoutError:  # the checker says which groups have no final fetch
            pass

    async def _read_back_group(self, group: Group) -> None:
        while True:
            try:
                address = await self.locator.ask(group.name)
                if address and await self._fetch(group, address):
                    return
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                pass
            await asyncio.sleep(RETRY_S)

    async def _fetch(self, group: Group, address: str) -> bool:
        host, _, port = address.rpartition(":")
        async with asyncio.timeout(OVERDUE_S * 4):
            client = await KafkaClient.connect(int(port), host)
            try:
                sent = time.monotonic()
                offset, error = await client.fetch(group.name, topic="chaos")
            finally:
                await client.close()
        if error:
            return False
        fetch = Fetch(sent, time.monotonic(), offset, self.locator.pod_index(address), group.history.last_sent, True)
        group.history.fetches.append(fetch)
        return True


async def _first(*waiting: Any) -> None:
    """Until the first of them ends; raises what it raised."""
    tasks = [asyncio.ensure_future(each) for each in waiting]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    tasks[0].cancel()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT,...")
    parser.add_argument("--groups", type=int, default=100, help="default 100")
    parser.add_argument("--interval-ms", type=float, default=10.0, help="between two commits of a group; default 10")
    parser.add_argument("--group-prefix", default="chaos", help="first part of the groups' names; default chaos")
    parser.add_argument("--history", type=Path, metavar="FILE", help="write everything that was seen, as JSON")
    parser.add_argument("--json", action="store_true", help="the summary as JSON")
    options = parser.parse_args()
    load = Load(options.bootstrap.split(","), options.groups, options.interval_ms / 1000, options.group_prefix)
    gc.disable()  # a pause of this process would look like one of the pods
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            history = runner.run(_run(load))
    except TimeoutError:
        silent = [group.name for group in load.groups if not group.acknowledged]
        print(f"{len(silent)} groups could not commit in {READY_TIMEOUT_S:g} s: {silent[:5]}", file=sys.stderr)
        return 3
    if options.history:
        history.write(options.history)
    return summarise(history, as_json=options.json)


async def _run(load: Load) -> History:
    stop, ready = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)

    def read_input() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            loop.remove_reader(sys.stdin)
            stop.set()

    loop.add_reader(sys.stdin, read_input)

    async def tell() -> None:
        await ready.wait()
        print("ready", flush=True)

    telling = asyncio.create_task(tell())
    try:
        return await load.run(stop, ready)
    finally:
        telling.cancel()
        loop.remove_reader(sys.stdin)


def summarise(history: History, *, as_json: bool) -> int:
    findings = check(history)
    summary = {**overall(history), **counts(findings)}
    if as_json:
        print(json.dumps(summary))
    else:
        print("  ".join(f"{name} {milliseconds(value)}" for name, value in summary.items()))
    bad = violations(findings)
    for finding in bad[:20]:
        print(f"{finding.kind}: {finding.group}: {finding.commits} commits; {finding.text}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
