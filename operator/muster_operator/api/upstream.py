"""The Kafka cluster in front of which a CoordinatorCluster is: what its pods mirror, and the gateway for clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from muster_operator.api.meta import MAX_BROKER_IDS
from muster_operator.api.pod_template import PodTemplate, Resources

ADDRESS = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}"


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
    annotations: Annotated[
        Mapping[str, str], Meta(description="Annotations of the Service, such as those of a load balancer.")
    ] = {}
    resources: Annotated[Resources, Meta(description="Compute resources of the gateway container, as in core/v1.")] = (
        Resources({"cpu": "100m", "memory": "128Mi"})
    )
    pod_template: PodTemplate = PodTemplate()
