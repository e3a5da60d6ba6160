"""Alerts of sites, as in test_alerts.py: a site that may not answer clients, and a follower without its cluster. The
follower is that of config/backup/follower.yaml.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hack import kubernetes_machine as machine
from hack.alerts import TRIED_ON_SITES
from tests.support.kube import REPOSITORY, as_list, install_operator, kubectl
from tests.support.muster_cluster import wait_until
from tests.support.on_call import OnCall
from tests.support.platform_team import READY_S, Cared, Load, cared_for, nothing_is_lost
from tests.support.prometheus import running_prometheus

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(600)]

NAMESPACE, NAME = "muster-alerts-sites", "shop"
SECONDS_OF_A_MINUTE = 1
FENCED, BEHIND = TRIED_ON_SITES
FOLLOWER = "deployment/muster-follower"
STORE = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "muster-backups"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
EAST = {"name": "east", "store": {"claim": "muster-backups"}}
READER = "reader"
"""The account by which the follower lists the pods of the cluster."""


def apply(*objects: dict[str, Any]) -> None:
    kubectl("-n", NAMESPACE, "apply", "-f", "-", stdin=as_list(objects))


@pytest.fixture(scope="module")
def cluster(custom_resources: None) -> Iterator[Cared]:
    """Its pods are of the site east."""
    install_operator()
    with cared_for(NAMESPACE, NAME, pods=3, partitions=3) as made:
        apply(STORE)
        made.patch(site=EAST)
        made.wait_whole()
        yield made


def kubeconfig() -> str:
    """A person's way to this Kubernetes from elsewhere, with the rights of the reader."""
    for right in (
        ("serviceaccount", READER),
        ("role", READER, "--verb=list", "--resource=pods"),
        ("rolebinding", READER, f"--role={READER}", f"--serviceaccount={NAMESPACE}:{READER}"),
    ):
        kubectl("-n", NAMESPACE, "create", *right)
    token = kubectl("-n", NAMESPACE, "create", "token", READER, "--duration=1h").stdout.strip()
    config: dict[str, Any] = yaml.safe_load(kubectl("config", "view", "--raw", "--minify", "--flatten").stdout)
    address = kubectl("get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}").stdout
    config["clusters"][0]["cluster"]["server"] = f"https://{address}"
    config["users"][0]["user"] = {"token": token}
    return yaml.safe_dump(config)


@pytest.fixture(scope="module")
def follower(cluster: Cared) -> Iterator[None]:
    config = {"kind": "Secret", "metadata": {"name": "muster-first-site"}, "stringData": {"config": kubeconfig()}}
    apply({"apiVersion": "v1", **config})
    text = (REPOSITORY / "config" / "backup" / "follower.yaml").read_text(encoding="utf-8")
    for sample, ours in (
        ("image: muster-pipeline", f"image: {machine.MUSTER_IMAGE}"),
        ("--cluster=muster, --namespace=default, --every=60", f"--cluster={NAME}, --namespace={NAMESPACE}, --every=10"),
        ("value: /backups}", f"value: /backups/{NAME}}}"),
        ("secretName: muster-reader-tls", f"secretName: {NAME}-reader-tls"),
    ):
        assert sample in text
        text = text.replace(sample, ours)
    kubectl("-n", NAMESPACE, "apply", "-f", "-", stdin=text)
    kubectl("-n", NAMESPACE, "rollout", "status", FOLLOWER, "--timeout=50s")
    yield
    print(kubectl("-n", NAMESPACE, "logs", FOLLOWER, check=False).stdout)


def take_over(site: str) -> dict[str, Any]:
    """Run the command of docs/backup.md where the follower runs. Its answer."""
    command = ("env", "-u", "KUBERNETES_SERVICE_HOST", "muster", "backup", "take-over", "--site", site, "--json")
    asked = (*command, "--cluster", NAME, "--namespace", NAMESPACE, "--lease-seconds", "5")
    done: dict[str, Any] = json.loads(kubectl("-n", NAMESPACE, "exec", FOLLOWER, "--", *asked, timeout_s=120).stdout)
    return done


@pytest.fixture(scope="module")
def on_call(cluster: Cared, follower: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnCall]:
    with running_prometheus(tmp_path_factory.mktemp("prometheus"), SECONDS_OF_A_MINUTE) as prometheus:

        def is_scraped() -> bool:
            return len(prometheus.query(f'up{{namespace="{NAMESPACE}"}} == 1')) == 4

        wait_until(is_scraped, "three pods and the follower are scraped")
        yield OnCall(prometheus, {NAMESPACE})


def test_site_without_a_claim(cluster: Cared, on_call: OnCall) -> None:
    """Its pods answer once somebody has said that they may."""
    said = on_call.looks(FENCED, on_call.sees(FENCED, pod=f"{NAME}-0"))
    assert "`muster backup take-over` writes the first one" in said
    assert cluster.condition("Fenced")["status"] == "True"
    assert take_over("east")["site"] == "east"
    on_call.sees_it_go_out(FENCED)
    Load.begin(cluster, "first").end_with_nothing_lost()


def test_cluster_that_does_not_answer_its_follower(cluster: Cared, on_call: OnCall) -> None:
    acknowledged = Load.begin(cluster, "followed").end()
    on_call.sees_it_go_out(BEHIND)  # it fires before the first backup, too
    cluster.patch(hibernate=True)
    said = on_call.looks(BEHIND, on_call.sees(BEHIND, cluster=f"{NAMESPACE}/{NAME}"))
    assert "no pod runs" in said
    cluster.patch(hibernate=False)
    cluster.wait_whole()
    on_call.sees_it_go_out(BEHIND)
    nothing_is_lost(cluster, acknowledged)


def test_site_of_which_another_has_taken_over(cluster: Cared, on_call: OnCall) -> None:
    """The old one is ended, as the runbook says."""
    load = Load.begin(cluster, "moving")
    done = take_over("west")
    assert done["site"] == "west"
    said = on_call.looks(FENCED, on_call.sees(FENCED, pod=f"{NAME}-2"))
    assert "site west has taken over" in said
    for meter in load.meters:
        meter.stop()
    kubectl("-n", NAMESPACE, "delete", "offsetstopic,coordinatorcluster", NAME, "--wait=false")
    on_call.sees_it_go_out(FENCED, timeout_s=READY_S)


def test_both_have_fired(on_call: OnCall) -> None:
    assert on_call.fired == {*TRIED_ON_SITES}, "the runbook names these"
