"""The ConsumerGroup: which coordinator a group of the upstream shall have, Kafka or this cluster."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from muster_operator.api.meta import ClusterRef, Conditions, Generation, ObjectMeta, Time, rules

Side = Literal["Kafka", "Muster"]
KAFKA: Side = "Kafka"
MUSTER: Side = "Muster"


class DeclaredOffset(msgspec.Struct, frozen=True, rename="camel"):
    """An offset of one partition."""

    topic: Annotated[str, Meta(min_length=1, max_length=249, description="Its topic.")]
    partition: Annotated[int, Meta(ge=0, description="Its number.")]
    offset: Annotated[int, Meta(ge=0, description="The next record that the group reads.")]


class GroupReset(msgspec.Struct, frozen=True, rename="camel"):
    """A reset of the group's offsets, carried out once, while the group has no members or they are parked."""

    id: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9][-A-Za-z0-9._:]*$",
            max_length=63,
            description="A name of this reset, such as a date. It is carried out once for each id, however often it is"
            " applied.",
        ),
    ]
    to: Annotated[
        Literal["earliest", "latest", "offset", "shiftBy", "datetime", "offsets"],
        Meta(description="Where to, in the words of kafka-consumer-groups. What is not in the log becomes its edge."),
    ]
    offset: Annotated[Annotated[int, Meta(ge=0)] | None, Meta(description="With to: offset.")] = None
    shift_by: Annotated[int | None, Meta(description="With to: shiftBy. So many records, back if negative.")] = None
    datetime: Annotated[
        Time | None, Meta(description="With to: datetime. The first record that is not older; the end if all are.")
    ] = None
    offsets: Annotated[
        Annotated[
            tuple[DeclaredOffset, ...],
            Meta(min_length=1, max_length=1_000, extra_json_schema={"x-kubernetes-list-type": "atomic"}),
        ]
        | None,
        Meta(
            description="With to: offsets. One for each partition that is reset, as `muster groups offsets --as-reset`"
            " prints those of a past moment."
        ),
    ] = None
    topics: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=249)], ...],
        Meta(
            max_length=100,
            description="All partitions of these topics; if absent, all that the group has an offset for.",
            extra_json_schema={"x-kubernetes-list-type": "set"},
        ),
    ] = ()
    members: Annotated[
        Literal["Wait", "Park"],
        Meta(
            description="What of the group's members. Wait: the reset waits until their consumers are stopped. Park:"
            " they are put out, and join again when the offsets are written; what they have not committed they read"
            " again. Not with cooperative assignors of the classic protocol."
        ),
    ] = "Wait"


RESET_RULES = rules(
    ("(self.to == 'offset') == has(self.offset)", "offset is for to: offset, and there only"),
    ("(self.to == 'shiftBy') == has(self.shiftBy)", "shiftBy is for to: shiftBy, and there only"),
    ("(self.to == 'datetime') == has(self.datetime)", "datetime is for to: datetime, and there only"),
    ("(self.to == 'offsets') == has(self.offsets)", "offsets is for to: offsets, and there only"),
    ("self.to != 'offsets' || !has(self.topics)", "offsets name their topics: leave topics out"),
    (
        "self.id != oldSelf.id || self == oldSelf",
        "a reset counts once for its id: give a changed one another id",
    ),
)


class ConsumerGroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The declaration about one group. Groups come and go by themselves: this is no record of them."""

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
            " nothing stands in the way. Kafka: it stays there, or moves back, with one rebalance."
        ),
    ]
    reset: Annotated[
        GroupReset | None, Meta(description="A reset of its offsets here.", extra_json_schema=RESET_RULES)
    ] = None


class GroupMove(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The end of a move."""

    to: Annotated[Side, Meta(description="Where it was to go.")]
    done: Annotated[bool, Meta(description="Whether it is there; else it is where it was.")]
    time: Annotated[Time, Meta(description="When the operator saw it.")]
    fenced_ms: Annotated[int, Meta(ge=0, description="How long its requests have waited; its records did not.")] = 0
    reason: Annotated[str, Meta(description="Why it was given up.")] = ""


ResetPhase = Literal["Planned", "Done", "Superseded"]


class ResetOffset(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The effect of a reset on a partition."""

    topic: Annotated[str, Meta(description="Its topic.")]
    partition: Annotated[int, Meta(description="Its number.")]
    after: Annotated[int, Meta(description="The offset that it gets.")]
    before: Annotated[int | None, Meta(description="The offset before; absent if there was none.")] = None


class ResetStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The last reset."""

    id: Annotated[str, Meta(description="The id that it was declared with.")]
    phase: Annotated[
        ResetPhase,
        Meta(
            description="Planned: these offsets are about to be written. Done: the group had them then. Superseded:"
            " others have been committed since it was planned, and nothing is written any more."
        ),
    ]
    time: Annotated[Time, Meta(description="When the operator saw the phase.")]
    offsets: Annotated[tuple[ResetOffset, ...], Meta(description="By partition.")] = ()


class PastReset(msgspec.Struct, frozen=True, rename="camel"):
    """An earlier reset, which is not carried out again."""

    id: Annotated[str, Meta(description="The id that it was declared with.")]
    phase: Annotated[ResetPhase, Meta(description="The last one that it had.")]
    time: Annotated[Time, Meta(description="When the operator saw that.")]


class ConsumerGroupStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The state of the group."""

    observed_generation: Generation = 0
    conditions: Conditions = ()
    coordinator: Annotated[
        str, Meta(description="Who coordinates it, Kafka or Muster; absent until a pod says so.")
    ] = ""
    partition: Annotated[int | None, Meta(description="Number of its offsets partition.")] = None
    step: Annotated[str, Meta(description="How far its move is; absent while it does not move.")] = ""
    last_move: GroupMove | None = None
    reset: ResetStatus | None = None
    past_resets: Annotated[tuple[PastReset, ...], Meta(description="Resets before that one, oldest first.")] = ()


class ConsumerGroup(msgspec.Struct, frozen=True, rename="camel"):
    """A group, and where it shall be coordinated. Deleting it changes nothing of the group."""

    plural: ClassVar[str] = "consumergroups"

    metadata: ObjectMeta
    spec: ConsumerGroupSpec
    status: ConsumerGroupStatus = ConsumerGroupStatus()
