"""The page that tells the life of a commit, held against the files that one commit runs through."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio
from tests.support.pod import SoloPod

pytestmark = pytest.mark.interpreted

REPOSITORY = Path(__file__).parents[3]
STAYS_MAX = 41
VISITS_MAX = 2
WARM_UP = 200
"""Commits before the one that is traced: by then the pod knows whether the disk is fast."""
TRIES = 10
"""A tick or a chore may run in the middle of a traced commit; the shortest trace has none."""


class Call(NamedTuple):
    """The thread and the module of a call."""

    thread: str
    module: str


class TracedPod(SoloPod):
    """Records the calls of one commit."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "data")
        self._trace = directory / "trace"
        self.program = (sys.executable, "-m", "tests.support.traced_pod", str(self._trace))

    async def trace_commit(self) -> list[Call]:
        """Returns the calls that one commit makes, in order."""
        client = await self.client()
        for offset in range(WARM_UP):
            assert await client.commit("g", offset) == 0
        traces = [await self._trace_one(client.commit("g", WARM_UP + number)) for number in range(TRIES)]
        await client.close()
        return min(traces, key=len)

    async def _trace_one(self, commit: Awaitable[int]) -> list[Call]:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGUSR1)
        await asyncio.sleep(0.005)  # nothing tells when the process has taken the signal
        assert await commit == 0
        os.kill(self.process.pid, signal.SIGUSR2)
        async with asyncio.timeout(10):
            while not self._trace.exists():
                await asyncio.sleep(0.005)
        calls = self._trace.read_text().splitlines()
        self._trace.unlink()
        return [Call(*call.split("\t")[:2]) for call in calls]


@pytest_asyncio.fixture
async def calls(tmp_path: Path) -> AsyncIterator[list[Call]]:
    async with TracedPod(tmp_path) as pod:
        yield await pod.trace_commit()


async def test_commit_visits_few_files_and_none_again_and_again(calls: list[Call]) -> None:
    # The thread that writes the journal, if the disk is slow, passes nothing on: it is one visit of its own.
    stays = [module for module, _ in groupby(call.module for call in calls if call.thread == "MainThread")]
    often = {module: count for module, count in Counter(stays).items() if count > VISITS_MAX}
    assert not often, stays
    assert len(stays) <= STAYS_MAX, stays


async def test_page_names_the_files_of_a_commit_in_the_order_in_which_it_comes_to_them(calls: list[Call]) -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text()
    section = page.split("In: from bytes to a queue.")[1].split("\nWith three replicas")[0]
    assert list(dict.fromkeys(re.findall(r"`([a-z_]+/[a-z_/0-9]+\.py)`", section))) == list(
        dict.fromkeys(call.module for call in calls)
    )
