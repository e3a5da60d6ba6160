"""Who leads the partitions of a topic, and which replicas count: the record that elections rest on.

It is one field of `OffsetsTopic.status`, so one compare-and-swap of one object records any number of partitions, and no
epoch is ever issued to two pods (docs/adr/0021-leadership-is-recorded-once.md).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["LeadershipRecord", "Leaderships", "Replica"]


class Replica(msgspec.Struct, frozen=True, rename="camel"):
    """A replica *is* its log id; the pod says where that log was last seen ("": nowhere yet)."""

    pod: str
    log_id: str = ""


class LeadershipRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is recorded of one partition before a pod is called. OffsetsPartition.status describes the fields."""

    leader: str | None = None
    epoch: Annotated[int, Meta(ge=-1)] = -1
    led_epoch: Annotated[int, Meta(ge=-1)] = -1
    replicas: tuple[Replica, ...] = ()
    previous_replicas: tuple[Replica, ...] = ()
    learners: tuple[Replica, ...] = ()
    left: tuple[Replica, ...] = ()
    uid: Annotated[str, Meta(description="The OffsetsPartition that this is about.")] = ""


Leaderships = Annotated[
    dict[str, LeadershipRecord],
    Meta(
        description="By partition number: what the operator has recorded of each partition before it calls a pod."
        " Written with compare-and-swap; OffsetsPartition.status follows. Not to be edited.",
        # Without `atomic` the API server tracks each field of each partition in metadata.managedFields.
        extra_json_schema={"x-kubernetes-map-type": "atomic"},
    ),
]
