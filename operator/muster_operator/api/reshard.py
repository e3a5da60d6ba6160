"""A re-shard of the offsets topic, as it is asked for and as the operator carries it out (docs/resharding.md)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from muster_operator.api.meta import MAX_PARTITIONS, Time


class Reshard(msgspec.Struct, frozen=True, rename="camel"):
    """Another number of partitions. Set by `muster reshard`, which also writes the new logs. Taking it back ends a
    re-shard that has not come as far as Opening, with the old partitions as they were."""

    partitions: Annotated[int, Meta(ge=1, le=MAX_PARTITIONS, description="How many partitions there shall be.")]


class Layout(msgspec.Struct, frozen=True, rename="camel"):
    """The OffsetsPartitions that serve: those with the indexes from base on. Clients know them as 0 and up."""

    base: Annotated[int, Meta(ge=0, description="Index of the first OffsetsPartition that serves.")]
    partitions: Annotated[int, Meta(ge=1, description="How many serve.")]

    @property
    def indexes(self) -> range:
        return range(self.base, self.base + self.partitions)


class ReshardPhase(StrEnum):
    """The progress of a re-shard. From Opening on it cannot be taken back."""

    PREPARING = "Preparing"
    """The new partitions get their replicas and leaders; the old ones serve."""
    FENCING = "Fencing"
    """The old partitions close, one after the other."""
    COPYING = "Copying"
    """All are closed. `muster reshard` reads the old logs and fills the new ones."""
    OPENING = "Opening"
    """The new partitions are complete, are what clients are sent to, and open."""
    DONE = "Done"
    ABORTING = "Aborting"
    """The old partitions open again."""
    ABORTED = "Aborted"


class ReshardStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The last re-shard. Its number is the base of its partitions: it is never given twice."""

    phase: Annotated[ReshardPhase, Meta(description="How far it is.")]
    base: Annotated[int, Meta(ge=1, description="Index of its first OffsetsPartition, and its number.")]
    partitions: Annotated[int, Meta(ge=1, description="How many partitions it makes.")]
    generation: Annotated[int, Meta(ge=0, description="The metadata.generation of the topic that asked for it.")]
    start_time: Annotated[Time, Meta(description="When it began.")] = ""
    ready: Annotated[int, Meta(ge=0, description="Partitions that are as far as this phase wants them.")] = 0
    total: Annotated[int, Meta(ge=0, description="Of how many.")] = 0
    message: Annotated[str, Meta(description="What it waits for.")] = ""
    epoch: Annotated[int, Meta(ge=0, description="Leader epoch that those of its partitions are above.")] = 0

    @property
    def layout(self) -> Layout:
        """The layout that it makes."""
        return Layout(self.base, self.partitions)
