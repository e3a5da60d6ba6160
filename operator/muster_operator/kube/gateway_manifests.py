"""The objects of a CoordinatorCluster's gateway in Kubernetes, as pure functions: a Service, a PodDisruptionBudget
and a Deployment (ADR 37).

One Service has a port for each broker id and for each pod: all gateway pods are alike, so whichever of them a client
reaches, the port alone says which node it means. No address changes when gateway pods do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from muster_operator.api.models import GROUP, CoordinatorCluster, Gateway
from muster_operator.kube.external import host_and_port
from muster_operator.kube.manifests import (
    API_PORT,
    DECLARED,
    METRICS_PORT,
    Manifest,
    bootstrap_service_name,
    fingerprint,
    is_secured,
    metadata_of,
    reader_secret_name,
)
from muster_operator.kube.objects import PART_OF
from muster_operator.kube.pod_parts import mounts, placement, pod_security, spread, volumes
from muster_operator.store.client_security import USERS
from muster_operator.store.outgoing import MUSTER, ROOT, UPSTREAM, outgoing_secrets, outgoing_settings
from muster_operator.store.workload import MOVABLE

GATEWAY_LABEL = f"{GROUP}/gateway"
"""The label on the pods of a gateway, in place of that of the cluster's own pods: autoscalers select by that one."""

TLS_VOLUME = "gateway-tls"
"""The volume with the listener's Secret."""

READER_VOLUME = "pod-api"
"""The volume with the certificate for the pods' APIs."""
_CONFIG = "MUSTER_GATEWAY_CONFIG"
_MOVABLE = "muster.movable.groups"

BOOTSTRAP_PORT = 9092
BROKER_PORTS = 9100
POD_PORTS = 9500
READY_PORT = 9642


def gateway_name(cluster: str) -> str:
    """The name of the Deployment, the Service and the budget."""
    return f"{cluster}-gateway"


def gateway_of(cluster: CoordinatorCluster) -> Gateway:
    """The declared one, which there is."""
    assert cluster.spec.gateway is not None
    return cluster.spec.gateway


def gateway_service(cluster: CoordinatorCluster) -> tuple[str, Manifest]:
    """(collection path, Service). Also while no pod of Muster runs it has their ports: clients may ask there."""
    gateway, namespace = gateway_of(cluster), cluster.metadata.namespace
    ports = {"kafka": BOOTSTRAP_PORT}
    ports |= {f"broker-{gateway.first_broker_id + n}": BROKER_PORTS + n for n in range(gateway.broker_ids)}
    ports |= {f"pod-{n}": POD_PORTS + n for n in range(cluster.spec.pods)}
    meta = metadata_of(cluster, gateway_name(cluster.metadata.name))
    return f"/api/v1/namespaces/{namespace}/services", {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**meta, "annotations": dict(gateway.annotations)},
        "spec": {
            "type": gateway.type,
            "selector": gateway_selector(cluster),
            "ports": [{"name": name, "port": port, "targetPort": port} for name, port in ports.items()],
        },
    }


def gateway_budget(cluster: CoordinatorCluster) -> tuple[str, Manifest]:
    """(collection path, PodDisruptionBudget): one pod at a time, whose clients connect again elsewhere."""
    namespace = cluster.metadata.namespace
    return f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata_of(cluster, gateway_name(cluster.metadata.name)),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": gateway_selector(cluster)},
        },
    }


@dataclass(frozen=True, slots=True)
class Moving:
    """The settings of a gateway for groups that can move: the beginnings of their ids, and whether the pods' APIs have
    TLS."""

    prefixes: tuple[str, ...] = ()
    secured: bool = False


def moving_of(cluster: CoordinatorCluster, pods: Iterable[Manifest], live: Manifest | None, *, new: bool) -> Moving:
    """The part of the declaration that the gateway gets: the one that every pod has by now. A gateway that had it
    earlier would let these groups wait until the last leader is replaced. What the `live` Deployment has it keeps while
    it is declared, and until there is something in its place: a gateway without any asks no pod which groups have
    moved, and sends them to Kafka. A new one has what is declared if pods have other lists. `new`: whether pods
    that are still to be made have TLS.
    """
    upstream, specs = cluster.spec.upstream, [each["spec"] for each in pods]
    declared = upstream.movable_groups if upstream is not None else ()
    at_pods = [_named(spec, "MUSTER_CONFIG", MOVABLE) for spec in specs]
    kept = _named(live["spec"]["template"]["spec"], _CONFIG, _MOVABLE) if live is not None else ()
    prefixes = tuple(each for each in declared if each in kept or all(each in had for had in at_pods))
    prefixes = prefixes or kept or (declared if all(at_pods) else ())
    return Moving(prefixes, any(map(is_secured, specs)) if specs else new)


def _named(pod_spec: Manifest, variable: str, setting: str) -> tuple[str, ...]:
    """The entries of a list among the settings of a pod."""
    environment = pod_spec["containers"][0].get("env", ())
    text = next((each.get("value", "") for each in environment if each["name"] == variable), "")
    settings = dict(line.partition("=")[::2] for line in text.splitlines())
    return tuple(filter(None, settings.get(setting, "").split(",")))


def gateway_deployment(
    cluster: CoordinatorCluster, image: str, addresses: Mapping[str, str], moving: Moving
) -> tuple[str, Manifest]:
    """(collection path, Deployment). `addresses`: IP addresses of Services, for clients without cluster DNS."""
    gateway, meta = gateway_of(cluster), cluster.metadata
    settings = {**gateway_settings(cluster, addresses), **_moving_settings(cluster, moving)}
    secrets = _secrets(cluster, moving)
    said = {
        "image": image,
        "imagePullPolicy": cluster.spec.image_pull_policy,
        "settings": settings,
        "resources": gateway.resources,
        "podTemplate": gateway.pod_template,
        "secrets": secrets,
    }
    return f"/apis/apps/v1/namespaces/{meta.namespace}/deployments", {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**metadata_of(cluster, gateway_name(meta.name)), "annotations": {DECLARED: fingerprint(said)}},
        "spec": {
            "replicas": gateway.replicas,
            # A new pod is ready before an old one ends, and its clients find another one at once.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "selector": {"matchLabels": gateway_selector(cluster)},
            "template": {
                "metadata": {
                    "labels": {**gateway.pod_template.labels, **gateway_selector(cluster), **PART_OF},
                    "annotations": dict(gateway.pod_template.annotations),
                },
                "spec": _pod_spec(cluster, image, settings, secrets),
            },
        },
    }


def gateway_settings(cluster: CoordinatorCluster, addresses: Mapping[str, str]) -> dict[str, str]:
    """The settings of each gateway process."""
    gateway, upstream = gateway_of(cluster), cluster.spec.upstream
    assert upstream is not None
    host = gateway.advertised_host or _host(cluster, gateway_name(cluster.metadata.name), addresses)
    muster = _host(cluster, bootstrap_service_name(cluster.metadata.name), addresses)
    serves = upstream.served_groups or upstream.movable_groups
    return {
        "upstream.bootstrap.servers": upstream.bootstrap_servers,
        "muster.bootstrap.servers": host_and_port(muster, cluster.spec.internal.port) if serves else "",
        "muster.groups": ",".join(upstream.served_groups),
        "muster.transactions": "1",  # the pods mirror the upstream
        "advertised.host": host,
        "bootstrap.port": str(BOOTSTRAP_PORT),
        "broker.port.base": str(BROKER_PORTS),
        "broker.first.id": str(gateway.first_broker_id),
        "broker.ids": str(gateway.broker_ids),
        "pod.port.base": str(POD_PORTS),
        "ready.port": str(READY_PORT),
        "metrics.port": str(METRICS_PORT),
        **outgoing_settings("upstream.", UPSTREAM, upstream.tls, upstream.sasl),
        **outgoing_settings("muster.", MUSTER, gateway.muster.tls, gateway.muster.sasl),
        **_asked_of_clients(gateway),
    }


def _moving_settings(cluster: CoordinatorCluster, moving: Moving) -> dict[str, str]:
    if not moving.prefixes:
        return {}
    meta = cluster.metadata
    tls = {"muster.api.tls.dir": f"{ROOT}/{READER_VOLUME}", "muster.api.cluster": f"{meta.namespace}/{meta.name}"}
    found = {_MOVABLE: ",".join(moving.prefixes), "muster.api.port": str(API_PORT)}
    return {**found, **(tls if moving.secured else {})}


def _asked_of_clients(gateway: Gateway) -> dict[str, str]:
    """The settings of what clients are asked; none where nothing is."""
    found: dict[str, str] = {}
    if gateway.muster.act_for_clients:
        found["muster.act.for.clients"] = "1"
    if gateway.tls is not None:
        found["listener.tls.dir"] = f"{ROOT}/{TLS_VOLUME}"
        found["ssl.client.auth"] = gateway.tls.client_auth
        found["ssl.principal.mapping.rules"] = gateway.tls.principal_mapping_rules
    if gateway.authentication is not None:
        found["sasl.enabled.mechanisms"] = ",".join(gateway.authentication.mechanisms)
        found["muster.users.file"] = f"{ROOT}/{USERS}/users.json"
    return found


def _secrets(cluster: CoordinatorCluster, moving: Moving) -> dict[str, str]:
    """Name of a volume -> Secret, which a kubelet exchanges in place and the gateway reads again."""
    gateway, upstream, access = gateway_of(cluster), cluster.spec.upstream, cluster.spec.access
    assert upstream is not None
    found = {
        **outgoing_secrets(UPSTREAM, upstream.tls, upstream.sasl),
        **outgoing_secrets(MUSTER, gateway.muster.tls, gateway.muster.sasl),
    }
    if gateway.tls is not None:
        found[TLS_VOLUME] = gateway.tls.secret
    if gateway.authentication is not None and access.users_secret is not None:
        found[USERS] = access.users_secret
    if moving.prefixes and moving.secured:
        found[READER_VOLUME] = reader_secret_name(cluster)
    return found


def gateway_bootstrap(cluster: CoordinatorCluster, addresses: Mapping[str, str]) -> str:
    """bootstrap.servers for its clients."""
    return host_and_port(gateway_settings(cluster, addresses)["advertised.host"], BOOTSTRAP_PORT)


def gateway_selector(cluster: CoordinatorCluster) -> dict[str, str]:
    """The labels by which the gateway's pods are found."""
    return {"app.kubernetes.io/name": "muster-gateway", GATEWAY_LABEL: cluster.metadata.name}


def _host(cluster: CoordinatorCluster, service: str, addresses: Mapping[str, str]) -> str:
    if cluster.spec.internal.advertise == "PodIP":
        return addresses[service]
    return f"{service}.{cluster.metadata.namespace}.svc"


def _pod_spec(
    cluster: CoordinatorCluster, image: str, settings: Mapping[str, str], secrets: Mapping[str, str]
) -> Manifest:
    gateway = gateway_of(cluster)
    mounted = mounts(secrets, gateway.pod_template)
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **placement(gateway.pod_template),
        "securityContext": pod_security(gateway.pod_template),
        "topologySpreadConstraints": spread(gateway.pod_template, gateway_selector(cluster)),
        "containers": [
            {
                "name": "gateway",
                "image": image,
                "imagePullPolicy": cluster.spec.image_pull_policy,
                "command": ["muster-gateway"],
                "env": [
                    {
                        "name": _CONFIG,
                        "value": "\n".join(f"{name}={value}" for name, value in settings.items()),
                    }
                ],
                "ports": [
                    {"name": "kafka", "containerPort": BOOTSTRAP_PORT, "protocol": "TCP"},
                    {"name": "ready", "containerPort": READY_PORT, "protocol": "TCP"},
                    {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
                ],
                # Not a liveness probe: a gateway whose brokers are away has nothing that a restart would mend.
                "readinessProbe": {"tcpSocket": {"port": "ready"}, "periodSeconds": 1, "failureThreshold": 2},
                "resources": {
                    "requests": dict(gateway.resources.requests),
                    "limits": dict(gateway.resources.limits),
                },
                **({"volumeMounts": mounted} if mounted else {}),
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
        **volumes(secrets, gateway.pod_template),
    }
