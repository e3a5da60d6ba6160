"""The CoordinatorCluster: pods, listeners, failover times; and what the operator says of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from muster_operator.api.backup import Backups, BackupsStatus, DeclaredSite
from muster_operator.api.cluster_parts import (
    TAKEN_NAMES,
    DeclaredTopic,
    Failover,
    Listener,
    Rollout,
    Security,
    Storage,
)
from muster_operator.api.listener_security import Access
from muster_operator.api.meta import (
    MAX_PODS,
    Conditions,
    Generation,
    ObjectMeta,
    Time,
    rules,
)
from muster_operator.api.pod_template import PodTemplate, Resources
from muster_operator.api.restore import RESTORE_RULES, RestoreFrom, RestoreStatus
from muster_operator.api.upstream import Gateway, Upstream


def _is_off(field: str) -> str:
    """CEL: the duration is zero."""
    return f"duration(self.{field}) == duration('0s')"


class CoordinatorClusterSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A set of coordinator pods that serve as brokers of one Kafka cluster to clients."""

    pods: Annotated[int, Meta(ge=1, le=MAX_PODS, description="Number of coordinator pods.")] = 3
    cluster_id: Annotated[
        Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]+$", min_length=1, max_length=64)] | None,
        Meta(
            description="The id of the Kafka cluster that clients see, set once. If absent, the one that the volumes"
            " remember, or else the uid of this object; status.clusterId has it."
        ),
    ] = None
    image: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="Image of the pods. If absent, the image that the operator brings when the cluster is created;"
            " it stays then, in status.image, until this field names another one."
        ),
    ] = None
    image_pull_policy: Annotated[
        Literal["Always", "IfNotPresent", "Never"], Meta(description="imagePullPolicy of the coordinator container.")
    ] = "IfNotPresent"
    storage: Annotated[
        Storage,
        Meta(
            extra_json_schema=rules(
                (
                    "has(self.storageClassName) == has(oldSelf.storageClassName)"
                    " && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",
                    "storage.storageClassName is immutable: volumes stay where they are",
                ),
                (
                    "has(self.archive) == has(oldSelf.archive)",
                    "storage.archive is set when the cluster is created: a StatefulSet keeps the claims of its pods",
                ),
            )
        ),
    ] = Storage()
    listeners: Annotated[
        tuple[Listener, ...],
        Meta(
            max_length=5,
            description="Listeners of the pods for Kafka clients. Exactly one is Internal.",
            extra_json_schema={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                **rules(
                    (
                        "self.exists_one(each, each.type == 'Internal')",
                        "exactly one listener must be of type Internal: tools and clients in the Kubernetes cluster use"
                        " it",
                    ),
                    (
                        "self.all(each, self.exists_one(other, other.port == each.port))",
                        "two listeners must not have the same port",
                    ),
                    (
                        "self.all(each, each.port < 9640 || each.port > 9643)",
                        "ports 9640 to 9643 are the pods' own",
                    ),
                    (
                        f"self.all(each, !(each.name in {list(TAKEN_NAMES)}))",
                        f"no listener may be called {', '.join(TAKEN_NAMES)}",
                    ),
                    (
                        "self.all(each, each.type == 'Internal' || !has(each.advertise))",
                        "advertise is of a listener of type Internal: clients outside are told addresses of Services",
                    ),
                    (
                        "self.all(each, has(each.tls) || !has(each.authentication) ||"
                        " !each.authentication.mechanisms.exists(name, name in ['PLAIN', 'OAUTHBEARER']))",
                        "PLAIN and OAUTHBEARER send passwords and tokens as they are: the listener needs tls",
                    ),
                    (
                        "self.all(each, each.type == 'NodePort' || !has(each.firstNodePort))",
                        "firstNodePort is of a listener of type NodePort",
                    ),
                ),
            },
        ),
    ] = (Listener("internal"),)
    upstream: Upstream | None = None
    gateway: Gateway | None = None
    access: Annotated[
        Access,
        Meta(
            extra_json_schema=rules(
                (
                    "!self.musterUsers || !has(self.usersSecret) && !has(self.aclsSecret)",
                    "musterUsers goes with neither usersSecret nor aclsSecret: users have one source",
                )
            )
        ),
    ] = Access()
    settings: Annotated[
        Mapping[str, Annotated[str, Meta(max_length=1024)]],
        Meta(max_length=200, description='Coordinator settings under Kafka\'s names, such as group.max.size: "500".'),
    ] = {}
    topics: Annotated[
        tuple[DeclaredTopic, ...],
        Meta(
            max_length=10_000,
            description="Topics that the coordinator answers Metadata for.",
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = ()
    any_topic: Annotated[bool, Meta(description="Accept commits for any topic name, declared or not.")] = False
    failover: Annotated[
        Failover,
        Meta(
            extra_json_schema=rules(
                (
                    "duration(self.suspectAfter) >= duration('400ms')",
                    "suspectAfter must be at least 400ms: a pod sends a heartbeat every 200 ms",
                ),
                (
                    "duration(self.electionTimeout) >= duration(self.suspectAfter)",
                    "electionTimeout must not be below suspectAfter",
                ),
                (
                    f"{_is_off('nominateAfter')} || duration(self.nominateAfter) >= duration('2s')"
                    " && duration(self.nominateAfter) > duration(self.suspectAfter)",
                    "nominateAfter must be 0s, or at least 2s and above suspectAfter: a leader is dead after 1 s",
                ),
                (
                    f"{_is_off('replaceAfter')} || duration(self.replaceAfter) > duration(self.electionTimeout)",
                    "replaceAfter must be 0s, or above electionTimeout: a pod that restarts keeps its replicas",
                ),
            )
        ),
    ] = Failover()
    resources: Annotated[
        Resources,
        Meta(
            description="Compute resources of the coordinator container, as in core/v1. The default requests keep the"
            " pods from being the first that a node under pressure ends; a cluster with load needs its own."
        ),
    ] = Resources({"cpu": "100m", "memory": "256Mi"})
    pod_template: PodTemplate = PodTemplate()
    security: Annotated[
        Security,
        Meta(
            extra_json_schema=rules(
                (
                    "has(self.podSecret) == has(self.operatorSecret)",
                    "podSecret and operatorSecret go together: both come from one CA",
                ),
                (
                    "!has(self.readerSecret) || has(self.podSecret)",
                    "readerSecret goes with podSecret: without it the operator makes both",
                ),
            )
        ),
    ] = Security()
    rollout: Rollout = Rollout()
    maintenance: Annotated[
        Mapping[str, Literal["Drained", "Fenced"]],
        Meta(
            max_length=MAX_PODS,
            description="Pods that lead nothing until this is taken back, by name. Drained: leaders move away, and come"
            " only if no other pod can lead. Fenced: it is not elected even then, and clients are not told of it."
            " Replicas and volumes stay. `muster drain` and `muster fence` set it.",
        ),
    ] = {}
    backup: Backups | None = None
    restore_from: Annotated[RestoreFrom | None, Meta(extra_json_schema=RESTORE_RULES)] = None
    site: DeclaredSite | None = None
    rebalance: Annotated[
        Literal["Auto", "Manual"],
        Meta(
            description="Auto: pods that were added, or hold little for another reason, take their share of replicas"
            " and leaders, a few at a time, while nothing else goes on. Manual: partitions stay where they are."
        ),
    ] = "Manual"
    deletion_policy: Annotated[
        Literal["Retain", "Delete"],
        Meta(
            description="Retain: the volumes of the pods stay when this resource is deleted, and a cluster of the same"
            " name goes on from them. Delete: they are deleted with it."
        ),
    ] = "Retain"
    deletion_protection: Annotated[
        bool, Meta(description="Refuse to delete this resource (by config/deletion-protection.yaml).")
    ] = False
    hibernate: Annotated[
        bool,
        Meta(
            description="Run no pods and keep their volumes, whatever state the cluster is in. Taken back, it goes on."
        ),
    ] = False
    suspend: Annotated[bool, Meta(description="Observe only: the operator changes nothing and elects no leader.")] = (
        False
    )

    @property
    def internal(self) -> Listener:
        """The listener for clients in the pods' network."""
        return next(each for each in self.listeners if each.type == "Internal")

    @property
    def external(self) -> tuple[Listener, ...]:
        """The listeners for clients outside."""
        return tuple(each for each in self.listeners if each.type != "Internal")


class ListenerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The first addresses for clients of a listener."""

    name: Annotated[str, Meta(description="Name of the listener.")]
    bootstrap: Annotated[str, Meta(description="bootstrap.servers for its clients.")] = ""


class FailoverRecord(msgspec.Struct, frozen=True, rename="camel"):
    """One change of leader."""

    partition: Annotated[str, Meta(description="Name of the OffsetsPartition.")]
    epoch: Annotated[int, Meta(description="The new leader's epoch.")]
    time: Annotated[Time, Meta(description="When the new leader answered.")]
    previous_leader: Annotated[str | None, Meta(description="Pod that led before; absent if none did.")] = None
    leader: Annotated[str | None, Meta(description="Pod that leads now.")] = None
    reason: Annotated[str, Meta(description="Why the leader changed: a stable code.")] = ""
    planned: Annotated[bool, Meta(description="A move of the leader, not the loss of one.")] = False
    duration_ms: Annotated[
        int | None, Meta(description="From the loss of the old leader to the answer of the new one.")
    ] = None


class CoordinatorClusterStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The state of the cluster, as the operator saw it last."""

    observed_generation: Generation = 0
    conditions: Conditions = ()
    pods: Annotated[int, Meta(description="Pods that exist.")] = 0
    ready_pods: Annotated[int, Meta(description="Pods whose API says ready.")] = 0
    updated_pods: Annotated[int, Meta(description="Pods that run the declared template.")] = 0
    image: Annotated[str, Meta(description="Image of the declared template.")] = ""
    volume_size: Annotated[
        str,
        Meta(max_length=32, description="Size of the largest volume of the pods. spec.storage.size never falls below."),
    ] = ""
    archive_size: Annotated[
        str,
        Meta(max_length=32, description="Size of the largest archive. spec.storage.archive.size never falls below."),
    ] = ""
    partitions: Annotated[int, Meta(description="Offsets partitions of this cluster.")] = 0
    led: Annotated[int, Meta(description="Offsets partitions whose leader is active.")] = 0
    leaderless: Annotated[int, Meta(description="Offsets partitions without an active leader.")] = 0
    bootstrap: Annotated[str, Meta(description="bootstrap.servers for clients of the Internal listener.")] = ""
    listeners: Annotated[
        tuple[ListenerStatus, ...],
        Meta(
            description="The other listeners, with the addresses that are known.",
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = ()
    gateway: Annotated[str, Meta(description="bootstrap.servers for clients of the gateway.")] = ""
    selector: Annotated[str, Meta(description="Label selector of the pods, for `kubectl scale` and autoscalers.")] = ""
    cluster_id: Annotated[
        str, Meta(description="The id of the Kafka cluster that clients see. The volumes remember it.")
    ] = ""
    backups: BackupsStatus | None = None
    restore: RestoreStatus | None = None
    last_failovers: Annotated[tuple[FailoverRecord, ...], Meta(max_length=20, description="Newest first.")] = ()


class CoordinatorCluster(msgspec.Struct, frozen=True, rename="camel"):
    """Coordinator pods with the operator in charge of them."""

    plural: ClassVar[str] = "coordinatorclusters"

    metadata: ObjectMeta
    spec: CoordinatorClusterSpec = CoordinatorClusterSpec()
    status: CoordinatorClusterStatus = CoordinatorClusterStatus()
