"""The fields for pods that have the words of core/v1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from muster_operator.api.meta import ComputeQuantity, CoreObject


class Resources(msgspec.Struct, frozen=True, rename="camel"):
    """Compute resources of the coordinator container, as in core/v1."""

    requests: Annotated[Mapping[str, ComputeQuantity], Meta(description="Such as cpu: 500m, memory: 512Mi.")] = {}
    limits: Annotated[Mapping[str, ComputeQuantity], Meta(description="Such as memory: 1Gi.")] = {}


class MountedVolume(msgspec.Struct, frozen=True, rename="camel"):
    """A volume of somebody else, which the pods may read: a company's CAs, keys that sign tokens."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            max_length=50,
            description="Its name, a DNS label. It is mounted at /mnt/NAME, to be read only.",
        ),
    ]
    source: Annotated[
        CoreObject,
        Meta(description="What it is, such as configMap: {name: keys} or secret: {secretName: ca} (core/v1)."),
    ]


class PodTemplate(msgspec.Struct, frozen=True, rename="camel"):
    """Additions to the pods."""

    labels: Annotated[Mapping[str, str], Meta(description="Additional labels.")] = {}
    annotations: Annotated[Mapping[str, str], Meta(description="Additional annotations.")] = {}
    node_selector: Annotated[Mapping[str, str], Meta(description="Labels that a node must have.")] = {}
    tolerations: Annotated[
        tuple[CoreObject, ...], Meta(max_length=50, description="Taints of nodes that do not matter (core/v1).")
    ] = ()
    affinity: Annotated[
        CoreObject | None, Meta(description="Where pods shall be, and beside which others (core/v1).")
    ] = None
    topology_spread_constraints: Annotated[
        tuple[CoreObject, ...],
        Meta(
            max_length=10,
            description="How pods are spread (core/v1), in place of a preference for other zones and other nodes.",
        ),
    ] = ()
    security_context: Annotated[
        CoreObject | None,
        Meta(
            description="Uid, gid and group of volumes (core/v1, PodSecurityContext) in place of 65532; {} on"
            " OpenShift, which gives each namespace a range of its own. Any uid will do; root is refused."
        ),
    ] = None
    priority_class_name: Annotated[
        str, Meta(max_length=253, description="PriorityClass of the pods; the default one if absent.")
    ] = ""
    image_pull_secrets: Annotated[
        tuple[CoreObject, ...], Meta(max_length=20, description="Secrets to pull the image with (core/v1).")
    ] = ()
    volumes: Annotated[
        tuple[MountedVolume, ...],
        Meta(
            max_length=20,
            description="More volumes, mounted at /mnt/NAME to be read only.",
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = ()
