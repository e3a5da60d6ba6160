"""The port between `podapi.server` and the pod."""

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
        """Create a log, its log id and its promise file for every named partition that has none. Durable on return."""

    async def remove_replicas(self, request: RemovalsRequest) -> CallResults:
        """Delete logs that left their sets. A log that cannot prove that it does not count, or that the image names, is
        kept."""

    async def elect(self, request: ElectionsRequest) -> CallResults:
        """onElection. It does not wait for a long load, so that one large partition delays no other: then the result is
        `CallStatus.LOADING`, and the end of the load comes as an event."""

    async def resign(self, request: ResignationsRequest) -> CallResults:
        """onResignation. The promise is durable on return."""

    def status(self) -> PodStatus:
        """The status of the pod and of all its replicas."""

    def partitions(self) -> tuple[ReplicaStatus, ...]:
        """The replicas of this pod, in the order of partitions."""

    def update_metadata(self, image: MetadataImage) -> MetadataAnswer:
        """Take the image. Raises RefusedCallError: 409, StaleImage if its (token, version) is lower than the current
        one's; 409, ForeignCluster if this data directory has taken images of another Kafka cluster."""

    def subscribe(self) -> AsyncGenerator[StatusEvent | PartitionEvent, None]:
        """Yield events from now on, a `StatusEvent` first. See `podapi.events.EventHub`."""

    def operator_heard(self) -> None:
        """The operator's watch stream is open: replicas leave elections to the operator."""

    async def drain(self, token: int | None) -> None:
        """Take no election from now on, wait until the operator has moved away what this pod leads, and resign from
        the rest. `token` is None for a caller that is no operator: a person, or the end of the process."""

    def live(self) -> tuple[bool, str]:
        """True if the process should go on, and one line that says why."""

    def ready(self) -> tuple[bool, str]:
        """True if clients should be sent here, and one line that says why."""

    def started(self) -> tuple[bool, str]:
        """True if the start is over, with the recovery of the logs, and one line that says why."""
