"""Parts of what a CoordinatorCluster declares: volumes, listeners, topics, failover times, certificates, rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from muster_operator.api.listener_security import ListenerAuthentication, ListenerTls
from muster_operator.api.meta import MAX_PODS, Duration, Quantity, rules


class ArchiveStorage(msgspec.Struct, frozen=True, rename="camel"):
    """A second volume of each pod, for its archive (muster.archive.dir): closed segments as they were before
    compaction. Set when the cluster is created."""

    size: Annotated[
        Quantity, Meta(description="Size of the archive of each pod, such as 100Gi. Raised, the volumes grow online.")
    ] = "10Gi"
    storage_class_name: Annotated[
        str | None,
        Meta(description="StorageClass of the archives; the default class of the Kubernetes cluster if absent."),
    ] = None


class Storage(msgspec.Struct, frozen=True, rename="camel"):
    """The PersistentVolumeClaim of each pod."""

    size: Annotated[
        Quantity, Meta(description="Size of the volume of each pod, such as 10Gi. Raised, the volumes grow online.")
    ] = "10Gi"
    storage_class_name: Annotated[
        str | None,
        Meta(description="StorageClass of the volumes; the default class of the Kubernetes cluster if absent."),
    ] = None
    archive: Annotated[
        ArchiveStorage | None,
        Meta(
            extra_json_schema=rules(
                (
                    "has(self.storageClassName) == has(oldSelf.storageClassName)"
                    " && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",
                    "archive.storageClassName is immutable: volumes stay where they are",
                )
            )
        ),
    ] = None
    give_up_after: Annotated[
        Duration,
        Meta(
            description="A volume that only one node can use is given up when that node has not existed, or has been"
            " tainted as out of service, for this time, and all that the volume has is on other pods: its claim is"
            " deleted, and the pod gets an empty volume elsewhere. 0s: never; a person decides."
        ),
    ] = "0s"


TAKEN_NAMES = ("kafka", "api", "peer", "probes", "metrics", "pods", "bootstrap")
"""Names of ports of a pod and of Services: no listener has one of them."""


class Listener(msgspec.Struct, frozen=True, rename="camel"):
    """A listener of every pod for Kafka clients, and how they reach each pod."""

    name: Annotated[
        str, Meta(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=15, description="Its name: a DNS label.")
    ]
    port: Annotated[int, Meta(ge=1, le=65535, description="Port of the listener on every pod.")] = 9092
    type: Annotated[
        Literal["Internal", "NodePort", "LoadBalancer"],
        Meta(
            description="Internal: clients in the pods' network. NodePort, LoadBalancer: clients outside; each pod gets"
            " a Service of that type, and they are told its address."
        ),
    ] = "Internal"
    advertise: Annotated[
        Literal["PodDNS", "PodIP"] | None,
        Meta(
            description="What clients of an Internal listener are told to connect to: the pod's stable DNS name (if"
            " absent), or its IP address (for clients without cluster DNS; changes when the pod is replaced)."
        ),
    ] = None
    first_node_port: Annotated[
        Annotated[int, Meta(ge=1, le=65535)] | None,
        Meta(
            description="NodePort only: port of pod 0 on every node; pod N has the N-th after it. Kubernetes chooses"
            " free ones if absent."
        ),
    ] = None
    annotations: Annotated[
        Mapping[str, str], Meta(description="Annotations of the Services, such as those of a load balancer.")
    ] = {}
    tls: ListenerTls | None = None
    authentication: ListenerAuthentication | None = None


class DeclaredTopic(msgspec.Struct, frozen=True, rename="camel"):
    """A topic of the data cluster that groups may subscribe to and commit offsets for."""

    name: Annotated[
        str, Meta(pattern=r"^[a-zA-Z0-9._-]+$", min_length=1, max_length=249, description="Kafka's name of the topic.")
    ]
    partitions: Annotated[int, Meta(ge=1, le=100_000, description="Number of its partitions.")]


class Failover(msgspec.Struct, frozen=True, rename="camel"):
    """Every time of failover. Heartbeats of pods, 200 ms apart, are what the others are measured against."""

    suspect_after: Annotated[
        Duration,
        Meta(
            description="A pod whose status stream is silent for longer is suspected. It counts as dead when most of"
            " the other pods with replicas of a partition do not hear it either; at once when it refuses connections."
        ),
    ] = "1s"
    election_timeout: Annotated[
        Duration, Meta(description="An election call that took longer is given up and planned again.")
    ] = "10s"
    rebalance_after: Annotated[
        Duration,
        Meta(
            description="Partitions go back to their preferred leaders when no pod has come or gone for this time. 0s:"
            " never."
        ),
    ] = "10s"
    replace_after: Annotated[
        Duration,
        Meta(
            description="Replicas of a pod that has been away for this time are replaced on another pod, if there is"
            " one that does not hold the partition yet. 0s: never. A lost volume is replaced at once."
        ),
    ] = "10m"
    nominate_after: Annotated[
        Duration,
        Meta(
            description="Replicas that have heard neither operator nor leader for this time (up to twice as long) elect"
            " one of themselves. 0s: never."
        ),
    ] = "10s"


DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

ClockTime = Annotated[str, Meta(pattern="^([01][0-9]|2[0-3]):[0-5][0-9]$", max_length=5)]
"""A time of the day, such as 22:30."""


class Window(msgspec.Struct, frozen=True, rename="camel"):
    """A time of the day."""

    start: Annotated[ClockTime, Meta(description="When it opens, such as 22:00.")]
    end: Annotated[ClockTime, Meta(description="When it closes; on the next day if it is not after start.")]
    days: Annotated[
        tuple[Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], ...],
        Meta(max_length=7, description="Days on which it opens; every day if empty."),
    ] = ()
    time_zone: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=64,
            description="IANA name of the time zone of start and end, such as Europe/Berlin.",
            extra_json_schema=rules(
                (
                    "timestamp('2000-01-01T00:00:00Z').getHours(self) >= 0",
                    "timeZone must be the name of an IANA time zone, such as Europe/Berlin",
                )
            ),
        ),
    ] = "UTC"


class Security(msgspec.Struct, frozen=True, rename="camel"):
    """Certificates of the pod API and of the network between pods."""

    pod_secret: Annotated[
        Annotated[str, Meta(min_length=1, max_length=253)] | None,
        Meta(
            description="Secret of type kubernetes.io/tls (tls.crt, tls.key, ca.crt) for the pods, with the URI"
            " muster://NAMESPACE/NAME/pod/* in its subject alternative names. If absent, the operator makes one."
        ),
    ] = None
    operator_secret: Annotated[
        Annotated[str, Meta(min_length=1, max_length=253)] | None,
        Meta(
            description="Likewise for the operator, with muster://NAMESPACE/NAME/operator; it needs the right to get it"
            " (operator.secrets of the chart)."
        ),
    ] = None
    reader_secret: Annotated[
        Annotated[str, Meta(min_length=1, max_length=253)] | None,
        Meta(
            description="Likewise for the gateway, with muster://NAMESPACE/NAME/reader: it asks pods about groups that"
            " can move."
        ),
    ] = None
    ca_round: Annotated[
        int,
        Meta(
            ge=0,
            description="One more: the operator exchanges its CA and all certificates, in steps and without a restart.",
        ),
    ] = 0


class Rollout(msgspec.Struct, frozen=True, rename="camel"):
    """The replacement of pods when image, settings or template change."""

    paused: Annotated[
        bool, Meta(description="Replace no pod. Everything else goes on, failover and lost volumes too.")
    ] = False
    window: Annotated[
        Window | None,
        Meta(
            description="Pods that serve are replaced only while it is open; at any time if absent. Everything else"
            " goes on, failover and lost volumes too."
        ),
    ] = None
    restart: Annotated[
        Mapping[str, Annotated[str, Meta(max_length=64)]],
        Meta(
            max_length=MAX_PODS,
            description="Pods to replace although their template is the declared one, one at a time like the others:"
            " by name, the uid of the pod that shall go. So it is spent as soon as there is another pod of that name."
            " `muster restart` sets it.",
        ),
    ] = {}
