"""The parts that all resources share: group, version, names, metadata, field types. Field names are camelCase on the
wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from muster_operator.api.conditions import Condition
from muster_operator.api.durations import DURATION_PATTERN

GROUP = "muster.dev"
VERSION = "v1alpha1"

MAX_PODS = 100
MAX_PARTITIONS = 1000
MAX_INDEX = 999_999
MAX_BROKER_IDS = 256

# A StatefulSet's pods carry a label <name>-<hash of 10 characters>: 52 is what is left of 63.
CLUSTER_NAME_LIMIT = 52
# Names of OffsetsPartitions are <topic>-<index>.
TOPIC_NAME_LIMIT = 59

Name = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", min_length=1)]
Quantity = Annotated[
    str,
    # A positive Kubernetes quantity without sign and exponent; 0 is refused because the first digit counts.
    Meta(pattern=r"^[1-9][0-9]*(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$", max_length=32),
]
ComputeQuantity = (
    int
    | Annotated[
        str,
        # core/v1's resource.Quantity, without a sign.
        Meta(pattern=r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?$", max_length=32),
    ]
)
"""A quantity as in core/v1: a number or a text, such as 1, "0.5", 500m, 1Gi or 1e3."""
Duration = Annotated[str, Meta(pattern=DURATION_PATTERN, max_length=16)]
Conditions = Annotated[
    tuple[Condition, ...],
    Meta(
        description="What is to be said of the object, by the rules of kstatus.",
        extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    ),
]
Generation = Annotated[int, Meta(description="The metadata.generation that this status is about.")]
CoreObject = Mapping[str, Any]
"""An object of core/v1: its own API server checks it when the pods are made of it."""
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


def rules(*pairs: tuple[str, str]) -> dict[str, Any]:
    """x-kubernetes-validations of (CEL rule, message) pairs."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in pairs]}


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The part of metav1.ObjectMeta that the operator looks at."""

    name: str
    namespace: str = "default"
    uid: str = ""
    resource_version: str = ""
    """Opaque: compared for equality only, and passed back for compare-and-swap."""
    generation: int = 1
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: Mapping[str, str] = {}


class ClusterRef(msgspec.Struct, frozen=True, rename="camel"):
    """A CoordinatorCluster in the same namespace."""

    name: Annotated[Name, Meta(max_length=CLUSTER_NAME_LIMIT, description="Its name.")]


class TopicRef(msgspec.Struct, frozen=True, rename="camel"):
    """An OffsetsTopic in the same namespace."""

    name: Annotated[Name, Meta(max_length=TOPIC_NAME_LIMIT, description="Its name.")]
