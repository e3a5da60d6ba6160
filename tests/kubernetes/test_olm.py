"""The bundle at work: the Operator Lifecycle Manager installs it, a cluster is made, and the bundle is removed again.

Needs OLM's operator on the node, which takes minutes to compile: `make test-olm`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator

import pytest
from tests.support.kube import REPOSITORY, kubectl
from tests.support.muster_cluster import wait_until
from tests.support.olm_on_cluster import NAMESPACE, Bundle, running_olm
from tests.support.platform_team import Cared, Load, operator_that_acts

sys.path.insert(0, str(REPOSITORY / "hack"))

import olm  # hack/ is no package

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]

TENANT = "muster-olm"
"""The namespace of the cluster that the installed operator looks after."""


@pytest.fixture(scope="module")
def image() -> str:
    """The name of OLM's image on the node."""
    name = os.environ.get("MUSTER_TEST_OLM_IMAGE")
    if not name:
        pytest.skip("needs OLM's image: make test-olm, or MUSTER_TEST_OLM_IMAGE (a name)")
    return name


@pytest.fixture(scope="module")
def bundle(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bundle]:
    """The bundle with the image of this tree, and all that is applied before its ClusterServiceVersion."""
    folder = tmp_path_factory.mktemp("bundle")
    olm.write(folder, olm.default_image())
    kubectl("delete", "--ignore-not-found", "-k", str(REPOSITORY / "config"), timeout_s=120)
    made = Bundle(folder)
    with running_olm(image):
        made.prepare()
        try:
            yield made
        finally:
            print(kubectl("-n", NAMESPACE, "get", "csv", "-o", "yaml", check=False).stdout)
            made.remove()
            made.put_away()


def test_bundle_waits_for_its_rights_and_succeeds_with_them(bundle: Bundle) -> None:
    bundle.apply()
    lacking = bundle.wait_for("Pending", "RequirementsNotMet")["requirementStatus"]
    assert [each["name"] for each in lacking if each["status"] == "NotPresent"] == ["muster-operator"]
    bundle.grant()
    held = bundle.wait_for("Succeeded", "InstallSucceeded")["requirementStatus"]
    assert {each["status"] for each in held} == {"Present"}
    rules = [one["status"] for each in held for one in each.get("dependents", ())]
    assert rules == ["Satisfied"] * len(bundle.rules())

    shown = kubectl("-n", NAMESPACE, "get", "deployments", "-o", "json").stdout
    (deployment,) = json.loads(shown)["items"]
    assert [each["name"] for each in deployment["metadata"]["ownerReferences"]] == [bundle.name]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == olm.default_image()


def test_cluster_of_the_examples_is_led_and_serves_on_while_the_bundle_is_away(bundle: Bundle) -> None:
    bundle.install()
    kubectl("create", "namespace", TENANT)
    cluster = Cared(TENANT, "small")
    try:
        for each in bundle.example("CoordinatorCluster", "OffsetsTopic"):
            cluster.kubectl("apply", "-f", "-", stdin=json.dumps(each))
        cluster.wait_whole()
        led = cluster.partitions()
        assert {each.state for each in led.values()} == {"Led"}
        assert len(led) == 4
        before, acts = cluster.runs(), operator_that_acts(TENANT)
        assert acts
        load = Load.begin(cluster, "olm")
        bundle.remove()
        names = {each["metadata"]["name"] for each in bundle.definitions}
        kept = kubectl("get", "crds", "-o", "jsonpath={.items[*].metadata.name}").stdout.split()
        assert names <= set(kept), "with them all clusters would go"
        load.goes_on()
        bundle.install()
        wait_until(lambda: operator_that_acts(TENANT) not in ("", acts), "the next operator acts")
        cluster.wait_whole()
        load.goes_on()
        load.end_with_nothing_lost()
        assert cluster.runs() == before
        assert cluster.partitions() == led, "no election was needed"
    finally:
        print(cluster.summary())
        kubectl("delete", "namespace", TENANT, "--wait=false")


def test_group_of_one_namespace_is_refused(bundle: Bundle) -> None:
    bundle.install()
    bundle.target(NAMESPACE)
    bundle.wait_for("Failed", "UnsupportedOperatorGroup")
    bundle.target()
    bundle.wait_for("Succeeded", "InstallSucceeded")
