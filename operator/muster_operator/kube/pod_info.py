"""Pods and their nodes as Kubernetes shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from muster_coordinator.security.tls import Tls
from muster_operator.kube.client import Json
from muster_operator.kube.external import endpoints, host_and_port
from muster_operator.kube.manifests import API_PORT, CLUSTER_LABEL, is_secured, pod_dns_name
from muster_operator.store.port import ClusterKey
from muster_operator.store.workload import PodInfo, PodPhase

ZONE_LABEL = "topology.kubernetes.io/zone"
TROUBLE_CHARACTERS = 500
"""Letters that are kept of the last message of a container: its end says why it ended."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as it was read last. `lost`: the API server hears nothing of its kubelet, or has no such node.
    `address`: at which clients outside reach it, as far as Kubernetes knows.
    """

    zone: str = ""
    cordoned: bool = False
    lost: bool = False
    address: str = ""


def is_made_by(raw: Json, name: str, uid: str) -> bool:
    """True if the StatefulSet of this name, and of this uid if that is known, is the pod's controller."""
    owners = (each for each in raw["metadata"].get("ownerReferences", ()) if each.get("controller"))
    return any(
        (each["kind"], each["name"]) == ("StatefulSet", name) and (not uid or each["uid"] == uid) for each in owners
    )


def cluster_of(raw: Json) -> ClusterKey:
    """The cluster that a labelled object belongs to."""
    return ClusterKey(raw["metadata"]["namespace"], raw["metadata"]["labels"][CLUSTER_LABEL])


def pod_info(
    raw: Json,
    revision: str = "",
    nodes: Mapping[str, Node] = {},
    services: Iterable[Json] = (),
    tls: Tls | None = None,
) -> PodInfo:
    """A pod of a StatefulSet as the planner sees it; the node id is the ordinal in its name.

    `revision`: of the declared template, "" if it is not known. `nodes`: by name. `services`: of the cluster. `tls`:
    for calls of pods that have certificates; None: it is not there yet, and such a pod is not called.
    """
    meta, status = raw["metadata"], raw.get("status", {})
    ip = status.get("podIP", "")
    key = cluster_of(raw)
    node = nodes.get(raw["spec"].get("nodeName", ""), Node())
    secured = is_secured(raw["spec"])
    return PodInfo(
        name=meta["name"],
        node_id=int(meta["name"].rpartition("-")[2]),
        uid=meta["uid"],
        api_address="" if secured and tls is None else _address(ip, API_PORT),
        kafka_address=_kafka_address(raw, ip, key),
        phase=_phase(meta, status),
        node=raw["spec"].get("nodeName", ""),
        zone=node.zone,
        cordoned=node.cordoned,
        node_lost=node.lost,
        image=raw["spec"]["containers"][0].get("image", ""),
        trouble=trouble_of(status),
        endpoints=endpoints(raw, services, node.address),
        tls=tls if secured else None,
        outdated=bool(revision) and meta["labels"].get("controller-revision-hash", revision) != revision,
    )


def node_of(raw: Json) -> Node:
    """A node that never said if it is ready is a new one, and not lost."""
    zone = raw["metadata"].get("labels", {}).get(ZONE_LABEL, "")
    conditions = raw.get("status", {}).get("conditions", ())
    ready = next((each["status"] for each in conditions if each["type"] == "Ready"), "True")
    cordoned = bool(raw.get("spec", {}).get("unschedulable"))
    return Node(zone, cordoned=cordoned, lost=ready != "True", address=_address_of_node(raw))


def _address_of_node(raw: Json) -> str:
    known = {each["type"]: each["address"] for each in raw.get("status", {}).get("addresses", ())}
    return next((known[kind] for kind in ("ExternalDNS", "ExternalIP", "InternalIP") if known.get(kind)), "")


def _phase(meta: dict[str, Any], status: dict[str, Any]) -> PodPhase:
    if meta.get("deletionTimestamp"):
        return PodPhase.TERMINATING
    phase = status.get("phase", "")
    states = [each.get("state", {}) for each in status.get("containerStatuses", ())]
    if phase == "Running" and any("terminated" in state or "waiting" in state for state in states):
        return PodPhase.PENDING  # its container ended, and waits for its restart
    # Succeeded cannot last under a StatefulSet; it is not running either.
    return PodPhase(phase) if phase in ("Pending", "Running", "Failed") else PodPhase.UNKNOWN


def trouble_of(status: Json) -> str:
    """The reason why the container does not run: what it waits for, and how it ended last."""
    for each in status.get("containerStatuses", ()):
        waiting = each.get("state", {}).get("waiting", {})
        ended = each.get("state", {}).get("terminated") or each.get("lastState", {}).get("terminated") or {}
        if not waiting and not each.get("state", {}).get("terminated"):
            continue
        why = [waiting.get("reason", ""), "" if ended else waiting.get("message", "")]
        if ended:
            why += [f"exit code {ended.get('exitCode')}", ended.get("message", "").strip()[-TROUBLE_CHARACTERS:]]
        return ": ".join(part for part in why if part)
    unschedulable = (each for each in status.get("conditions", ()) if each.get("reason") == "Unschedulable")
    return next((each.get("message", "") for each in unschedulable), "")


def _kafka_address(raw: Json, ip: str, key: ClusterKey) -> str:
    """The address that the pod advertises: its own environment says it, also if the cluster declares something else by
    now.
    """
    container = raw["spec"]["containers"][0]
    advertise = next((each["value"] for each in container.get("env", ()) if each["name"] == "MUSTER_ADVERTISE"), "")
    host, _, port = advertise.rpartition(":")
    if not port:
        return ""
    return (
        _address(ip, int(port))
        if host == "$(POD_IP)"
        else f"{pod_dns_name(raw['metadata']['name'], *_dns(key))}:{port}"
    )


def _dns(key: ClusterKey) -> tuple[str, str]:
    return key.name, key.namespace


def _address(ip: str, port: int) -> str:
    return host_and_port(ip, port) if ip else ""
