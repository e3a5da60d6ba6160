"""What a pod offers to its HTTP API: the port between `podapi.server` and the runtime of the shards."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from muster_coordinator.podapi.fields import Problem
from muster_coordinator.podapi.image import MetadataAnswer, MetadataImage
from muster_coordinator.podapi.models import (
    CallResults,
    ElectionsRequest,
    PartitionEvent,
    PodStatus,
    RemovalsRequest,
    ReplicasRequest,
    ReplicaStatus,
    ResignationsRequest,
    StatusEvent,
)

__all__ = ["PodControl", "RefusedCallError"]


class RefusedCallError(Exception):
    """A call that is refused as a whole: HTTP status, stable reason, message for people."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.problem = Problem(reason, message)


class PodControl(Protocol):
    """The pod itself. Every call is idempotent and gives one result per named partition, in the order of the request.

    What concerns a single partition goes into its result. Calls that carry a fencing token raise RefusedCallError
    (409, StaleToken) if the pod has seen a higher one.
    """

    async def create_replicas(self, request: ReplicasRequest) -> CallResults:
        """Make sure that a log, its log id and its promise file exist for every partition named; durable on return."""

    async def remove_replicas(self, request: RemovalsRequest) -> CallResults:
        """Delete logs that left their sets. One that may count again, or that the image names, is kept."""

    async def elect(self, request: ElectionsRequest) -> CallResults:
        """onElection. Never waits for a load that takes long (`CallStatus.LOADING`; its end comes as an event), so that
        one large partition delays no other."""

    async def resign(self, request: ResignationsRequest) -> CallResults:
        """onResignation. The promise is durable on return."""

    def status(self) -> PodStatus:
        """Everything, partitions included."""

    def partitions(self) -> tuple[ReplicaStatus, ...]:
        """The replicas that are here, by partition index."""

    def update_metadata(self, image: MetadataImage) -> MetadataAnswer:
        """Take the image. Raises RefusedCallError (409, StaleImage) if its (token, version) is lower than the current
        one's."""

    def subscribe(self) -> AsyncGenerator[StatusEvent | PartitionEvent, None]:
        """Events from now on, the first one a `StatusEvent`. See `podapi.events.EventHub`."""

    def operator_heard(self) -> None:
        """The operator's watch stream is open: somebody is there who elects."""

    async def drain(self, token: int | None) -> None:
        """Take no election from now on, give the operator a moment to move away what this pod leads, and resign from
        the rest. `token` is None for a caller that is no operator: a person, or the end of the process."""

    def live(self) -> tuple[bool, str]:
        """Whether the process should stay, and one line that says why."""

    def ready(self) -> tuple[bool, str]:
        """Whether clients should be sent here, and one line that says why."""

    def started(self) -> tuple[bool, str]:
        """Whether start-up (recovery of the logs included) is over, and one line that says why."""
