"""The sample repository as a person applies it who has nothing else: an overlay, by kustomize, up to a cluster that
serves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.gitops import of_argo, of_flux
from tests.support.kube import REPOSITORY, kubectl
from tests.support.muster_cluster import MusterCluster

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(120)]

DEVELOPMENT = REPOSITORY / "examples" / "gitops" / "clusters" / "development"


@pytest.fixture
def cluster(operator: None) -> Iterator[MusterCluster]:
    kubectl("apply", "-k", str(DEVELOPMENT))
    found = MusterCluster("groups-development", "groups")
    try:
        found.wait_ready()
        yield found
    finally:
        print(found.summary())
        kubectl("delete", "-k", str(DEVELOPMENT), "--wait=false")


def test_overlay_for_development_is_applied_and_healthy(cluster: MusterCluster) -> None:
    assert {each.state for each in cluster.partitions().values()} == {"Led"}
    for kind in ("coordinatorclusters", "offsetstopics", "offsetspartitions"):
        for shown in cluster.objects(kind):
            assert (of_argo(shown)["status"], of_flux(shown)) == ("Healthy", "Current"), shown
