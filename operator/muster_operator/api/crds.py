"""CustomResourceDefinitions, generated from the models: `python -m muster_operator.api.crds [DIRECTORY ...]`.

Writes <plural>.yaml into crds/ and into the chart of the definitions, which are checked in; a test compares them.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from muster_operator.api import models
from muster_operator.api.conditions import ConditionType, Reason
from muster_operator.api.schema import struct_schema

HEADER = "# Generated from operator/muster_operator/api by `python -m muster_operator.api.crds`; do not edit.\n"

SCHEMA = f"{models.GROUP}/schema"
"""Annotation of a definition: the fingerprint of its spec."""

READY = '.status.conditions[?(@.type=="Ready")]'


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`; `priority` 1 shows it with -o wide only."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Kind:
    """The parts of a definition beyond its schema. `selectable`: paths of fields for `kubectl get --field-selector`."""

    kind: str
    resource: type[msgspec.Struct]
    plural: str
    columns: tuple[Column, ...]
    rules: tuple[tuple[str, str], ...]
    short_name: str
    selectable: tuple[str, ...] = ()
    scale: Mapping[str, str] | None = None


def name_rule(limit: int) -> tuple[str, str]:
    """Names of pods, Services and labels are made of the name, so it must be a DNS label with some room left."""
    return (
        f"self.metadata.name.size() <= {limit} && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        f"metadata.name must be a DNS label (a-z, 0-9, -; a letter first) of at most {limit} characters",
    )


AGE = Column("Age", ".metadata.creationTimestamp", "date")
STATE = Column("State", f"{READY}.reason")

KINDS = (
    Kind(
        "CoordinatorCluster",
        models.CoordinatorCluster,
        models.CoordinatorCluster.plural,
        (
            Column("Ready", f"{READY}.status"),
            Column("Pods", ".status.readyPods", "integer"),
            Column("Updated", ".status.updatedPods", "integer"),
            Column("Partitions", ".status.partitions", "integer"),
            Column("Led", ".status.led", "integer"),
            STATE,
            Column("Bootstrap", ".status.bootstrap", priority=1),
            Column("Message", f"{READY}.message", priority=1),
            AGE,
        ),
        (
            name_rule(models.CLUSTER_NAME_LIMIT),
            (
                "!has(oldSelf.spec.clusterId) || has(self.spec.clusterId)"
                " && self.spec.clusterId == oldSelf.spec.clusterId",
                "spec.clusterId is set once: clients know the Kafka cluster by it",
            ),
            (
                "!has(self.spec.clusterId) || !has(self.status) || !has(self.status.clusterId)"
                " || self.status.clusterId in ['', self.spec.clusterId]",
                "spec.clusterId must be status.clusterId: clients know this Kafka cluster by it",
            ),
            (
                "self.spec.listeners.all(each, each.type == 'Internal' ||"
                " self.metadata.name.size() + each.name.size() <= 59)",
                "metadata.name and the name of a listener must have at most 59 characters together",
            ),
            (
                "has(self.spec.access) && (has(self.spec.access.usersSecret) || self.spec.access.musterUsers)"
                " || self.spec.listeners.all(each,"
                " !has(each.authentication) || each.authentication.mechanisms.all(name, name == 'OAUTHBEARER'))",
                "spec.access.usersSecret or musterUsers is needed: a listener has a mechanism with passwords",
            ),
            (
                "!has(self.spec.site) || !has(self.spec.upstream)",
                "spec.site does not go with spec.upstream: a fenced pod would still write to Kafka",
            ),
            (
                "!has(self.spec.gateway) || has(self.spec.upstream)",
                "spec.gateway needs spec.upstream: the Kafka cluster that it is in front of",
            ),
            (
                "!has(self.spec.gateway) || !has(self.spec.upstream.servedGroups)"
                " || size(self.spec.upstream.servedGroups) == 0 || self.spec.listeners.all(each,"
                " each.type != 'Internal' || has(each.tls) == has(self.spec.gateway.muster.tls)"
                " && has(each.authentication) == has(self.spec.gateway.muster.sasl))",
                "spec.gateway.muster must have tls and sasl as the Internal listener has tls and authentication",
            ),
            (
                "!has(self.spec.upstream) || !has(self.spec.upstream.sasl) || has(self.spec.upstream.tls)"
                " || self.spec.upstream.sasl.mechanism.startsWith('SCRAM')",
                "spec.upstream.tls is needed: the mechanism sends secrets as they are",
            ),
            (
                "!has(self.spec.gateway) || !has(self.spec.gateway.muster.sasl) || has(self.spec.gateway.muster.tls)"
                " || self.spec.gateway.muster.sasl.mechanism.startsWith('SCRAM')",
                "spec.gateway.muster.tls is needed: the mechanism sends secrets as they are",
            ),
            (
                "!has(self.spec.gateway) || !has(self.spec.gateway.tls)"
                " || self.spec.gateway.tls.clientAuth != 'requested'",
                "spec.gateway.tls.clientAuth must be none or required",
            ),
            (
                "!has(self.spec.gateway) || !has(self.spec.gateway.authentication)"
                " || has(self.spec.access) && has(self.spec.access.usersSecret)",
                "spec.access.usersSecret is needed: the gateway reads the users of its clients from there",
            ),
            (
                "!has(self.spec.gateway) || !has(self.spec.gateway.authentication)"
                " || self.spec.gateway.authentication.mechanisms.all(name, name.startsWith('SCRAM')"
                " || name == 'PLAIN' && has(self.spec.gateway.tls))",
                "spec.gateway.authentication: PLAIN needs spec.gateway.tls, and logins by OAUTHBEARER only pass",
            ),
            (
                "!has(self.spec.gateway) || !has(self.spec.upstream.tls)"
                " || !has(self.spec.upstream.tls.certificateSecret) || has(self.spec.gateway.authentication)"
                " || has(self.spec.gateway.tls) && self.spec.gateway.tls.clientAuth == 'required'",
                "with spec.upstream.tls.certificateSecret brokers take all clients for the gateway: it has to ask them"
                " by spec.gateway.authentication or tls.clientAuth",
            ),
            (
                "!has(self.spec.gateway) || !self.spec.gateway.muster.actForClients"
                " || has(self.spec.gateway.muster.sasl) && self.spec.gateway.muster.sasl.mechanism != 'OAUTHBEARER'"
                " && (has(self.spec.upstream.sasl) || has(self.spec.gateway.authentication)"
                " || has(self.spec.gateway.tls) && self.spec.gateway.tls.clientAuth == 'required')",
                "spec.gateway.muster.actForClients needs muster.sasl with a password, and somebody who asks clients who"
                " they are: spec.upstream.sasl, spec.gateway.authentication or tls.clientAuth",
            ),
            (
                "!has(self.spec.gateway) || self.spec.gateway.type == 'ClusterIP'"
                " || has(self.spec.gateway.advertisedHost)",
                "spec.gateway.advertisedHost is needed with type LoadBalancer: clients are told it",
            ),
            (
                "!has(self.spec.gateway) || !has(self.spec.upstream.movableGroups)"
                " || size(self.spec.upstream.movableGroups) == 0"
                " || !has(self.spec.security.podSecret) || has(self.spec.security.readerSecret)",
                "spec.upstream.movableGroups with a gateway needs spec.security.readerSecret where podSecret is given:"
                " the gateway asks the pods' API",
            ),
            (
                "!has(self.spec.backup) || !has(self.spec.security.podSecret) || has(self.spec.security.readerSecret)",
                "spec.backup needs spec.security.readerSecret where podSecret is given: Jobs call the pods' API",
            ),
            (
                "has(self.spec.restoreFrom) && has(oldSelf.spec.restoreFrom)"
                " && self.spec.restoreFrom == oldSelf.spec.restoreFrom"
                " || !has(self.spec.restoreFrom) && (!has(oldSelf.spec.restoreFrom)"
                " || has(self.status) && has(self.status.restore) && self.status.restore.phase == 'Completed')",
                "spec.restoreFrom is set when the cluster is created, and stays until status.restore.phase is"
                " Completed: it makes the volumes, and later a cluster has its own",
            ),
            (
                "!has(oldSelf.spec.upstream) || has(self.spec.upstream)",
                "spec.upstream cannot be taken back: Kafka's groups, as they were last read, would become Muster's;"
                " delete the cluster instead",
            ),
            (
                "!has(oldSelf.spec.upstream) || !has(oldSelf.spec.upstream.movableGroups)"
                " || size(oldSelf.spec.upstream.movableGroups) == 0"
                " || !has(self.spec.upstream) || has(self.spec.upstream.movableGroups)"
                " && size(self.spec.upstream.movableGroups) > 0",
                "spec.upstream.movableGroups cannot be emptied: gateways would ask no pod which groups have moved,"
                " and send them to Kafka again. Leave one beginning, be it one that no group has",
            ),
            (
                "quantity(self.spec.storage.size).compareTo(quantity(oldSelf.spec.storage.size)) >= 0"
                " || has(self.status) && has(self.status.volumeSize) && self.status.volumeSize != ''"
                " && quantity(self.spec.storage.size).compareTo(quantity(self.status.volumeSize)) >= 0",
                "spec.storage.size must not fall below status.volumeSize: a volume never shrinks",
            ),
            (
                "!has(self.spec.storage.archive) || !has(oldSelf.spec.storage.archive)"
                " || quantity(self.spec.storage.archive.size)"
                ".compareTo(quantity(oldSelf.spec.storage.archive.size)) >= 0"
                " || has(self.status) && has(self.status.archiveSize) && self.status.archiveSize != ''"
                " && quantity(self.spec.storage.archive.size).compareTo(quantity(self.status.archiveSize)) >= 0",
                "spec.storage.archive.size must not fall below status.archiveSize: a volume never shrinks",
            ),
        ),
        "mcc",
        scale={
            "specReplicasPath": ".spec.pods",
            "statusReplicasPath": ".status.pods",
            "labelSelectorPath": ".status.selector",
        },
    ),
    Kind(
        "OffsetsTopic",
        models.OffsetsTopic,
        models.OffsetsTopic.plural,
        (
            Column("Ready", f"{READY}.status"),
            Column("Cluster", ".spec.clusterRef.name"),
            Column("Partitions", ".status.partitions", "integer"),
            Column("Replication", ".spec.replicationFactor", "integer"),
            Column("Led", ".status.led", "integer"),
            STATE,
            Column("Reshard", ".status.reshard.phase"),
            Column("Message", f"{READY}.message", priority=1),
            AGE,
        ),
        (name_rule(models.TOPIC_NAME_LIMIT),),
        "mot",
        (".spec.clusterRef.name",),
    ),
    Kind(
        "OffsetsPartition",
        models.OffsetsPartition,
        models.OffsetsPartition.plural,
        (
            Column("Ready", f"{READY}.status"),
            Column("Leader", ".status.leader"),
            Column("Epoch", ".status.epoch", "integer"),
            Column("State", ".status.state"),
            Column("Following", ".status.following", "integer"),
            Column("Reason", ".status.reason", priority=1),
            Column("Message", f"{READY}.message", priority=1),
            AGE,
        ),
        (
            (
                "!has(self.spec.allowDataLoss) || has(self.status) && has(self.status.epoch)"
                " && self.spec.allowDataLoss <= self.status.epoch",
                "spec.allowDataLoss must not be above status.epoch: it is about a loss that has happened",
            ),
        ),
        "mop",
        (".spec.topicRef.name", ".status.leader", ".status.state"),
    ),
    Kind(
        "MusterUser",
        models.MusterUser,
        models.MusterUser.plural,
        (
            Column("Ready", f"{READY}.status"),
            Column("Cluster", ".spec.clusterRef.name"),
            Column("Username", ".status.username"),
            Column("Secret", ".status.secret"),
            STATE,
            Column("Message", f"{READY}.message", priority=1),
            AGE,
        ),
        (
            name_rule(models.USER_NAME_LIMIT),
            (
                "self.spec.reclaimPolicy == 'Delete' || !has(self.spec.authentication)"
                " || self.spec.authentication.type == 'Password' && !has(self.spec.authentication.secret)",
                "reclaimPolicy Retain is for passwords that the operator makes",
            ),
        ),
        "mu",
        (".spec.clusterRef.name",),
    ),
    Kind(
        "ConsumerGroup",
        models.ConsumerGroup,
        models.ConsumerGroup.plural,
        (
            Column("Ready", f"{READY}.status"),
            Column("Cluster", ".spec.clusterRef.name"),
            Column("Group", ".spec.group"),
            Column("Wanted", ".spec.coordinator"),
            Column("Now", ".status.coordinator"),
            STATE,
            Column("Waited", ".status.lastMove.fencedMs", "integer"),
            Column("Message", f"{READY}.message", priority=1),
            AGE,
        ),
        (),
        "mcg",
        (".spec.clusterRef.name", ".spec.group", ".spec.coordinator"),
    ),
    Kind(
        "MusterBackup",
        models.MusterBackup,
        models.MusterBackup.plural,
        (
            Column("Phase", ".status.phase"),
            Column("Cluster", ".spec.clusterRef.name"),
            Column("Backup", ".status.backup"),
            Column("Taken", ".status.taken", "date"),
            Column("Bytes", ".status.bytes", "integer"),
            Column("Message", f"{READY}.message", priority=1),
            AGE,
        ),
        (name_rule(models.BACKUP_NAME_LIMIT),),
        "mb",
        (".spec.clusterRef.name",),
    ),
)


def definitions() -> Iterator[tuple[str, dict[str, Any]]]:
    """(plural, CustomResourceDefinition) of every kind."""
    for kind in KINDS:
        yield kind.plural, _definition(kind)


@cache
def fingerprints() -> Mapping[str, str]:
    """The annotation SCHEMA of every definition, by the name of the definition."""
    metas = [definition["metadata"] for _, definition in definitions()]
    return {meta["name"]: meta["annotations"][SCHEMA] for meta in metas}


def render(definition: dict[str, Any]) -> str:
    """The YAML file of a definition."""
    return HEADER + str(yaml.safe_dump(definition, sort_keys=False, width=120))


def _definition(kind: Kind) -> dict[str, Any]:
    spec = _spec(kind)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{models.GROUP}",
            "labels": {"app.kubernetes.io/part-of": "muster"},
            "annotations": {"helm.sh/resource-policy": "keep", SCHEMA: fingerprint(spec)},
        },
        "spec": spec,
    }


def fingerprint(spec: dict[str, Any]) -> str:
    """A hash of a definition. By it an operator knows whether the API server has the one that it was made with."""
    return hashlib.sha256(msgspec.json.encode(spec, order="deterministic")).hexdigest()[:16]


def _spec(kind: Kind) -> dict[str, Any]:
    singular = kind.kind.lower()
    return {
        "group": models.GROUP,
        "scope": "Namespaced",
        "names": {
            "kind": kind.kind,
            "listKind": f"{kind.kind}List",
            "plural": kind.plural,
            "singular": singular,
            "shortNames": [kind.short_name],
            "categories": ["muster"],
        },
        "versions": [
            {
                "name": models.VERSION,
                "served": True,
                "storage": True,
                "subresources": {"status": {}} if kind.scale is None else {"status": {}, "scale": dict(kind.scale)},
                **({"selectableFields": [{"jsonPath": each} for each in kind.selectable]} if kind.selectable else {}),
                "additionalPrinterColumns": [_column(column) for column in kind.columns],
                "schema": {"openAPIV3Schema": _root_schema(kind)},
            }
        ],
    }


def _root_schema(kind: Kind) -> dict[str, Any]:
    declared = struct_schema(kind.resource, defaults=True)
    spec = declared["properties"]["spec"]
    status = struct_schema(kind.resource, defaults=False)["properties"]["status"]
    # Tools that wait for Ready see Unknown until an operator wrote a status; without it kstatus would say Current.
    status["default"] = {
        "conditions": [
            {
                "type": ConditionType.READY.value,
                "status": "Unknown",
                "reason": Reason.NOT_SEEN.value,
                "message": "no operator has looked at this object yet",
                "lastTransitionTime": "1970-01-01T00:00:00Z",
                "observedGeneration": 0,
            }
        ]
    }
    schema: dict[str, Any] = {
        "type": "object",
        "description": declared["description"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of the schema of this object."},
            "kind": {"type": "string", "description": "What the object is."},
            "metadata": {"type": "object"},  # the API server explains it itself, and takes no text
            "spec": spec,
            "status": status,
        },
    }
    if "spec" in declared["required"]:
        schema["required"] = ["spec"]
    if kind.rules:
        schema.update(models.rules(*kind.rules))
    return schema


def _column(column: Column) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return {**shown, "priority": column.priority} if column.priority else shown


def main(*directories: str) -> None:
    """Write every definition into each directory."""
    for target in map(Path, directories or ("crds", "charts/muster-crds/templates")):
        target.mkdir(parents=True, exist_ok=True)
        for plural, definition in definitions():
            (target / f"{plural}.yaml").write_text(render(definition), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
