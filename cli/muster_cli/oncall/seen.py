"""The facts that were read of clusters, and the port that reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from muster_cli.errors import CliError
from muster_operator.api.models import CoordinatorCluster, MusterUser, OffsetsPartition, OffsetsTopic, PartitionState

OPERATOR_AWAY_S = 60.0
"""Ten times what an operator that lives may take to renew its Lease: the clock of this machine may be wrong."""


class Unreachable(CliError):
    """Neither the API server nor an instance of this machine answers, or what was asked about is not there."""

    exit_code = 2


@dataclass(frozen=True)
class PodSeen:
    """A coordinator pod. `node`: of Kubernetes, or "" on one machine. `trouble`: why it does not run ("": it does)."""

    name: str
    phase: str
    ready: bool
    node: str = ""
    restarts: int = 0
    trouble: str = ""
    image: str = ""
    uid: str = ""


@dataclass(frozen=True)
class OperatorSeen:
    """The operator that acts for a cluster. `renewed`: when it last said so, in seconds since 1970."""

    holder: str
    renewed: float

    def acts(self, now: float) -> bool:
        """Tells whether it does at `now`, in seconds since 1970."""
        return bool(self.holder) and now - self.renewed <= OPERATOR_AWAY_S


NO_OPERATOR = OperatorSeen("", 0.0)
"""There is no Lease: no operator has ever acted in the namespace."""


@dataclass(frozen=True)
class Unreadable:
    """An object that an older schema let in, or another version of Muster has written."""

    namespace: str
    about: str
    problem: str


@dataclass(frozen=True)
class Seen:
    """One cluster. `operator`: None if nobody could be asked. `users`: None if they may not be read. `unreadable`: in
    the namespace; what could be read of them is among the others.
    """

    cluster: CoordinatorCluster
    topics: tuple[OffsetsTopic, ...] = ()
    partitions: tuple[OffsetsPartition, ...] = ()
    pods: tuple[PodSeen, ...] = ()
    users: tuple[MusterUser, ...] | None = ()
    operator: OperatorSeen | None = None
    unreadable: tuple[Unreadable, ...] = ()

    @property
    def serving(self) -> tuple[OffsetsPartition, ...]:
        """The partitions by index, without those that a re-shard has replaced."""
        kept = (each for each in self.partitions if each.status.state is not PartitionState.RETIRED)
        return tuple(sorted(kept, key=lambda each: each.spec.index))


class Reader(Protocol):
    """The source from which clusters are read."""

    async def look(self) -> tuple[Seen, ...]:
        """The clusters that were asked about, by namespace and name. Raises Unreachable."""
