"""Objects of a cluster as the API server has them: whose they are, and whether they are as they would be applied."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from muster_operator.api.models import GROUP, CoordinatorCluster
from muster_operator.kube.client import Json
from muster_operator.kube.manifests import own_labels

APPLIED = f"{GROUP}/applied"
"""Annotation: the fingerprint of what was applied last. It tells a field that we took out from one of somebody else."""


def belongs_to(meta: Json, cluster: CoordinatorCluster) -> bool:
    """True if an object is the cluster's: the cluster is its controller, or it has no controller and all of our labels,
    as after the CoordinatorCluster was deleted with `--cascade=orphan`."""
    controller = next((each for each in meta.get("ownerReferences", ()) if each.get("controller")), None)
    if controller is not None:
        return bool(controller["uid"] == cluster.metadata.uid)
    labels = meta.get("labels", {})
    return all(labels.get(name) == value for name, value in own_labels(cluster).items())


def in_the_way(cluster: CoordinatorCluster, kind: str, name: str) -> str:
    """The message about an object that does not belong to the cluster."""
    return (
        f"{kind} {name} exists and is not of this CoordinatorCluster: nothing is applied. Give the cluster another"
        f" name, or, if nothing needs that object: kubectl -n {cluster.metadata.namespace} delete {kind.lower()} {name}"
    )


def stamped(manifest: Json) -> Json:
    """The manifest with its fingerprint. A pod template has one of its own (`manifests.DECLARED`)."""
    spec = {name: each for name, each in manifest["spec"].items() if name != "template"}
    data = msgspec.json.encode({**manifest, "spec": spec}, order="deterministic")
    annotations = {
        **manifest["metadata"].get("annotations", {}),
        APPLIED: hashlib.sha256(data).hexdigest()[:16],
    }
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}}


def is_as_applied(live: Json | None, manifest: Json) -> bool:
    """True if applying the stamped manifest would change nothing."""
    return live is not None and _covers(live, manifest)


def has_generation(live: Json | None, generation: int, manifest: Json | None) -> bool:
    """True if an object is as it was applied: its generation tells, which rises with each change of its spec, and its
    metadata, if there is a stamped manifest to compare it with.
    """
    if live is None or live["metadata"]["generation"] != generation:
        return False
    return manifest is None or _covers(live["metadata"], manifest["metadata"])


def _covers(live: Any, wanted: Any) -> bool:
    """True if `live` has all of `wanted`, beside its defaults."""
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(
            name in live and _covers(live[name], each) for name, each in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(live, list) and len(live) == len(wanted) and all(map(_covers, live, wanted))
    return bool(live == wanted)
