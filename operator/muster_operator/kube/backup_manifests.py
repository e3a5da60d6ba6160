"""The Job that makes a backup, as a pure function. It talks to the pods and to the store, and to nobody else."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from muster_operator.api.backup_result import MADE_BUT
from muster_operator.api.models import GROUP, BackupStore, CoordinatorCluster, MusterBackup
from muster_operator.kube.manifests import TLS_DIRECTORY, Manifest, reader_secret_name
from muster_operator.kube.objects import PART_OF, owned_by
from muster_operator.kube.pod_parts import placement, pod_security

BACKUP_LABEL = f"{GROUP}/backup-of"
"""On Jobs and their pods, in place of the label of the cluster's own pods: the name of the CoordinatorCluster."""
SLOT = f"{GROUP}/slot"
"""Annotation of a Job: the time of the schedule that it is for."""
ASKED = f"{GROUP}/asked"
"""Annotation of a Job: the uid of the MusterBackup that it is for."""

NAME_LIMIT = 63
RETRIES = 2
"""How often Kubernetes begins anew, if no backup was made."""

BACKUPS_DIRECTORY = "/backups"
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


def backup_job(
    cluster: CoordinatorCluster,
    asked: MusterBackup | None,
    slot: str,
    image: str,
    arguments: list[str],
    *,
    secured: bool,
) -> tuple[str, Manifest]:
    """(collection path, Job). `arguments`: of `muster`. `secured`: the pods ask for a certificate."""
    declared = cluster.spec.backup
    assert declared is not None
    namespace, template = cluster.metadata.namespace, cluster.spec.pod_template
    labels = {"app.kubernetes.io/name": "muster-backup", BACKUP_LABEL: cluster.metadata.name, **PART_OF}
    env, volumes, mounts = store_parts(declared.store, cluster.metadata.namespace, cluster.metadata.name)
    if secured:
        env.append({"name": "MUSTER_TLS_DIR", "value": TLS_DIRECTORY})
        secret = reader_secret_name(cluster)
        volumes.append({"name": "tls", "secret": {"secretName": secret, "defaultMode": 0o440}})
        mounts.append({"name": "tls", "mountPath": TLS_DIRECTORY, "readOnly": True})
    container = {
        "name": "backup",
        "image": image,
        "imagePullPolicy": cluster.spec.image_pull_policy,
        "command": ["muster"],
        "args": arguments,
        "env": env,
        "resources": {"requests": dict(declared.resources.requests), "limits": dict(declared.resources.limits)},
        "volumeMounts": mounts,
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
        "volumes": volumes,
    }
    if declared.service_account_name is not None:
        pod["serviceAccountName"] = declared.service_account_name
    return f"/apis/batch/v1/namespaces/{namespace}/jobs", {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(cluster, asked, slot),
            "namespace": namespace,
            "labels": {**labels, "app.kubernetes.io/managed-by": "muster-operator"},
            "annotations": {ASKED: asked.metadata.uid} if asked is not None else {SLOT: slot},
            "ownerReferences": [owned_by(asked if asked is not None else cluster)],
        },
        "spec": {
            "backoffLimit": RETRIES,
            "activeDeadlineSeconds": 12 * 3600,  # a run that takes longer does not count (`muster backup create`)
            "ttlSecondsAfterFinished": 24 * 3600,  # for people who look at what it wrote
            "podFailurePolicy": {
                "rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [MADE_BUT]}}]
            },
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def store_parts(store: BackupStore, namespace: str, name: str) -> tuple[list[Manifest], list[Manifest], list[Manifest]]:
    """(env, volumes, mounts) with which `muster backup` finds a store. `namespace`, `name`: of the cluster."""
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


def job_name(cluster: CoordinatorCluster, asked: MusterBackup | None, slot: str) -> str:
    """One for each MusterBackup, and for each time of the schedule. Made twice, it is there once."""
    if asked is not None:
        return f"{asked.metadata.name}-muster-backup"
    tail = "-backup-" + "".join(each for each in slot if each.isdigit())[:12]
    name = cluster.metadata.name
    if len(name) + len(tail) > NAME_LIMIT:
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        name = f"{name[: NAME_LIMIT - len(tail) - len(digest) - 1]}-{digest}"
    return name + tail


def run_arguments(
    cluster: CoordinatorCluster, addresses: Mapping[str, str], until_s: float, *, verify: bool
) -> list[str]:
    """The arguments of `muster`. `addresses`: of the pod API of each pod. `until_s`: they are good until then."""
    declared, meta = cluster.spec.backup, cluster.metadata
    assert declared is not None
    return [
        "backup",
        "run",
        f"--cluster={meta.namespace}/{meta.name}",
        *(f"--pod={name}={address}" for name, address in sorted(addresses.items())),
        f"--pods-until={until_s:.0f}",
        f"--mib-per-second={declared.mib_per_second}",
        f"--keep={declared.keep}",
        f"--keep-days={declared.keep_days}",
        *(["--verify"] if verify else []),
        "--result=/dev/termination-log",
    ]
