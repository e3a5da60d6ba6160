"""The pod as its HTTP API sees it: implements ``podapi.control.PodControl`` over the shard manager and the cluster
view."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from muster_coordinator.podapi import models as p
from muster_coordinator.podapi.events import EventHub
from muster_coordinator.server.cluster_view import ClusterView
from muster_coordinator.shard.manager import ShardManager
from muster_coordinator.shard.outcome import Outcome
from muster_coordinator.shard.replica import Replica
from muster_coordinator.shard.states import FailureReason, ShardState


@dataclass(frozen=True)
class PodIdentity:
    """Who this process is. ``boot_id`` is the machine's; ``uid`` the Kubernetes pod's, or any text that changes per
    run."""

    name: str
    node_id: int
    uid: str
    boot_id: str
    version: str
    kafka_address: str


class Pod:
    """``PodControl`` of one coordinator process."""

    def __init__(
        self, identity: PodIdentity, manager: ShardManager, view: ClusterView, *, delete_offsets_of_removed_topics: bool
    ) -> None:
        self.identity = identity
        self._delete_offsets = delete_offsets_of_removed_topics
        self._manager = manager
        self._view = view
        self._hub = EventHub(self.status)
        self._listening = False
        manager.on_partition_change = self._partition_changed
        manager.on_pod_change = self._hub.publish_status

    def listening(self) -> None:
        """Start-up is over: the Kafka listener accepts."""
        self._listening = True
        self._hub.publish_status()

    # -- calls --------------------------------------------------------------------------------------------------------

    async def create_replicas(self, request: p.ReplicasRequest) -> p.ReplicasResponse:
        outcomes = await asyncio.gather(
            *(self._manager.create_replica(r.partition, r.segment_bytes) for r in request.partitions)
        )
        return p.ReplicasResponse(
            tuple(
                p.ReplicaResult.of(
                    o.partition,
                    p.CallStatus(o.code.value),
                    log_id=o.log_id,
                    end_offset=o.end_offset,
                    used=o.used,
                    message=o.message,
                )
                for o in outcomes
            )
        )

    async def elect(self, request: p.ElectionsRequest) -> p.ElectionsResponse:
        outcomes = await asyncio.gather(
            *(
                self._manager.elect(e.partition, e.epoch, e.replicas, e.previous_replicas, bootstrap=e.bootstrap)
                for e in request.elections
            )
        )
        return p.ElectionsResponse(tuple(_election_result(o) for o in outcomes))

    async def resign(self, request: p.ResignationsRequest) -> p.ResignationsResponse:
        outcomes = await asyncio.gather(*(self._manager.resign(r.partition, r.epoch) for r in request.resignations))
        return p.ResignationsResponse(
            tuple(
                p.ResignationResult.of(
                    o.partition,
                    p.CallStatus(o.code.value),
                    epoch=o.epoch,
                    ended_epoch=o.ended_epoch,
                    message=o.message,
                )
                for o in outcomes
            )
        )

    def update_metadata(self, image: p.MetadataImage) -> p.MetadataAnswer:
        before, was_ready = self._view.topics, self.ready()[0]
        accepted = self._view.update(image)
        if self.ready()[0] != was_ready:
            self._hub.publish_status()
        if accepted and self._delete_offsets and self._view.lacks_any_of(before):
            for shard in self._manager.shards.values():
                shard.partitions_deleted(self._view.has)
        current = self._view.image or image
        return p.MetadataAnswer(accepted, current.token, current.version)

    async def drain(self) -> None:
        await self._manager.drain()

    # -- status -------------------------------------------------------------------------------------------------------

    def status(self) -> p.PodStatus:
        image = self._view.image
        identity = self.identity
        return p.PodStatus(
            pod=identity.name,
            node_id=identity.node_id,
            pod_uid=identity.uid,
            boot_id=identity.boot_id,
            version=identity.version,
            kafka_address=identity.kafka_address,
            ready=self.ready()[0],
            started=self._listening,
            draining=self._manager.draining,
            metadata_token=image.token if image is not None else -1,
            metadata_version=image.version if image is not None else -1,
            partitions=self.partitions(),
        )

    def partitions(self) -> tuple[p.PartitionStatus, ...]:
        """Every replica; and directories that are none because their promise cannot be read, without a log id."""
        replicas = self._manager.replicas
        unreadable = [p for p in self._manager.damage if p not in replicas]
        return tuple(
            self._partition_status(replicas[p]) if p in replicas else _unreadable_replica(p, self._manager.damage[p])
            for p in sorted([*replicas, *unreadable])
        )

    def _partition_status(self, replica: Replica) -> p.PartitionStatus:
        shard = self._manager.shards.get(replica.partition)
        damage = self._manager.damage.get(replica.partition, "")
        leads = shard is not None and shard.state in (ShardState.LOADING, ShardState.ACTIVE)
        state = shard.state if shard is not None else ShardState.INITIAL
        reason, message = (shard.reason, shard.message) if shard is not None else ("", "")
        if damage:
            state, reason, message = ShardState.FAILED, FailureReason.LOG_DAMAGED, damage
        return p.PartitionStatus(
            partition=replica.partition,
            state=state.value,
            role="leader" if leads else "none",
            epoch=replica.promised.epoch,
            leader_epoch=shard.epoch if shard is not None and leads else -1,
            log_id=replica.log_id,
            used=not replica.is_open or not replica.never_used,
            log_end_offset=replica.end_offset if replica.is_open else -1,
            high_watermark=shard.high_watermark if shard is not None else -1,
            reason=reason,
            message=message,
            groups=sum(shard.coordinator.group_counts().values()) if shard is not None else 0,
        )

    def subscribe(self) -> AsyncGenerator[p.StatusEvent | p.PartitionEvent, None]:
        return self._hub.subscribe()

    def _partition_changed(self, partition: int) -> None:
        replica = self._manager.replicas.get(partition)
        if replica is not None:
            self._hub.publish(self._partition_status(replica))

    # -- health -------------------------------------------------------------------------------------------------------

    def live(self) -> tuple[bool, str]:
        must_restart = self._manager.must_restart
        return (False, must_restart) if must_restart else (True, "the event loop turns")

    def started(self) -> tuple[bool, str]:
        return (True, "listening") if self._listening else (False, "recovering the logs")

    def ready(self) -> tuple[bool, str]:
        if not self._listening:
            return False, "recovering the logs"
        if self._manager.cannot_write:
            return False, f"cannot write: {self._manager.cannot_write}"
        if self._manager.draining:
            return False, "draining"
        if self._view.image is None:
            return False, "no metadata image from the operator yet"
        return True, "serving"


def _unreadable_replica(partition: int, damage: str) -> p.PartitionStatus:
    return p.PartitionStatus(
        partition,
        ShardState.FAILED.value,
        used=True,
        log_end_offset=-1,
        reason=FailureReason.LOG_DAMAGED,
        message=damage,
    )


def _election_result(outcome: Outcome) -> p.ElectionResult:
    return p.ElectionResult.of(
        outcome.partition,
        p.CallStatus(outcome.code.value),
        epoch=outcome.epoch,
        message=outcome.message,
        log_id=outcome.log_id,
    )
