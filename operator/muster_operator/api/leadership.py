"""The leaders of the partitions of a topic, and the replicas that count: the record that elections rest on.

It is one field of `OffsetsTopic.status`, so one compare-and-swap of one object records any number of partitions, and no
epoch is ever issued to two pods (ADR 21).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta


class Replica(msgspec.Struct, frozen=True, rename="camel"):
    """A replica *is* its log id; the pod says where that log was last seen ("": nowhere yet)."""

    pod: Annotated[str, Meta(description="Pod that has the log.")]
    log_id: Annotated[str, Meta(description="Id of the log; absent until it is created.")] = ""


class LeadershipRecord(msgspec.Struct, frozen=True):
    """The record of one partition, made before a pod is called. `OffsetsPartition.status` describes the fields.

    `uid`: of the OffsetsPartition. In a status each record is one line of text, such as
    `epoch=6 led=5 leader=c-1 replicas=c-0/4f12,c-1/9ab0 uid=11d4`. The API server writes 1,000 of them in a tenth of
    the time that it needs for 1,000 objects.
    """

    leader: str | None = None
    epoch: int = -1
    led_epoch: int = -1
    replicas: tuple[Replica, ...] = ()
    previous_replicas: tuple[Replica, ...] = ()
    learners: tuple[Replica, ...] = ()
    left: tuple[Replica, ...] = ()
    uid: str = ""

    @property
    def line(self) -> str:
        """The record as text, without what is empty."""
        return _line(self)

    @classmethod
    def parse(cls, line: str) -> LeadershipRecord:
        """The record of a line that has the pattern of `Leaderships`."""
        return _parsed(line)


KNOWN = 10_000
"""Records and lines that are remembered: every plan asks for those of all partitions, and they seldom change."""


@lru_cache(maxsize=KNOWN)
def _line(record: LeadershipRecord) -> str:
    fields = {
        "leader": record.leader,
        "replicas": _joined(record.replicas),
        "previous": _joined(record.previous_replicas),
        "learners": _joined(record.learners),
        "left": _joined(record.left),
        "uid": record.uid,
    }
    told = (f"{name}={value}" for name, value in fields.items() if value)
    return " ".join((f"epoch={record.epoch}", f"led={record.led_epoch}", *told))


@lru_cache(maxsize=KNOWN)
def _parsed(line: str) -> LeadershipRecord:
    fields = dict(field.split("=", 1) for field in line.split(" "))
    return LeadershipRecord(
        leader=fields.get("leader"),
        epoch=int(fields["epoch"]),
        led_epoch=int(fields["led"]),
        replicas=_split(fields.get("replicas", "")),
        previous_replicas=_split(fields.get("previous", "")),
        learners=_split(fields.get("learners", "")),
        left=_split(fields.get("left", "")),
        uid=fields.get("uid", ""),
    )


def _joined(replicas: Iterable[Replica]) -> str:
    return ",".join(f"{each.pod}/{each.log_id}" for each in replicas)


def _split(text: str) -> tuple[Replica, ...]:
    return tuple(Replica(*each.split("/")) for each in text.split(",")) if text else ()


_NUMBER = "(-1|[0-9]+)"
_NAME = "[^ ,/=]+"
_REPLICA = "[^ ,/=]*/[^ ,/=]*"
_LISTS = "".join(f"( {name}={_REPLICA}(,{_REPLICA})*)?" for name in ("replicas", "previous", "learners", "left"))
_LINE = f"^epoch={_NUMBER} led={_NUMBER}( leader={_NAME})?{_LISTS}( uid={_NAME})?$"

Leaderships = Annotated[
    dict[str, Annotated[str, Meta(pattern=_LINE)]],
    Meta(
        description="By partition number: what the operator has recorded of each partition before it calls a pod."
        " Written with compare-and-swap; OffsetsPartition.status follows. Not to be edited.",
        # Without `atomic` the API server tracks each partition in metadata.managedFields.
        extra_json_schema={"x-kubernetes-map-type": "atomic"},
    ),
]
"""The lines of a LeadershipRecord by partition number."""
