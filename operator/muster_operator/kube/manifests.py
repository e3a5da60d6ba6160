"""The objects of a CoordinatorCluster in Kubernetes, as pure functions. They are applied server-side.

One StatefulSet with a volume per pod, a headless Service (pod names in DNS), a bootstrap Service for clients and a
PodDisruptionBudget. Every object is owned by the CoordinatorCluster, and goes with it; volumes of a StatefulSet stay.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from muster_operator.api.cluster_parts import ArchiveStorage
from muster_operator.api.models import GROUP, CoordinatorCluster, PodTemplate, Storage
from muster_operator.kube.objects import PART_OF, owned_by
from muster_operator.kube.pod_parts import access_to_store, mounts, placement, pod_security, spread, volumes
from muster_operator.store.backup_store import BACKUPS_DIRECTORY
from muster_operator.store.client_security import mounted_secrets
from muster_operator.store.workload import ARCHIVE_DIRECTORY, pod_settings

CLUSTER_LABEL = f"{GROUP}/cluster"
"""The label with the name of the CoordinatorCluster on every object of a cluster."""

DECLARED = f"{GROUP}/declared"
"""Annotation of the StatefulSet: the fingerprint of the declaration that its pod template was made of."""

CLAIM = "data"
"""Name of the claim of each pod in the StatefulSet's template."""
ARCHIVE = "archive"
"""Likewise of the second one, if an archive is declared."""

API_PORT = 9640
PEER_PORT = 9641
PROBE_PORT = 9642
METRICS_PORT = 9643
DATA_DIRECTORY = "/var/lib/muster"
TLS_DIRECTORY = "/etc/muster/tls"
GRACE_PERIOD_S = 30
"""The time that Kubernetes gives a pod to drain: `LONGEST_DRAIN_S` and some time to write."""

Manifest = dict[str, Any]


def manifests(
    cluster: CoordinatorCluster, default_image: str, *, secured: bool = False
) -> tuple[tuple[str, Manifest], ...]:
    """(collection path, object) of everything that belongs to a cluster, in the order in which to apply it. `secured`:
    the pods have certificates.
    """
    namespace = cluster.metadata.namespace
    return (
        (f"/api/v1/namespaces/{namespace}/services", headless_service(cluster)),
        (f"/api/v1/namespaces/{namespace}/services", bootstrap_service(cluster)),
        (f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", disruption_budget(cluster)),
        (f"/apis/apps/v1/namespaces/{namespace}/statefulsets", stateful_set(cluster, default_image, secured=secured)),
    )


def headless_service_name(cluster: str) -> str:
    """Name of the Service that gives each pod a DNS name."""
    return f"{cluster}-pods"


def bootstrap_service_name(cluster: str) -> str:
    """Name of the Service that clients bootstrap from."""
    return f"{cluster}-bootstrap"


def pod_secret_name(cluster: CoordinatorCluster) -> str:
    """Name of the Secret that all pods mount."""
    return cluster.spec.security.pod_secret or f"{cluster.metadata.name}-pod-tls"


def reader_secret_name(cluster: CoordinatorCluster) -> str:
    """Name of the Secret for the gateway, for pipelines and for other readers of segments."""
    return cluster.spec.security.reader_secret or f"{cluster.metadata.name}-reader-tls"


def pod_dns_name(pod: str, cluster: str, namespace: str) -> str:
    """The stable DNS name of a pod, relative to the cluster domain."""
    return f"{pod}.{headless_service_name(cluster)}.{namespace}.svc"


def headless_service(cluster: CoordinatorCluster) -> Manifest:
    """Resolves pods that are not ready too: the operator elects them before they are."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata_of(cluster, headless_service_name(cluster.metadata.name)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": selector(cluster),
            "ports": [
                _service_port(cluster),
                {"name": "api", "port": API_PORT, "targetPort": "api"},
                {"name": "peer", "port": PEER_PORT, "targetPort": "peer"},
                {"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"},
            ],
        },
    }


def bootstrap_service(cluster: CoordinatorCluster) -> Manifest:
    """The Service for the first connection of a client: every later one goes to the advertised address of a pod."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata_of(cluster, bootstrap_service_name(cluster.metadata.name)),
        "spec": {"type": "ClusterIP", "selector": selector(cluster), "ports": [_service_port(cluster)]},
    }


def disruption_budget(cluster: CoordinatorCluster) -> Manifest:
    """One pod at a time may be evicted: with one replica each is a gap, with three two at once lose a majority."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata_of(cluster, cluster.metadata.name),
        "spec": {
            "maxUnavailable": 1,
            # A pod that is not ready serves nobody: its node may be drained.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector(cluster)},
        },
    }


def stateful_set(cluster: CoordinatorCluster, default_image: str, *, secured: bool = False) -> Manifest:
    """All pods start at once: coordinators do not wait for one another."""
    spec = cluster.spec
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            **metadata_of(cluster, cluster.metadata.name),
            "annotations": {DECLARED: _fingerprint(cluster, default_image)},
        },
        "spec": {
            "serviceName": headless_service_name(cluster.metadata.name),
            "replicas": spec.pods,
            "podManagementPolicy": "Parallel",
            # The operator replaces pods, one at a time, after it has moved their leaders (ADR 5).
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": selector(cluster)},
            # The log is the data: scaling down never drops it, and deleting the cluster only if that is declared.
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": spec.deletion_policy, "whenScaled": "Retain"},
            "template": {
                "metadata": {
                    "labels": {**spec.pod_template.labels, **own_labels(cluster)},
                    "annotations": dict(spec.pod_template.annotations),
                },
                "spec": _pod_spec(cluster, default_image, secured=secured),
            },
            "volumeClaimTemplates": [_claim(*each) for each in claims_of(cluster)],
        },
    }


def claims_of(cluster: CoordinatorCluster) -> tuple[tuple[str, Storage | ArchiveStorage], ...]:
    """Name of each claim of a pod, and what is declared of it."""
    storage = cluster.spec.storage
    return ((CLAIM, storage), *(((ARCHIVE, storage.archive),) if storage.archive is not None else ()))


def _claim(name: str, storage: Storage | ArchiveStorage) -> Manifest:
    spec: Manifest = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage.size}}}
    if storage.storage_class_name is not None:
        spec["storageClassName"] = storage.storage_class_name
    return {"metadata": {"name": name}, "spec": spec}


def with_present_template(
    manifest: Manifest, live: Manifest | None, applied: Manifest | None = None, *, keep: bool = False
) -> Manifest:
    """The StatefulSet or Deployment with the pod template of the `live` one if that was made of the same declaration,
    maybe by another version of the operator, which is no reason to replace a pod; or if it is to be kept in any case.

    What this operator has `applied` of the same declaration counts in place of the live one: somebody may have edited
    or deleted that.
    """
    if applied is not None and (live is None or _made_of(live) == _made_of(applied)):
        live = applied
    if live is None:
        return manifest
    made_of = _made_of(live)
    gains_certificates = _is_secured_set(manifest) and not _is_secured_set(live)
    if not keep and (made_of != _made_of(manifest) or gains_certificates):
        return manifest
    return {
        **manifest,
        "metadata": {**manifest["metadata"], "annotations": {DECLARED: made_of}},
        "spec": {**manifest["spec"], "template": live["spec"]["template"]},
    }


def _made_of(manifest: Manifest) -> str:
    """The fingerprint of the declaration that the pod template was made of."""
    return str(manifest["metadata"].get("annotations", {}).get(DECLARED, ""))


def with_present_claims(manifest: Manifest, live: Manifest) -> Manifest:
    """The StatefulSet with the sizes that the claim templates of the `live` one were made with: they stay."""
    made = {each["metadata"]["name"]: each["spec"]["resources"] for each in live["spec"]["volumeClaimTemplates"]}
    claims = [
        {**each, "spec": {**each["spec"], "resources": {"requests": {"storage": made[name]["requests"]["storage"]}}}}
        if (name := each["metadata"]["name"]) in made
        else each
        for each in manifest["spec"]["volumeClaimTemplates"]
    ]
    return {**manifest, "spec": {**manifest["spec"], "volumeClaimTemplates": claims}}


def is_secured(pod_spec: Manifest) -> bool:
    """True if these pods have certificates: their API and peer network are on mutual TLS."""
    return any(each["name"] == "MUSTER_TLS_DIR" for each in pod_spec["containers"][0].get("env", ()))


def _is_secured_set(stateful_set: Manifest) -> bool:
    return is_secured(stateful_set["spec"]["template"]["spec"])


def may_be_secured(live: Manifest | None) -> bool:
    """True if the pods of the `live` StatefulSet can have certificates. Plain pods and others do not hear each other,
    so pods that run stay plain until there are none (`spec.hibernate`)."""
    return live is None or _is_secured_set(live) or not live["spec"].get("replicas")


def _fingerprint(cluster: CoordinatorCluster, default_image: str) -> str:
    """A hash of all that a person declares of the pod template, and of nothing that is as it is by default: a later
    version of the operator has more fields, and must not take their defaults for a change.
    """
    spec = cluster.spec
    said: Manifest = {
        "image": spec.image or default_image,
        "imagePullPolicy": spec.image_pull_policy,
        "advertise": spec.internal.advertise,
        "listeners": [(each.name, each.port) for each in spec.listeners],
        "settings": pod_settings(cluster),
        "secrets": mounted_secrets(cluster),
        "resources": spec.resources,
        "podTemplate": spec.pod_template,
        "podSecret": spec.security.pod_secret,
        "store": (access_to_store(spec.site.store), spec.site.store.claim) if spec.site is not None else None,
    }
    return fingerprint(said)


def fingerprint(said: Manifest) -> str:
    """A hash of what is said; where a template says nothing, it is as it is by default."""
    known = {name: _beyond_defaults(each) if isinstance(each, PodTemplate) else each for name, each in said.items()}
    declared = {name: each for name, each in known.items() if each}
    return hashlib.sha256(msgspec.json.encode(declared, order="deterministic")).hexdigest()[:16]


def _beyond_defaults(struct: msgspec.Struct) -> Manifest:
    fields = msgspec.structs.fields(struct)
    return {each.name: value for each in fields if (value := getattr(struct, each.name)) != _default_of(each)}


def _default_of(field: msgspec.structs.FieldInfo) -> object:
    """The value of a field that nobody has set."""
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _pod_spec(cluster: CoordinatorCluster, default_image: str, *, secured: bool) -> Manifest:
    container = _container(cluster, default_image, cluster.metadata.name)
    secrets = dict(mounted_secrets(cluster))
    if secured:
        meta = cluster.metadata
        container["env"] += [
            {"name": "MUSTER_TLS_DIR", "value": TLS_DIRECTORY},
            {"name": "MUSTER_CLUSTER", "value": f"{meta.namespace}/{meta.name}"},
            # Prometheus has no certificate of the cluster; who reaches the port is up to the NetworkPolicies.
            {"name": "MUSTER_METRICS_PLAIN", "value": "1"},
        ]
        container["volumeMounts"].append({"name": "tls", "mountPath": TLS_DIRECTORY, "readOnly": True})
        secrets["tls"] = pod_secret_name(cluster)
    more: list[Manifest] = []
    if site := cluster.spec.site:
        container["env"] += access_to_store(site.store)
        if site.store.claim is not None:
            claim = {"claimName": site.store.claim, "readOnly": True}
            more.append({"name": "backups", "persistentVolumeClaim": claim})
            container["volumeMounts"].append({"name": "backups", "mountPath": BACKUPS_DIRECTORY, "readOnly": True})
    return {
        "automountServiceAccountToken": False,  # a pod never talks to the Kubernetes API
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_PERIOD_S,
        **placement(cluster.spec.pod_template),
        "securityContext": {"fsGroupChangePolicy": "OnRootMismatch", **pod_security(cluster.spec.pod_template)},
        "topologySpreadConstraints": spread(cluster.spec.pod_template, selector(cluster)),
        "containers": [container],
        **volumes(secrets, cluster.spec.pod_template, more),
    }


def _container(cluster: CoordinatorCluster, default_image: str, name: str) -> Manifest:
    spec = cluster.spec
    kafka = spec.internal
    host = "$(POD_IP)"
    if kafka.advertise != "PodIP":
        host = pod_dns_name("$(MUSTER_POD)", name, cluster.metadata.namespace)
    more = "\n".join(f"{each.name}=0.0.0.0:{each.port}" for each in spec.external)
    settings = "\n".join(f"{key}={value}" for key, value in sorted(pod_settings(cluster).items()))
    return {
        "name": "coordinator",
        "image": spec.image or default_image,
        "imagePullPolicy": spec.image_pull_policy,
        "command": ["muster-coordinator"],
        "env": [
            # $(NAME) refers to variables above only.
            _downward("MUSTER_POD", "metadata.name"),
            _downward("MUSTER_POD_UID", "metadata.uid"),
            _downward("POD_IP", "status.podIP"),
            {"name": "MUSTER_DATA_DIR", "value": f"{DATA_DIRECTORY}/data"},
            {"name": "MUSTER_KAFKA_LISTEN", "value": f"0.0.0.0:{kafka.port}"},
            {"name": "MUSTER_ADVERTISE", "value": f"{host}:{kafka.port}"},
            *([{"name": "MUSTER_LISTENERS", "value": more}] if more else []),
            {"name": "MUSTER_API_LISTEN", "value": f"0.0.0.0:{API_PORT}"},
            {"name": "MUSTER_PEER_LISTEN", "value": f"0.0.0.0:{PEER_PORT}"},
            # Ports of their own: scrapers and probes need not reach the API.
            {"name": "MUSTER_PROBE_LISTEN", "value": f"0.0.0.0:{PROBE_PORT}"},
            {"name": "MUSTER_METRICS_LISTEN", "value": f"0.0.0.0:{METRICS_PORT}"},
            {"name": "MUSTER_PEER_ADVERTISE", "value": f"$(POD_IP):{PEER_PORT}"},
            {"name": "MUSTER_CONFIG", "value": settings},
        ],
        "ports": [
            {"name": "kafka", "containerPort": kafka.port, "protocol": "TCP"},
            *({"name": each.name, "containerPort": each.port, "protocol": "TCP"} for each in spec.external),
            {"name": "api", "containerPort": API_PORT, "protocol": "TCP"},
            {"name": "peer", "containerPort": PEER_PORT, "protocol": "TCP"},
            {"name": "probes", "containerPort": PROBE_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
        ],
        # A slow start (recovery of a long log) is no reason to kill; a pod that is not ready is still elected.
        "startupProbe": _probe("started", period=1, failures=600),
        "readinessProbe": _probe("ready", period=2, failures=2),
        "livenessProbe": _probe("live", period=10, failures=6),
        "resources": {"requests": dict(spec.resources.requests), "limits": dict(spec.resources.limits)},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": CLAIM, "mountPath": DATA_DIRECTORY},
            *([{"name": ARCHIVE, "mountPath": ARCHIVE_DIRECTORY}] if spec.storage.archive is not None else []),
            *mounts(mounted_secrets(cluster), spec.pod_template),
        ],
    }


def _probe(which: str, *, period: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": f"/healthz/{which}", "port": "probes"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _downward(name: str, field: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}


def _service_port(cluster: CoordinatorCluster) -> Manifest:
    return {"name": "kafka", "port": cluster.spec.internal.port, "targetPort": "kafka"}


def selector(cluster: CoordinatorCluster) -> dict[str, str]:
    """The labels by which the pods of the cluster are found."""
    return {"app.kubernetes.io/name": "muster-coordinator", CLUSTER_LABEL: cluster.metadata.name}


def own_labels(cluster: CoordinatorCluster) -> dict[str, str]:
    """The labels of every object of the cluster."""
    return {
        **selector(cluster),
        "app.kubernetes.io/instance": cluster.metadata.name,
        **PART_OF,
        "app.kubernetes.io/managed-by": "muster-operator",
    }


def metadata_of(cluster: CoordinatorCluster, name: str) -> Manifest:
    """The metadata of an object that belongs to the cluster."""
    return {
        "name": name,
        "namespace": cluster.metadata.namespace,
        "labels": own_labels(cluster),
        "ownerReferences": [owned_by(cluster)],
    }
