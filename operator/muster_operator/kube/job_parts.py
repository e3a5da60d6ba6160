"""The common part of Jobs that make backups and Jobs that restore one: a pod with no rights that runs `muster`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster_operator.api.models import BackupStore, CoordinatorCluster, Resource, Resources
from muster_operator.kube.objects import owned_by
from muster_operator.kube.pod_parts import Manifest, access_to_store, placement, pod_security
from muster_operator.store.backup_store import BACKUPS_DIRECTORY, store_address

RETRIES = 2
"""The number of times that Kubernetes tries again, if nothing was made."""


@dataclass(frozen=True, slots=True)
class Run:
    """One container of `muster`. `name`: of the container. `arguments`: of the command."""

    name: str
    image: str
    arguments: list[str]
    resources: Resources
    service_account: str | None = None
    env: list[Manifest] = field(default_factory=list)
    volumes: list[Manifest] = field(default_factory=list)
    mounts: list[Manifest] = field(default_factory=list)


def job_pod(cluster: CoordinatorCluster, run: Run) -> Manifest:
    """The spec of the Job's pod."""
    template = cluster.spec.pod_template
    container = {
        "name": run.name,
        "image": run.image,
        "imagePullPolicy": cluster.spec.image_pull_policy,
        "command": ["muster"],
        "args": run.arguments,
        "env": run.env,
        "resources": {"requests": dict(run.resources.requests), "limits": dict(run.resources.limits)},
        "volumeMounts": run.mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        **placement(template),
        "securityContext": {"fsGroupChangePolicy": "OnRootMismatch", **pod_security(template)},
        "containers": [container],
        "volumes": run.volumes,
    }
    if run.service_account is not None:
        pod["serviceAccountName"] = run.service_account
    return pod


def job(
    cluster: CoordinatorCluster,
    name: str,
    owner: Resource,
    pod: Manifest,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    *,
    kept_s: int,
) -> tuple[str, Manifest]:
    """(collection path, Job). `kept_s`: how long Kubernetes keeps it when it has ended."""
    namespace = cluster.metadata.namespace
    return f"/apis/batch/v1/namespaces/{namespace}/jobs", {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**labels, "app.kubernetes.io/managed-by": "muster-operator"},
            "annotations": dict(annotations),
            "ownerReferences": [owned_by(owner)],
        },
        "spec": {
            "backoffLimit": RETRIES,
            "activeDeadlineSeconds": 12 * 3600,
            "ttlSecondsAfterFinished": kept_s,
            "template": {"metadata": {"labels": dict(labels)}, "spec": pod},
        },
    }


def store_parts(store: BackupStore, namespace: str, name: str) -> tuple[list[Manifest], list[Manifest], list[Manifest]]:
    """(env, volumes, mounts) with which `muster` finds a store. `namespace`, `name`: of the cluster."""
    volumes: list[Manifest] = [{"name": "scratch", "emptyDir": {}}]  # room for a segment, or the logs twice
    mounts: list[Manifest] = [{"name": "scratch", "mountPath": "/tmp"}]
    if store.s3 is None:
        volumes.append({"name": "backups", "persistentVolumeClaim": {"claimName": store.claim}})
        mounts.append({"name": "backups", "mountPath": BACKUPS_DIRECTORY})
    address = {"name": "MUSTER_BACKUP_STORE", "value": store_address(store, namespace, name)}
    return [address, *access_to_store(store)], volumes, mounts
