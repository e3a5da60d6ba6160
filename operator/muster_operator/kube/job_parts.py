"""The common part of Jobs that make backups and Jobs that restore one: a pod with no rights that runs `muster`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster_operator.api.models import BackupStore, CoordinatorCluster, Resource, Resources
from muster_operator.kube.objects import owned_by
from muster_operator.kube.pod_parts import Manifest, placement, pod_security

BACKUPS_DIRECTORY = "/backups"
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
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
    env: list[Manifest] = []
    volumes: list[Manifest] = [{"name": "scratch", "emptyDir": {}}]  # room for the largest segment
    mounts: list[Manifest] = [{"name": "scratch", "mountPath": "/tmp"}]
    if store.s3 is None:
        address = f"{BACKUPS_DIRECTORY}/{store.directory or name}"
        volumes.append({"name": "backups", "persistentVolumeClaim": {"claimName": store.claim}})
        mounts.append({"name": "backups", "mountPath": BACKUPS_DIRECTORY})
    else:
        address = f"s3://{store.s3.bucket}/{store.s3.prefix or f'{namespace}/{name}'}"
        env.append({"name": "AWS_REGION", "value": store.s3.region})
        if store.s3.endpoint is not None:
            env.append({"name": "AWS_ENDPOINT_URL", "value": store.s3.endpoint})
        if store.s3.credentials_secret is not None:
            env += [_key_of(store.s3.credentials_secret, each) for each in CREDENTIALS]
    return [{"name": "MUSTER_BACKUP_STORE", "value": address}, *env], volumes, mounts


def _key_of(secret: str, key: str) -> Manifest:
    return {"name": key, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
