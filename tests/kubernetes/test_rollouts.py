"""Images that do not run, another operator, pods that fail again and again: who served serves on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hack import kubernetes_machine as machine
from tests.support.kube import install_operator, kubectl
from tests.support.muster_cluster import Pod, process_of, wait_until
from tests.support.platform_team import READY_S, Cared, Load, Outside, cared_for, listeners

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]

NAMESPACE, NAME = "muster-rollouts", "roll"
IMAGE, NO_IMAGE, NEXT_IMAGE = (f"docker.io/library/muster:{tag}" for tag in ("local", "broken", "next"))
OPERATOR = ("-n", "muster-system", "deployment/muster-operator")


@pytest.fixture(scope="module")
def cluster(custom_resources: None) -> Iterator[Cared]:
    if machine.has_kind():
        pytest.skip("clients follow pods that are replaced by ports of the node, which are behind kind's container")
    install_operator()
    with cared_for(NAMESPACE, NAME, pods=3, listeners=listeners(31950)):
        yield Outside(NAMESPACE, NAME)


def waiting(cluster: Cared, reason: str) -> list[str]:
    """The pods whose container waits for this."""
    found = []
    for each in cluster.objects("pods"):
        for container in each["status"].get("containerStatuses", ()):
            if container["state"].get("waiting", {}).get("reason") == reason:
                found.append(str(each["metadata"]["name"]))
    return found


def test_image_that_does_not_run_halts_the_rollout_and_a_fixed_one_goes_on(cluster: Cared) -> None:
    before = cluster.runs()
    load = Load.begin(cluster, "halted")
    cluster.patch(image=NO_IMAGE, imagePullPolicy="Never")
    wait_until(lambda: waiting(cluster, "ErrImageNeverPull") == [f"{NAME}-2"], "the first pod does not run", READY_S)
    wait_until(lambda: "ErrImageNeverPull" in cluster.condition("Stalled").get("message", ""), "it is said")
    said = cluster.wait_for_reason("Stalled", "RolloutHalted")
    assert f"pod {NAME}-2 of the declared template does not run, so {NAME}-0, {NAME}-1 keep the one before" in said
    load.goes_on()
    other = cluster.pod(f"{NAME}-1")
    cluster.kill_process(other)
    wait_until(lambda: cluster.pod(other.name).restarts > other.restarts, "its container runs again")
    load.goes_on()
    assert cluster.pod(other.name).uid == other.uid, "a pod that serves is not given the image that does not run"
    after = cluster.runs()
    assert {name for name in before if after[name][0] == before[name][0]} == {f"{NAME}-0", f"{NAME}-1"}
    cluster.patch(image=IMAGE)
    cluster.wait_whole()
    load.goes_on()
    load.end_with_nothing_lost()
    assert cluster.status()["updatedPods"] == 3


def test_pod_that_fails_again_and_again_does_not_hold_up_the_drain_of_its_node(cluster: Cared) -> None:
    """Node drained with a disruption budget: the sick pod goes, a healthy one does not go beside it."""
    load = Load.begin(cluster, "drained")
    sick = cluster.pod(f"{NAME}-1")

    def fails() -> bool:
        state = cluster.pod(sick.name)
        if state.uid == sick.uid and not waiting(cluster, "CrashLoopBackOff"):
            _kill(state)
        return sick.name in waiting(cluster, "CrashLoopBackOff")

    wait_until(fails, "its container is held back", READY_S)
    wait_until(lambda: not cluster.pod(sick.name).ready, "it is not ready")
    assert "disruption budget" in cluster.evict(f"{NAME}-0")
    assert "Success" in cluster.evict(sick.name)
    wait_until(lambda: cluster.replaced(sick), "it is replaced")
    cluster.wait_whole()
    load.goes_on()
    load.end_with_nothing_lost()


def _kill(pod: Pod) -> None:
    try:
        os.kill(process_of(pod.uid), signal.SIGKILL)
    except (AssertionError, ProcessLookupError):
        pass  # it is about to start


def test_operator_of_another_version_restarts_no_pod_and_says_what_it_brings(cluster: Cared) -> None:
    cluster.patch(image=None)
    cluster.wait_whole()
    before = cluster.runs()
    load = Load.begin(cluster, "upgraded")
    try:
        kubectl("set", "env", *OPERATOR, f"MUSTER_OPERATOR_IMAGE={NEXT_IMAGE}")
        kubectl("rollout", "status", *OPERATOR, "--timeout=50s")
        message = cluster.wait_for_reason("UpgradeAvailable", "UpgradeAvailable")
        assert f'{{"spec":{{"image":"{NEXT_IMAGE}"}}}}' in message
        cluster.wait_whole()
        load.goes_on()
        load.end_with_nothing_lost()
        assert (cluster.runs(), cluster.status()["image"]) == (before, IMAGE)
    finally:
        kubectl("set", "env", *OPERATOR, "MUSTER_OPERATOR_IMAGE-")
        kubectl("rollout", "status", *OPERATOR, "--timeout=50s")
