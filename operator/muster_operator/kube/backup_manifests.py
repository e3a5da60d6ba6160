"""The Job that makes a backup, as a pure function. It talks to the pods and to the store, and to nobody else."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from muster_operator.api.backup_result import MADE_BUT
from muster_operator.api.models import GROUP, CoordinatorCluster, MusterBackup
from muster_operator.kube.job_parts import Run, job, job_pod, store_parts
from muster_operator.kube.manifests import TLS_DIRECTORY, Manifest, reader_secret_name
from muster_operator.kube.objects import PART_OF

BACKUP_LABEL = f"{GROUP}/backup-of"
"""The label with the name of the CoordinatorCluster on Jobs and their pods, in place of that of the cluster's own pods.
"""
SLOT = f"{GROUP}/slot"
"""Annotation of a Job: the time of the schedule that it is for."""
RESTORES = f"{GROUP}/restores"
"""Annotation of a Job that restores a backup, and makes none: the number of the pod whose volume it makes."""
ASKED = f"{GROUP}/asked"
"""Annotation of a Job: the uid of the MusterBackup that it is for."""

NAME_LIMIT = 63


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
    labels = {"app.kubernetes.io/name": "muster-backup", BACKUP_LABEL: cluster.metadata.name, **PART_OF}
    env, volumes, mounts = store_parts(declared.store, cluster.metadata.namespace, cluster.metadata.name)
    if secured:
        env.append({"name": "MUSTER_TLS_DIR", "value": TLS_DIRECTORY})
        secret = reader_secret_name(cluster)
        volumes.append({"name": "tls", "secret": {"secretName": secret, "defaultMode": 0o440}})
        mounts.append({"name": "tls", "mountPath": TLS_DIRECTORY, "readOnly": True})
    run = Run("backup", image, arguments, declared.resources, declared.service_account_name, env, volumes, mounts)
    path, made = job(
        cluster,
        job_name(cluster, asked, slot),
        asked if asked is not None else cluster,
        job_pod(cluster, run),
        labels,
        {ASKED: asked.metadata.uid} if asked is not None else {SLOT: slot},
        kept_s=24 * 3600,  # for people who look at what it wrote
    )
    rules = [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [MADE_BUT]}}]
    return path, {**made, "spec": {**made["spec"], "podFailurePolicy": {"rules": rules}}}


def job_name(cluster: CoordinatorCluster, asked: MusterBackup | None, slot: str) -> str:
    """One for each MusterBackup, and for each time of the schedule. Made twice, it is there once."""
    if asked is not None:
        return f"{asked.metadata.name}-muster-backup"
    tail = "-backup-" + "".join(each for each in slot if each.isdigit())[:12]
    return with_tail(cluster.metadata.name, tail)


def with_tail(name: str, tail: str) -> str:
    """`name` and `tail` together, the name shortened if both are too long for the name of a Job."""
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
