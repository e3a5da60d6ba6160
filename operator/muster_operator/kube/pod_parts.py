"""The parts that pods of coordinators and of gateways share: where they run, as whom, and what they mount."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from muster_operator.api.models import BackupStore, PodTemplate
from muster_operator.api.pod_template import MountedVolume
from muster_operator.store.outgoing import ROOT

CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
DEFAULT_USER = {"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532}

Manifest = dict[str, Any]


def volumes(secrets: Mapping[str, str], template: PodTemplate, more: Iterable[Manifest] = ()) -> Manifest:
    """Directories that a kubelet exchanges in place, and the pod reads again, and `more` volumes. `secrets`: by name of
    the volume."""
    found = [{"name": name, "secret": {"secretName": secret, "defaultMode": 0o440}} for name, secret in secrets.items()]
    found += [{**each.source, "name": _name_of_mounted(each)} for each in template.volumes]
    found += more
    return {"volumes": found} if found else {}


def mounts(secrets: Iterable[str], template: PodTemplate) -> list[Manifest]:
    """The mounts of a container for these volumes."""
    own = [{"name": each, "mountPath": f"{ROOT}/{each}", "readOnly": True} for each in secrets]
    more = template.volumes
    return own + [{"name": _name_of_mounted(each), "mountPath": f"/mnt/{each.name}", "readOnly": True} for each in more]


def _name_of_mounted(volume: MountedVolume) -> str:
    """A name such as none of our own volumes has."""
    return f"mounted-{volume.name}"


def pod_security(template: PodTemplate) -> Manifest:
    """PodSecurityContext: never root."""
    identity = template.security_context
    return {
        **(DEFAULT_USER if identity is None else identity),
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def spread(template: PodTemplate, labels: Mapping[str, str]) -> list[Manifest]:
    """The spread that a person declares. Without one a node or a zone that is lost should take one pod: preferences,
    because a small cluster must still start.
    """
    if template.topology_spread_constraints:
        return [dict(each) for each in template.topology_spread_constraints]
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": dict(labels)},
        }
        for key in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
    ]


def placement(template: PodTemplate) -> Manifest:
    """The placement that a person declares, in the words of core/v1."""
    said: Manifest = {
        "tolerations": list(template.tolerations),
        "affinity": template.affinity,
        "priorityClassName": template.priority_class_name,
        "imagePullSecrets": list(template.image_pull_secrets),
    }
    return {"nodeSelector": dict(template.node_selector), **{name: each for name, each in said.items() if each}}


def access_to_store(store: BackupStore) -> list[Manifest]:
    """The environment by which a container may use an object store; none for a volume."""
    if store.s3 is None:
        return []
    env: list[Manifest] = [{"name": "AWS_REGION", "value": store.s3.region}]
    if store.s3.endpoint is not None:
        env.append({"name": "AWS_ENDPOINT_URL", "value": store.s3.endpoint})
    if store.s3.credentials_secret is not None:
        env += [_key_of(store.s3.credentials_secret, each) for each in CREDENTIALS]
    return env


def _key_of(secret: str, key: str) -> Manifest:
    return {"name": key, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
