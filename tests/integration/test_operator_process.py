"""`muster-operator` as processes against an API server: one of them acts in a namespace, and the others rest."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.support.fake_kubernetes import FakeCluster, FakeKubernetes, OperatorProcess, fake_kubernetes

from muster_operator.api.models import GROUP, VERSION
from muster_operator.kube.elector import ElectorSettings

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ELECTOR = ElectorSettings()
KILLS = 3
"""Each takes a Lease's duration."""
BUSY_S = 5.0
"""What a busy machine may add to a time that is compared."""


class Installs:
    """Two operators of two installs, both for all namespaces. `kubernetes` has the cluster `c` in namespace `ns`."""

    def __init__(self, kubernetes: FakeKubernetes, kubeconfig: Path, directory: Path) -> None:
        self.kubernetes = kubernetes
        self.processes: dict[str, OperatorProcess] = {}
        self._kubeconfig = kubeconfig
        self._directory = directory

    async def start(self, namespace: str) -> None:
        log = self._directory / f"{namespace}.log"
        started = await OperatorProcess.start(self._kubeconfig, namespace, "operator", log)
        self.processes[started.identity] = started

    @property
    def holder(self) -> str:
        return str(self.kubernetes.lease("ns").get("holderIdentity", ""))

    async def end_holder(self, signum: signal.Signals) -> str:
        """Who it was."""
        identity = self.holder
        await self.processes.pop(identity).end(signum)
        return identity

    async def until_held_by_another_than(self, identity: str) -> float:
        """Seconds until one of the others acts."""
        began = time.monotonic()
        others = self.processes.keys() - {identity}
        await self.kubernetes.until(lambda: self.holder in others, "another operator acts")
        return time.monotonic() - began


@asynccontextmanager
async def two_installs(directory: Path) -> AsyncIterator[tuple[Installs, FakeCluster]]:
    async with fake_kubernetes(directory) as (kubernetes, kubeconfig):
        cluster = kubernetes.declare("ns", "c")
        installs = Installs(kubernetes, kubeconfig, directory)
        try:
            for namespace in ("one", "two"):
                await installs.start(namespace)
            await kubernetes.until(lambda: kubernetes.is_ready("ns", "c"), "the cluster is ready", 40)
            yield installs, cluster
        finally:
            for each in installs.processes.values():
                await each.end(signal.SIGKILL)


async def test_one_of_two_operators_rests_and_tells_who_acts(tmp_path: Path) -> None:
    async with two_installs(tmp_path) as (installs, cluster):
        holder = installs.holder
        (other,) = (each for name, each in installs.processes.items() if name != holder)

        def rests() -> bool:
            return any(line["holder"] == holder for line in other.said("another_operator_acts"))

        await installs.kubernetes.until(rests, "the other has noticed it")
        assert other.said("step") == []
        images = [len(pod.images) for pod in cluster.runs]
        renewals = installs.kubernetes.requests["PUT", "leases"]
        await installs.kubernetes.until(
            lambda: installs.kubernetes.requests["PUT", "leases"] >= renewals + 3, "some seconds pass"
        )
        assert [len(pod.images) for pod in cluster.runs] == images, "nothing is published where nothing changes"


async def test_operator_that_is_stopped_releases_the_lease_and_another_acts_within_one_look(tmp_path: Path) -> None:
    async with two_installs(tmp_path) as (installs, _):
        before = installs.holder
        ending = asyncio.create_task(installs.end_holder(signal.SIGTERM))
        await installs.kubernetes.until(lambda: installs.holder != before, "the Lease is released")
        looks = installs.kubernetes.requests["GET", "leases"]
        await installs.until_held_by_another_than(before)
        assert installs.kubernetes.requests["GET", "leases"] - looks <= 1
        assert await ending == before


async def test_operators_that_are_killed_are_followed_in_time_and_no_epoch_is_given_twice(tmp_path: Path) -> None:
    async with two_installs(tmp_path) as (installs, cluster):
        kubernetes = installs.kubernetes
        for number in range(KILLS):
            victim = number % 3
            tokens = kubernetes.lease("ns")["leaseTransitions"]
            await asyncio.gather(cluster.kill_pod(victim), killed := asyncio.create_task(_kill(installs)))
            took_s = await installs.until_held_by_another_than(killed.result())
            assert took_s <= 1.5 * ELECTOR.lease_duration + BUSY_S
            assert kubernetes.lease("ns")["leaseTransitions"] == tokens + 1
            await installs.start(killed.result().partition("/")[0])
            led_by = {f"c-{each}" for each in range(3) if each != victim}
            await kubernetes.until(lambda names=led_by: _is_led_by(kubernetes, names), "it leads what the pod led")  # type: ignore[misc]
            await cluster.run_pod(victim)
            await kubernetes.until(lambda: kubernetes.is_ready("ns", "c"), "the cluster is ready")
        given = cluster.epochs_given()
        assert len(given) > 6, "pods were elected in place of those that were killed"
        assert len({*given}) == len(given)


async def _kill(installs: Installs) -> str:
    return await installs.end_holder(signal.SIGKILL)


def _is_led_by(kubernetes: FakeKubernetes, names: set[str]) -> bool:
    statuses = [each.get("status", {}) for each in kubernetes.objects.all("offsetspartitions", "ns")]
    return bool(statuses) and all(each.get("state") == "Led" and each.get("leader") in names for each in statuses)


async def test_users_are_watched_when_their_definition_comes_after_the_operator(tmp_path: Path) -> None:
    """The first user is listed when the kind comes; the second one only a watch can tell of."""
    async with fake_kubernetes(tmp_path) as (kubernetes, kubeconfig):
        kubernetes.lacks.add("musterusers")
        kubernetes.declare("ns", "c")
        operator = await OperatorProcess.start(kubeconfig, "one", "operator", tmp_path / "one.log")
        try:
            await kubernetes.until(lambda: kubernetes.is_ready("ns", "c"), "the cluster is ready without them", 40)
            assert operator.said("kind_not_known")
            kubernetes.lacks.clear()
            for name in ("first", "second"):
                declare_user(kubernetes, name)
                await kubernetes.until(partial(is_seen, kubernetes, name), f"{name} is seen")
                async with asyncio.timeout(60):
                    while not kubernetes.requests["WATCH", "musterusers"]:
                        await asyncio.sleep(0.05)
        finally:
            await operator.end(signal.SIGKILL)


def declare_user(kubernetes: FakeKubernetes, name: str) -> None:
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "MusterUser",
        "metadata": {"name": name},
        "spec": {"clusterRef": {"name": "c"}},
    }
    kubernetes.create(f"/apis/{GROUP}/{VERSION}/namespaces/ns/musterusers", body)


def is_seen(kubernetes: FakeKubernetes, name: str) -> bool:
    """Whether a condition of the MusterUser says that its cluster takes none."""
    found = kubernetes.objects.get("musterusers", "ns", name) or {}
    return any(each["reason"] == "UsersFromFiles" for each in found.get("status", {}).get("conditions", ()))
