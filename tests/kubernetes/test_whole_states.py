"""The health checks of Argo CD and Flux, by all states that the tests before have brought objects of clusters into."""

from __future__ import annotations

import os

import pytest
from tests.support.gitops import OF_FLUX, of_argo, of_flux
from tests.support.gitops_expected import contradiction, state_and_health
from tests.support.muster_cluster import MusterCluster
from tests.support.watched_objects import WatchedObjects

pytestmark = pytest.mark.kubernetes

WHOLE = bool(os.environ.get("MUSTER_TEST_WHOLE"))
"""All tests of tests/kubernetes ran before, as `make test-kubernetes` has them."""
AT_LEAST = 12


def test_argo_cd_and_flux_say_of_each_state_of_a_running_cluster_what_is_so(
    muster_cluster: MusterCluster, watched: WatchedObjects
) -> None:
    found, wrong = dict[str, str](), []
    for shown in [*watched.states.values()]:
        said = of_argo(shown)
        try:
            name, health = state_and_health(shown)
        except LookupError as error:  # it has no name yet: both tools have to say the same all the same
            name, health = f"{error}", said["status"]
        found[name] = health
        if (said["status"], of_flux(shown)) != (health, OF_FLUX[health]):
            wrong.append(f"{name}: {health}, not {said['status']} and {of_flux(shown)}: {shown}")
        if not said["message"] and health != "Healthy":
            wrong.append(f"{name}: {health}, and not said why: {shown}")
        if against := contradiction(shown, health):
            wrong.append(f"{name}: {against}: {shown}")
    print("\n".join(f"{health:11} {name}" for name, health in sorted(found.items())))
    assert wrong == []
    assert "CoordinatorCluster: AllPartitionsLed" in found
    if WHOLE:
        assert {health for name, health in found.items() if name.startswith("CoordinatorCluster")} == set(OF_FLUX)
        assert any(name.endswith("Stalled") for name in found)
        assert len(found) >= AT_LEAST
