"""The pipeline's manifests at work: its image in pods, logs from a running cluster's pods, tables on a volume.

Needs the pipeline's image on the node, which takes minutes to make: `make test-pipeline-kubernetes`.
"""

from __future__ import annotations

import copy
import json
import os
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition
from tests.support.kube import REPOSITORY, custom_resources, kubectl
from tests.support.muster_cluster import MusterCluster, wait_until

__all__ = ["custom_resources"]

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(600)]

MANIFESTS = REPOSITORY / "config" / "pipeline"
IMAGE = "docker.io/library/muster-pipeline:local"
TOPIC, PARTITIONS = "orders", 6
GROUPS = ("billing-1", "billing-2", "shipping")
JOB_S = 400.0
READ_TABLES = ["pipeline", "offsets", "/tables/muster", "--engine", "local", "--json"]


@pytest.fixture(scope="session")  # as wide as sample: without an image there is no cluster to wait for
def image() -> str:
    """The image's name on the node."""
    name = os.environ.get("MUSTER_TEST_PIPELINE_IMAGE")
    if not name:
        pytest.skip("needs the pipeline's image: make test-pipeline-kubernetes, or MUSTER_TEST_PIPELINE_IMAGE (a name)")
    return name


def commit(bootstrap: str, position: int) -> dict[tuple[str, str, int], int]:
    """Commits for all groups, as the tables should have them: (group, topic, partition) to offset."""
    for group in GROUPS:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
        offsets = [TopicPartition(TOPIC, partition, position + partition) for partition in range(PARTITIONS)]
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()
    return {(group, TOPIC, index): position + index for group in GROUPS for index in range(PARTITIONS)}


def adapted(text: str, cluster: MusterCluster, image: str) -> list[dict[str, Any]]:
    """The manifests for this cluster: addresses for names (there may be no DNS), small requests, no schedule."""
    for pod in cluster.pods():
        ordinal = pod.name.rsplit("-", 1)[1]
        text = text.replace(f"https://muster-{ordinal}.muster-pods:", f"https://{pod.address}:")
    assert "muster-pods" not in text
    text = text.replace("muster-reader-tls", f"{cluster.name}-reader-tls")
    text = text.replace("$(POD_NAMESPACE)/muster", f"$(POD_NAMESPACE)/{cluster.name}")
    objects = list(yaml.safe_load_all(text.replace(IMAGE, image)))
    for job in (each["spec"] for each in objects if each["kind"] == "CronJob"):
        job["suspend"] = True
        container = job["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
        container["resources"]["requests"]["cpu"] = "100m"
        if "spark-submit" in container["command"][0]:
            container["args"].insert(0, "--conf=spark.kubernetes.executor.request.cores=100m")
    return objects


def apply(cluster: MusterCluster, objects: list[dict[str, Any]]) -> None:
    kubectl("-n", cluster.namespace, "apply", "-f", "-", stdin=yaml.safe_dump_all(objects))


def output_of(cluster: MusterCluster, job: str) -> str:
    """What the job wrote. Fails with that when the job did."""

    def ended() -> bool:
        conditions = json.loads(cluster.kubectl("get", "job", job, "-o", "json"))["status"].get("conditions", [])
        return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)

    wait_until(ended, f"job {job} ends", JOB_S)
    output = cluster.kubectl("logs", f"job/{job}", "--tail=-1")
    status = json.loads(cluster.kubectl("get", "job", job, "-o", "json"))["status"]
    assert status.get("succeeded") == 1, f"{status}\n{output}"
    return output


def tables(cluster: MusterCluster, cronjob: dict[str, Any], name: str) -> dict[tuple[str, str, int], int]:
    """The current offsets that the tables hold, read by a pod like those of the CronJob."""
    template = copy.deepcopy(cronjob["spec"]["jobTemplate"]["spec"])
    template["template"]["spec"]["containers"][0]["args"] = READ_TABLES
    apply(cluster, [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": template}])
    rows = [json.loads(line) for line in output_of(cluster, name).splitlines() if line.startswith("{")]
    return {(row["group"], row["topic"], row["partition"]): row["committed_offset"] for row in rows}


@pytest.fixture(scope="module")
def installed(image: str, sample: MusterCluster) -> list[dict[str, Any]]:
    """What `kubectl apply -k config/pipeline` makes, in a namespace that admits restricted pods only."""
    label = "pod-security.kubernetes.io/enforce=restricted"
    kubectl("label", "namespace", sample.namespace, label, "--overwrite")
    objects = adapted(kubectl("kustomize", str(MANIFESTS)).stdout, sample, image)
    apply(sample, objects)
    return objects


def test_cronjob_and_then_executors_bring_the_tables_up_to_what_is_committed(
    image: str, installed: list[dict[str, Any]], muster_cluster: MusterCluster
) -> None:
    cronjob = next(each for each in installed if each["kind"] == "CronJob")
    committed = commit(muster_cluster.bootstrap(), 1_000)
    muster_cluster.kubectl("create", "job", "local", "--from=cronjob/muster-pipeline")
    assert "/tables/muster/report.html" in output_of(muster_cluster, "local")
    assert tables(muster_cluster, cronjob, "read-1").items() >= committed.items()

    committed = commit(muster_cluster.bootstrap(), 2_000)
    apply(muster_cluster, adapted((MANIFESTS / "spark-submit.yaml").read_text(), muster_cluster, image))
    muster_cluster.kubectl("create", "job", "executors", "--from=cronjob/muster-pipeline-executors")
    assert "run 2: /tables/muster" in output_of(muster_cluster, "executors")
    assert tables(muster_cluster, cronjob, "read-2").items() >= committed.items()
    assert muster_cluster.objects("pods", "-l", "spark-role=executor") == []


@pytest.mark.parametrize("api", ["sparkoperator.k8s.io", "spark.apache.org"])
def test_spark_application_is_one_that_the_operators_definition_takes(custom_resources: None, api: str) -> None:
    if kubectl("get", "crd", f"sparkapplications.{api}", check=False).returncode != 0:
        pytest.skip(f"needs the Spark operator's CustomResourceDefinition sparkapplications.{api} in the cluster")
    name = "kubeflow" if api == "sparkoperator.k8s.io" else "apache"
    manifest = yaml.safe_load((MANIFESTS / f"spark-application-{name}.yaml").read_text())
    dry_run = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
    kubectl(*dry_run, stdin=yaml.safe_dump(manifest))
    manifest["spec"]["nonsense"] = "x"
    refused = kubectl(*dry_run, stdin=yaml.safe_dump(manifest), check=False)
    assert refused.returncode != 0
    assert "nonsense" in refused.stderr
