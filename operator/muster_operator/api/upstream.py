"""The Kafka cluster in front of which a CoordinatorCluster is: what its pods mirror, and the gateway for clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from muster_operator.api.listener_security import ListenerAuthentication, ListenerTls, SecretName
from muster_operator.api.meta import MAX_BROKER_IDS
from muster_operator.api.pod_template import PodTemplate, Resources

ADDRESS = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}"


class OutgoingTls(msgspec.Struct, frozen=True, rename="camel"):
    """TLS with servers: 1.2 and 1.3. A Secret that changes counts for new connections; no pod restarts."""

    ca_secret: Annotated[
        SecretName | None,
        Meta(description="Secret whose ca.crt has the CAs of the servers. If absent, those that the image knows."),
    ] = None
    certificate_secret: Annotated[
        SecretName | None,
        Meta(description="Secret of type kubernetes.io/tls: what a server is shown that asks for a certificate."),
    ] = None
    verify_host: Annotated[
        bool, Meta(description="Whether a server's certificate has to name the host that is dialled.")
    ] = True


class OutgoingSasl(msgspec.Struct, frozen=True, rename="camel"):
    """The login at servers."""

    mechanism: Annotated[
        Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"],
        Meta(description="Of SASL. PLAIN and OAUTHBEARER need tls."),
    ]
    secret: Annotated[
        SecretName,
        Meta(
            description="Secret with username and password (type kubernetes.io/basic-auth), for OAUTHBEARER with token."
            " A changed one counts for new connections; no pod restarts."
        ),
    ]


class Upstream(msgspec.Struct, frozen=True, rename="camel"):
    """A Kafka cluster whose groups the pods mirror. The OffsetsTopic has to have as many partitions as its
    `__consumer_offsets`."""

    bootstrap_servers: Annotated[
        str,
        Meta(
            pattern=f"^{ADDRESS}(,{ADDRESS})*$",
            max_length=1024,
            description="Some of its brokers, HOST:PORT between commas. The others are found from there.",
        ),
    ]
    served_groups: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^[^,\s]+$", min_length=1, max_length=249)], ...],
        Meta(
            max_length=50,
            description="Beginnings of the ids of groups that Muster coordinates; *: of all groups. All others are"
            " Kafka's. A group that Kafka has already begins anew here, so do not name its beginning.",
            extra_json_schema={"x-kubernetes-list-type": "set"},
        ),
    ] = ()
    movable_groups: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^[^,\s]+$", min_length=1, max_length=249)], ...],
        Meta(
            max_length=50,
            description="Beginnings of the ids of Kafka's groups that can move here while they run; *: of all. All"
            " their clients have to come by gateways, and their requests wait while no pod leads their partition."
            " Gateways have it as soon as all pods do. It can get shorter, but not empty: groups that have moved stay"
            " at this cluster, and go back to Kafka when they are named again.",
            extra_json_schema={"x-kubernetes-list-type": "set"},
        ),
    ] = ()
    tls: OutgoingTls | None = None
    sasl: OutgoingSasl | None = None

    def serves(self, group: str) -> bool:
        """True if Muster coordinates the group for good."""
        return _is_named(group, self.served_groups)

    def lets_move(self, group: str) -> bool:
        """True if the group can move from Kafka to Muster."""
        return _is_named(group, self.movable_groups)


def _is_named(group: str, beginnings: tuple[str, ...]) -> bool:
    return "*" in beginnings or group.startswith(beginnings)


class GatewayToPods(msgspec.Struct, frozen=True, rename="camel"):
    """The gateway's side of connections to pods: what the Internal listener asks of it."""

    tls: OutgoingTls | None = None
    sasl: OutgoingSasl | None = None
    act_for_clients: Annotated[
        bool,
        Meta(
            description="Whether ACLs of this cluster are asked about the clients of the gateway, and not about its own"
            " user: then muster.gateway.users of the settings names that one."
        ),
    ] = False


class Gateway(msgspec.Struct, frozen=True, rename="camel"):
    """Clients of the upstream use it as their cluster: a Deployment, and a Service with a port for each broker."""

    replicas: Annotated[
        int, Meta(ge=0, le=100, description="Number of gateway pods; any of them serves any client.")
    ] = 2
    type: Annotated[
        Literal["ClusterIP", "LoadBalancer"],
        Meta(description="Type of its Service. LoadBalancer: for clients outside; needs advertisedHost."),
    ] = "ClusterIP"
    advertised_host: Annotated[
        Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:-]+$", min_length=1, max_length=253)] | None,
        Meta(
            description="Host by which clients reach the Service. If absent, its name in the cluster's DNS, or its IP"
            " address where the Internal listener advertises PodIP."
        ),
    ] = None
    first_broker_id: Annotated[
        int, Meta(ge=0, le=2**31 - 1, description="Lowest node id of the upstream's brokers; it has port 9100.")
    ] = 0
    broker_ids: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_BROKER_IDS,
            description="How many node ids from there on have a port of the Service. A broker beyond is not shown to"
            " clients, and the gateway logs node_without_port.",
        ),
    ] = 32
    tls: ListenerTls | None = None
    authentication: ListenerAuthentication | None = None
    muster: GatewayToPods = GatewayToPods()
    annotations: Annotated[
        Mapping[str, str], Meta(description="Annotations of the Service, such as those of a load balancer.")
    ] = {}
    resources: Annotated[Resources, Meta(description="Compute resources of the gateway container, as in core/v1.")] = (
        Resources({"cpu": "100m", "memory": "128Mi"})
    )
    pod_template: PodTemplate = PodTemplate()
