"""The ports of the transaction coordinator to its pod: knowledge of topics, and somebody who writes markers."""

from __future__ import annotations

from typing import Protocol

from muster_coordinator.requests.transactions import MarkersToWrite
from muster_coordinator.state_machine import Token


class MarkedTopics(Protocol):
    """The topics whose partitions take part in transactions: those to which this cluster can write markers. They are
    internal ones: clients write to them through a coordinator only."""

    def takes_markers(self, topic: str) -> bool:
        """True if partitions of `topic` can be marked at all."""
        ...

    def has(self, topic: str, partition: int) -> bool:
        """True if the partition exists."""
        ...

    @property
    def holds_transactions(self) -> bool:
        """No transaction may begin: the partitions are about to be others."""
        ...

    def partition_of_group(self, group_id: str) -> tuple[str, int] | None:
        """Returns topic and partition with the group's offsets; None while that is not known."""
        ...


class MarkerWriter(Protocol):
    """Writes markers to the partitions of a transaction, through their leaders."""

    def attempt(self, request: MarkersToWrite) -> Token:
        """Returns the token of one attempt. The shard answers it when the decision is committed: the markers may be
        written then; or it refuses it.

        Either way the shard that has answered or refused gets `MarkersWritten` for each partition, once, when nothing
        of the attempt can reach that partition any more. A marker that arrives after another attempt has succeeded
        would end the next transaction of a client of transaction version 1, which has the same epoch.
        """
        ...
