"""A cluster at which nothing happens costs the API server reads, and no write but for the operator's Leases."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.audit import AuditedRequests
from tests.support.kube import install_operator, kubectl
from tests.support.muster_cluster import wait_until
from tests.support.platform_team import READY_S, Cared, Load, cared_for, operator_that_acts

LONG = bool(os.environ.get("MUSTER_TEST_LONG"))
"""As `make test-kubernetes-long` has it, or else `make test-kubernetes`."""
QUIET_S = 660.0 if LONG else 60.0
"""Longer than twice what the operator lets pass before it looks at its own objects again, which is five minutes."""
AGAIN_S = 120.0 if LONG else 30.0
SETTLED_S = 15.0
"""Without a write: nothing goes on any more. Longer than the time after which leaders move (rebalanceAfter)."""
AUDIT = os.environ.get("MUSTER_TEST_AUDIT", "")
NAMESPACE, NAME, PODS = "muster-quiet", "quiet", 3
KINDS = (
    "coordinatorclusters,offsetstopics,offsetspartitions,statefulsets,services,poddisruptionbudgets,secrets,configmaps,"
    "persistentvolumeclaims"
)
ACCOUNT = "system:serviceaccount:muster-system:muster-operator"

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(600 + QUIET_S + AGAIN_S)]

if not LONG:
    pytest.skip("needs a machine on which no pod pauses: make test-kubernetes-long", allow_module_level=True)
if not AUDIT:
    pytest.skip("needs the audit log of an API server: hack/localkube, or MUSTER_TEST_AUDIT", allow_module_level=True)


@pytest.fixture
def asked(custom_resources: None) -> AuditedRequests:
    install_operator()
    return AuditedRequests(Path(AUDIT), ACCOUNT, NAMESPACE)


@pytest.fixture
def cluster(asked: AuditedRequests) -> Iterator[Cared]:
    # So long that the silence of a pod on a busy machine is no news.
    failover = {"rebalanceAfter": "2s", "suspectAfter": "8s", "electionTimeout": "20s", "nominateAfter": "30s"}
    with cared_for(NAMESPACE, NAME, pods=PODS, failover=failover) as made:
        made.wait_at_home()
        yield made


def operators() -> list[str]:
    """The names of the operator's pods that are not about to end."""
    selector = "app.kubernetes.io/name=muster-operator"
    found = json.loads(kubectl("-n", "muster-system", "get", "pods", "-l", selector, "-o", "json").stdout)["items"]
    return [each["metadata"]["name"] for each in found if "deletionTimestamp" not in each["metadata"]]


def holder() -> str:
    """The pod of the operator that acts."""
    return operator_that_acts(NAMESPACE).rpartition("/")[2]


def until_nothing_is_written(asked: AuditedRequests) -> None:
    """Raises AssertionError when that does not come."""
    since = time.monotonic()
    deadline, written = since + READY_S, len(asked.writes())
    while time.monotonic() - since < SETTLED_S:
        if (now := len(asked.writes())) != written:
            written, since = now, time.monotonic()
        assert time.monotonic() < deadline, f"the operator writes on: {asked.writes()[-20:]}"
        time.sleep(1)


def stored() -> dict[str, str]:
    """The version of each object, by kind and name: another one with each write that changes something."""
    found = json.loads(kubectl("-n", NAMESPACE, "get", KINDS, "-o", "json").stdout)["items"]
    return {f"{each['kind']} {each['metadata']['name']}": each["metadata"]["resourceVersion"] for each in found}


def around() -> str:
    """What a kubelet or another operator has done: when that is another one, something has happened."""
    pods = json.loads(kubectl("-n", NAMESPACE, "get", "pods", "-o", "json").stdout)["items"]
    versions = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in pods}
    return json.dumps([holder(), versions], sort_keys=True)


def nothing_is_written(asked: AuditedRequests, how_long_s: float, load: Load, kept: dict[str, str]) -> None:
    """Look at it for this long, in which nothing happens: on a busy machine a probe of a pod may fail now and then, and
    that is told.
    """
    deadline = time.monotonic() + 3 * how_long_s
    before, end = around(), time.monotonic() + how_long_s
    while time.monotonic() < end:
        if written := asked.writes():
            assert around() != before, f"nothing has happened, and this is written: {written}"
            until_nothing_is_written(asked)
            asked.begin()
            before, kept, end = around(), stored(), time.monotonic() + how_long_s
            assert time.monotonic() < deadline, "pods come and go"
        assert load.meters[0].is_alive()
        time.sleep(1)
    assert stored() == kept
    counts = asked.counts()
    assert counts["update", "leases"] > how_long_s / 10, "an operator acts"
    print(f"requests in {how_long_s:.0f} s, about one cluster of {PODS} pods or about no namespace:")
    print(asked.table())


def test_converged_cluster_costs_no_write_besides_leases_also_after_a_restart_of_the_operator(
    asked: AuditedRequests, cluster: Cared
) -> None:
    """Groups commit meanwhile: what moves with each commit is nowhere in an object."""
    load = Load.begin(cluster, "quiet", groups=1)
    until_nothing_is_written(asked)
    assert asked.writes(), "the log has what it does"
    asked.begin()
    nothing_is_written(asked, QUIET_S, load, stored())

    kept = stored()
    asked.begin()
    (old,) = operators()
    kubectl("-n", "muster-system", "delete", "pod", old)
    wait_until(lambda: holder() in [each for each in operators() if each != old], "another operator acts", READY_S)

    def knows_the_pods() -> bool:
        lines = kubectl("-n", "muster-system", "logs", holder()).stdout.splitlines()
        opened = {line for line in lines if '"pod_stream_opened"' in line and f'"{NAME}-' in line}
        return len(opened) >= PODS

    wait_until(knows_the_pods, "it has asked every pod", READY_S)
    nothing_is_written(asked, AGAIN_S, load, kept)
    load.end_with_nothing_lost()
