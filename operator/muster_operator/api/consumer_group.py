"""The ConsumerGroup: which coordinator a group of the upstream shall have, Kafka or this cluster."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from muster_operator.api.meta import ClusterRef, Conditions, Generation, ObjectMeta, Time, rules

Side = Literal["Kafka", "Muster"]
KAFKA: Side = "Kafka"
MUSTER: Side = "Muster"


class ConsumerGroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What shall be so of one group. Groups come and go by themselves: this is no record of them."""

    cluster_ref: Annotated[
        ClusterRef,
        Meta(extra_json_schema=rules(("self == oldSelf", "clusterRef is immutable: make another ConsumerGroup"))),
    ]
    group: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=249,
            description="The id of the group. Of two resources with the same one the older counts.",
            extra_json_schema=rules(("self == oldSelf", "group is immutable: make another ConsumerGroup")),
        ),
    ]
    coordinator: Annotated[
        Side,
        Meta(
            description="Where the group shall be. Muster: it moves from Kafka while its members consume, as soon as"
            " nothing stands in the way. Kafka: it stays there; there is no way back yet."
        ),
    ]


class GroupMove(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How a move ended."""

    to: Annotated[Side, Meta(description="Where it was to go.")]
    done: Annotated[bool, Meta(description="Whether it is there; else it is where it was.")]
    time: Annotated[Time, Meta(description="When the operator saw it.")]
    fenced_ms: Annotated[int, Meta(ge=0, description="How long its requests have waited; its records did not.")] = 0
    reason: Annotated[str, Meta(description="Why it was given up.")] = ""


class ConsumerGroupStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where the group is."""

    observed_generation: Generation = 0
    conditions: Conditions = ()
    coordinator: Annotated[
        str, Meta(description="Who coordinates it, Kafka or Muster; absent until a pod says so.")
    ] = ""
    partition: Annotated[int | None, Meta(description="Number of its offsets partition.")] = None
    step: Annotated[str, Meta(description="How far its move is; absent while it does not move.")] = ""
    last_move: GroupMove | None = None


class ConsumerGroup(msgspec.Struct, frozen=True, rename="camel"):
    """A group, and where it shall be coordinated. Deleting it changes nothing of the group."""

    plural: ClassVar[str] = "consumergroups"

    metadata: ObjectMeta
    spec: ConsumerGroupSpec
    status: ConsumerGroupStatus = ConsumerGroupStatus()
