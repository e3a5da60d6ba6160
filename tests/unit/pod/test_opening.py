"""How a pod that starts opens its logs."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.replicas import ReplicaPods

from muster_coordinator.pod import opening
from muster_coordinator.pod.opening import Opening
from muster_coordinator.pod.runtime import Runtime
from muster_coordinator.replica.host import ReplicaHost
from muster_coordinator.tuning import scheduling

NewPods = Callable[..., Awaitable[ReplicaPods]]


async def test_start_rests_behind_a_log_that_another_pod_leads(
    new_pods: NewPods, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = await new_pods(3, partitions=4)
    for pod in pods.pods:
        await pod.kill()
    monkeypatch.setattr(opening, "RESTS", 1e12)
    monkeypatch.setattr(opening, "LONGEST_REST_S", 3600.0)
    monkeypatch.setattr(opening, "HEARING_S", 0.0)
    open_one = Opening.open

    async def open_and_hear(self: Opening, host: ReplicaHost, *, behind: bool = False) -> None:
        if host.core is None and host.partition in (1, 2):
            self.leader_heard(host, active=host.partition == 2)
        await open_one(self, host, behind=behind)

    monkeypatch.setattr(Opening, "open", open_and_hear)
    await pods[2].start()
    hosts = pods[2].up.hosts
    await pods.until(lambda: hosts[2].core is not None)
    assert hosts[1].core is not None, "somebody who only stands for election is no leader"
    assert hosts[3].core is None, "it rests"
    await open_one(pods[2].up._opening, hosts[3])
    assert hosts[3].core is not None, "whoever needs a log does not wait"


@pytest.mark.parametrize("leads", [False, True])
async def test_logs_that_another_pod_leads_are_opened_behind_unless_this_one_leads_too(
    new_pods: NewPods, monkeypatch: pytest.MonkeyPatch, leads: bool
) -> None:
    pods = await new_pods(3, partitions=4)
    for pod in pods.pods:
        await pod.kill()
    monkeypatch.setattr(opening, "HEARING_S", 0.0)
    open_one, opened_behind = Opening.open, note_opened_behind(monkeypatch)

    async def open_and_hear(self: Opening, host: ReplicaHost, *, behind: bool = False) -> None:
        if host.partition == 0:
            for partition in (1, 3):
                self.leader_heard(self._runtime.hosts[partition], active=True)
            if leads:
                monkeypatch.setattr(self._runtime, "shards", {0: object()})
        await open_one(self, host, behind=behind)

    monkeypatch.setattr(Opening, "open", open_and_hear)
    await pods[2].start()
    hosts = pods[2].up.hosts
    await pods.until(lambda: all(host.core is not None for host in hosts.values()))
    assert opened_behind == ([] if leads else [1, 3])


def note_opened_behind(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Partitions, in order, whose logs are opened in the thread that stands back."""
    opened: list[int] = []
    behind = Runtime.behind

    async def note(self: Runtime, function: Callable[..., Any], *arguments: Any) -> Any:
        opened.extend(each.partition for each in arguments)  # no argument: the journal
        return await behind(self, function, *arguments)

    monkeypatch.setattr(Runtime, "behind", note)
    return opened


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="Linux has the class")
async def test_no_thread_that_stands_back_is_left_when_the_logs_are_open(
    new_pods: NewPods, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed lives until its last thread has had a processor."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    stood_back: list[str] = []
    monkeypatch.setattr(scheduling, "_set_slice", lambda thread, slice_ns: stood_back.append("here"))
    pods = await new_pods(1, partitions=2)
    hosts = pods[0].up.hosts
    await pods.until(lambda: all(host.core is not None for host in hosts.values()))
    policies = {os.sched_getscheduler(int(thread)) for thread in os.listdir("/proc/self/task")}
    assert stood_back
    assert os.SCHED_IDLE not in policies


async def test_logs_count_as_led_elsewhere_until_their_leaders_can_have_been_heard(
    new_pods: NewPods, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = await new_pods(1, partitions=4)
    await pods[0].kill()
    monkeypatch.setattr(opening, "HEARING_S", 3600.0)
    opened_behind = note_opened_behind(monkeypatch)
    await pods[0].start()
    hosts = pods[0].up.hosts
    await pods.until(lambda: all(host.core is not None for host in hosts.values()))
    assert opened_behind == [0, 1, 2, 3]
    await pods[0].kill()
    opened_behind.clear()
    monkeypatch.setattr(opening, "LONGEST_REST_S", 3600.0)
    monkeypatch.setattr(opening, "RESTS", 1e12)
    await pods[0].start()
    hosts = pods[0].up.hosts
    await pods.until(lambda: hosts[0].core is not None)
    assert hosts[1].core is None, "it rests"
