"""Listeners for clients outside the Kubernetes cluster: a Service for each pod, and the addresses that come of it.

A client is told an address for each pod, because it has to reach the very pod that leads its group. So one Service in
front of all pods would not do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from muster_operator.api.models import GROUP, CoordinatorCluster, Listener
from muster_operator.kube.client import Json
from muster_operator.kube.manifests import Manifest, metadata_of, selector

LISTENER_LABEL = f"{GROUP}/listener"
"""The label with a listener's name on its Services."""

POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"


def external_services(cluster: CoordinatorCluster) -> Iterator[tuple[str, Manifest]]:
    """(collection path, Service) of each pod and each listener that is not internal."""
    for listener in cluster.spec.external:
        for ordinal in range(cluster.spec.pods):
            yield f"/api/v1/namespaces/{cluster.metadata.namespace}/services", _service(cluster, listener, ordinal)


def service_name(cluster: str, listener: str, ordinal: int) -> str:
    """The name of the Service of one pod."""
    return f"{cluster}-{listener}-{ordinal}"


def _service(cluster: CoordinatorCluster, listener: Listener, ordinal: int) -> Manifest:
    meta = metadata_of(cluster, service_name(cluster.metadata.name, listener.name, ordinal))
    port: Manifest = {"name": listener.name, "port": listener.port, "targetPort": listener.name}
    if listener.first_node_port is not None:
        port["nodePort"] = listener.first_node_port + ordinal
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            **meta,
            "labels": {**meta["labels"], LISTENER_LABEL: listener.name},
            "annotations": dict(listener.annotations),
        },
        "spec": {
            "type": listener.type,
            # The operator elects a pod before it is ready.
            "publishNotReadyAddresses": True,
            "selector": {**selector(cluster), POD_NAME_LABEL: f"{cluster.metadata.name}-{ordinal}"},
            "ports": [port],
        },
    }


def surplus(cluster: CoordinatorCluster, services: Iterable[Json]) -> Iterator[Json]:
    """Those of the Services that belong to listeners or pods that are not declared any more. A cluster that hibernates
    keeps its own, so that its addresses stay."""
    wanted = {each["metadata"]["name"] for _, each in external_services(cluster)}
    listeners = {each.name for each in cluster.spec.external}
    for service in services:
        listener = service["metadata"]["labels"].get(LISTENER_LABEL)
        if listener is None or service["metadata"]["name"] in wanted:
            continue
        if not (cluster.spec.hibernate and listener in listeners):
            yield service


def endpoints(pod: Json, services: Iterable[Json], node_address: str) -> Mapping[str, str]:
    """The addresses (host:port) of a pod by listener, as far as it listens there and the address is known."""
    meta = pod["metadata"]
    cluster, _, ordinal = meta["name"].rpartition("-")
    listens = {each["name"] for container in pod["spec"]["containers"] for each in container.get("ports", ())}
    found = {}
    for service in services:
        listener = service["metadata"]["labels"].get(LISTENER_LABEL, "")
        ours = service["metadata"]["name"] == service_name(cluster, listener, int(ordinal))
        if ours and listener in listens and (address := _address(service, node_address)):
            found[listener] = address
    return found


def _address(service: Json, node_address: str) -> str:
    (port,) = service["spec"]["ports"]
    if service["spec"]["type"] == "NodePort":
        return host_and_port(node_address, port.get("nodePort", 0)) if node_address else ""
    for ingress in service.get("status", {}).get("loadBalancer", {}).get("ingress", ()):
        return host_and_port(ingress.get("hostname") or ingress["ip"], port["port"])
    return ""


def host_and_port(host: str, port: int) -> str:
    """An address, with brackets around IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
