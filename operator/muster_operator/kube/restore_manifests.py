"""The claims and Jobs that make the volumes of a new cluster from a backup, as pure functions."""

from __future__ import annotations

import msgspec

from muster_operator.api.models import GROUP, CoordinatorCluster, RestorePlan
from muster_operator.kube.backup_manifests import BACKUP_LABEL, RESTORES, with_tail
from muster_operator.kube.job_parts import Run, job, job_pod, store_parts
from muster_operator.kube.manifests import CLAIM, DATA_DIRECTORY, Manifest, selector
from muster_operator.kube.objects import PART_OF
from muster_operator.kube.pod_parts import spread
from muster_operator.plan.restore_facts import READS, Made

PLAN = f"{GROUP}/restore"
"""Annotation of a claim that was made for a restore: the plan, as JSON."""
MADE = f"{GROUP}/restored"
"""Annotation of such a claim: see `Made`."""
CLAIM_UID = f"{GROUP}/claim-uid"
"""Annotation of a Job: the uid of the claim whose volume it makes."""

NAME = "muster-restore"


def claim_name(cluster: CoordinatorCluster, pod: int) -> str:
    """The name that the StatefulSet gives it."""
    return f"{CLAIM}-{cluster.metadata.name}-{pod}"


def claim(cluster: CoordinatorCluster, pod: int, plan: RestorePlan) -> Manifest:
    """The claim that the StatefulSet would make, with the plan noted on it. Like those it has no owner."""
    storage = cluster.spec.storage
    spec: Manifest = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage.size}}}
    if storage.storage_class_name is not None:
        spec["storageClassName"] = storage.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": claim_name(cluster, pod),
            "namespace": cluster.metadata.namespace,
            "labels": selector(cluster),
            "annotations": {PLAN: msgspec.json.encode(plan).decode()},
        },
        "spec": spec,
    }


def plan_of(raw: Manifest) -> RestorePlan | None:
    """The plan that a claim is noted with. A note that nobody understands is that of another version: no plan."""
    note = raw["metadata"].get("annotations", {}).get(PLAN)
    try:
        return msgspec.json.decode(note, type=RestorePlan) if note is not None else None
    except msgspec.MsgspecError:
        return None


def made_of(raw: Manifest) -> Made:
    """The progress of the restore when the claim was noted last."""
    note = raw["metadata"].get("annotations", {}).get(MADE, "")
    return Made(note) if note in {*Made} else Made.NOT_YET


def restore_job(
    cluster: CoordinatorCluster, pod: int, claim_uid: str, plan: RestorePlan | None, default_image: str
) -> tuple[str, Manifest]:
    """(collection path, Job). READS in place of a pod: it mounts no volume, and reads the backup only."""
    asked = cluster.spec.restore_from
    assert asked is not None
    meta = cluster.metadata
    env, volumes, mounts = store_parts(asked.store, meta.namespace, meta.name)
    if plan is not None:
        volumes.append({"name": CLAIM, "persistentVolumeClaim": {"claimName": claim_name(cluster, pod)}})
        mounts.append({"name": CLAIM, "mountPath": DATA_DIRECTORY})
    run = Run(
        "restore",
        asked.image or default_image,
        _arguments(cluster, pod, plan),
        asked.resources,
        asked.service_account_name,
        env,
        volumes,
        mounts,
    )
    labels = {"app.kubernetes.io/name": NAME, BACKUP_LABEL: meta.name, **PART_OF}
    # Volumes are made where the Job's pod runs, and the coordinator's pod has to go there.
    constraints = spread(cluster.spec.pod_template, labels)
    return job(
        cluster,
        with_tail(meta.name, "-restore" if pod == READS else f"-restore-{pod}"),
        cluster,
        {**job_pod(cluster, run), "topologySpreadConstraints": constraints},
        labels,
        {RESTORES: str(pod), CLAIM_UID: claim_uid},
        kept_s=120,  # its name is free then, so one that failed is made again
    )


def _arguments(cluster: CoordinatorCluster, pod: int, plan: RestorePlan | None) -> list[str]:
    asked = cluster.spec.restore_from
    assert asked is not None
    backup, at, number, pods = asked.backup, asked.at, 0, cluster.spec.pods
    if plan is not None:
        backup, at, number, pods = plan.backup, plan.at, pod, plan.pods
    return [
        "restore",
        f"--backup={backup}",
        *([f"--at={at}"] if at is not None else []),
        f"--volume={DATA_DIRECTORY}/data",
        f"--pod={number}",
        f"--pods={pods}",
        *(["--dry-run"] if plan is None else _numbers(plan)),
        "--result=/dev/termination-log",
    ]


def _numbers(plan: RestorePlan) -> list[str]:
    """The numbers of partitions, if they are not those of the backup."""
    if not plan.resharded:
        return []
    transactions = [] if plan.transactions is None else [f"--transaction-partitions={plan.transactions.partitions}"]
    return [f"--partitions={plan.offsets.partitions}", *transactions]
