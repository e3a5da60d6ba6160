"""Two operators of two installs over one namespace, one of them killed again and again while clients commit."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from itertools import count
from pathlib import Path
from statistics import median

import pytest
from tests.support.api_proxy import api_proxy
from tests.support.fake_kubernetes import OperatorProcess
from tests.support.kube import send_operator_away
from tests.support.muster_cluster import wait_until
from tests.support.platform_team import Cared, Load, cared_for, operator_that_acts

from muster_operator.kube.elector import ElectorSettings

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]

NAMESPACE, NAME = "muster-two", "two"
KILLS = 20 if os.environ.get("MUSTER_TEST_LONG") else 3
"""As `make test-kubernetes-long` has them, or else `make test-kubernetes`."""
INSTALLS = ("one", "two")
LEASE_S = ElectorSettings().lease_duration
BUSY_S = 5.0
"""What a busy machine may add to a time that is compared."""


def holder() -> str:
    return operator_that_acts(NAMESPACE)


def wait_for_another(than: str) -> float:
    """Seconds until it acts."""
    began = time.monotonic()
    wait_until(lambda: holder() not in ("", than), "another operator acts")
    return time.monotonic() - began


def note_leaders(cluster: Cared, leaders: dict[tuple[int, int], str]) -> None:
    """No epoch of a partition is ever that of two pods."""
    for index, each in cluster.partitions().items():
        if each.leader is not None:
            assert leaders.setdefault((index, each.epoch), each.leader) == each.leader


async def test_kills_of_the_operator_that_acts_interrupt_no_group_and_give_no_epoch_twice(
    custom_resources: None, tmp_path: Path
) -> None:
    await asyncio.to_thread(send_operator_away)
    async with api_proxy(tmp_path) as (_, kubeconfig):
        logs = (tmp_path / f"{number}.log" for number in count())
        running: dict[str, OperatorProcess] = {}

        async def start(install: str) -> OperatorProcess:
            made = await OperatorProcess.start(kubeconfig, install, "operator", next(logs))
            running[made.identity] = made
            return made

        async def start_to_rest(install: str) -> None:
            """A take-over is measured of an operator that looks at the Lease, and not of one that still starts."""
            made = await start(install)
            await asyncio.to_thread(wait_until, lambda: bool(made.said("another_operator_acts")), "it rests")

        for install in INSTALLS:
            await start(install)
        cared = cared_for(NAMESPACE, NAME, pods=3)
        try:
            cluster = await asyncio.to_thread(cared.__enter__)
            await asyncio.to_thread(cluster.wait_at_home)
            before, leaders, took = cluster.partitions(), dict[tuple[int, int], str](), list[float]()
            load = await asyncio.to_thread(Load.begin, cluster, "killed")
            for _ in range(KILLS):
                note_leaders(cluster, leaders)
                killed = await asyncio.to_thread(holder)
                await running.pop(killed).end(signal.SIGKILL)
                took.append(await asyncio.to_thread(wait_for_another, killed))
                await start_to_rest(killed.partition("/")[0])
                await asyncio.to_thread(load.goes_on)
            assert cluster.partitions() == before, "no leader was changed by any of it"
            print("take-overs after (s):", *(f"{each:.1f}" for each in took))
            assert median(took) <= 1.5 * LEASE_S
            assert max(took) <= 1.5 * LEASE_S + BUSY_S

            # the one that acts now leads on from where the others were
            victim = cluster.pod(f"{NAME}-1")
            killed = await asyncio.to_thread(holder)
            cluster.kill_process(victim)
            await running.pop(killed).end(signal.SIGKILL)
            await asyncio.to_thread(wait_for_another, killed)
            await asyncio.to_thread(cluster.wait_whole)
            note_leaders(cluster, leaders)
            await start_to_rest(killed.partition("/")[0])
            stopped = await asyncio.to_thread(holder)
            await running.pop(stopped).end(signal.SIGTERM)
            released_s = await asyncio.to_thread(wait_for_another, stopped)
            print(f"after a release: {released_s:.1f} s")
            assert released_s < LEASE_S, "the Lease was released, and had not to expire"
            await asyncio.to_thread(load.goes_on)
            await asyncio.to_thread(load.end_with_nothing_lost)
        finally:
            for each in running.values():
                await each.end(signal.SIGTERM)
            await asyncio.to_thread(cared.__exit__, None, None, None)
