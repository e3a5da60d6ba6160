"""The pod as its HTTP API sees it: implements ``podapi.control.PodControl`` over the shard manager and the cluster
view."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass

import structlog

from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.peers.network import PeerNetwork
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.pod.drain import Drain, led_partitions, resign_from
from muster_coordinator.pod.fencing_token import FencingTokens
from muster_coordinator.pod.last_image import LastImage
from muster_coordinator.pod.publishing import PartitionPublisher
from muster_coordinator.pod.replica_manager import ReplicaManager
from muster_coordinator.pod.status import partition_status
from muster_coordinator.podapi import models as p
from muster_coordinator.podapi.control import RefusedCallError
from muster_coordinator.podapi.events import EventHub
from muster_coordinator.podapi.image import MetadataAnswer, MetadataImage
from muster_coordinator.requests.groups import TopicsDeleted
from muster_coordinator.settings import PeerSettings

logger = structlog.get_logger(__name__)


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
        self,
        identity: PodIdentity,
        manager: ReplicaManager,
        view: ClusterView,
        network: PeerNetwork,
        last_image: LastImage,
        settings: PeerSettings,
        *,
        delete_offsets_of_removed_topics: bool,
    ) -> None:
        self.identity = identity
        self._delete_offsets = delete_offsets_of_removed_topics
        self._manager = manager
        self._view = view
        self._network = network
        self._last_image = last_image
        self._settings = settings
        self._hub = EventHub(self.status)
        self.tokens = FencingTokens(refused=self._hub.publish_status)
        self._publisher = PartitionPublisher(self._hub, self._status_of, self._replicated)
        self._drain = Drain(manager, self._replicated, self._hub.publish_status, settings.drain_timeout_ms)
        self._listening = False
        self._places: dict[int, tuple[str, ...]] = {}  # log ids by partition, as the image has them
        self._recalling: asyncio.TimerHandle | None = None
        self._giving_up: asyncio.Task[None] | None = None
        manager.on_partition_change = self._publisher.changed
        manager.on_pod_change = self._hub.publish_status
        network.on_lost_change = self._hub.publish_status

    def remember(self, image: MetadataImage) -> None:
        """``image`` is the last one of an earlier run: the replicas go on with it at once, clients only when no
        operator came for a while (it knows better)."""
        self.tokens.note(image.token)
        self._tell_replicas(image)
        after_ms = self._settings.self_nomination_after_ms
        if after_ms:
            self._recalling = asyncio.get_running_loop().call_later(after_ms / 1000, self._recall, image)

    def _recall(self, image: MetadataImage) -> None:
        if self._view.image is None:
            logger.warning("operator_not_heard", note="clients are answered from what an earlier run knew")
            self._view.recall(image)
            self._hub.publish_status()

    def listening(self) -> None:
        """Start-up is over: the Kafka listener accepts."""
        self._listening = True
        self._publisher.start()
        self._hub.publish_status()

    async def stop(self) -> None:
        """What is written in the background ends."""
        self._publisher.stop()
        if self._recalling is not None:
            self._recalling.cancel()
        await self._last_image.close()

    # -- calls --------------------------------------------------------------------------------------------------------

    async def create_replicas(self, request: p.ReplicasRequest) -> p.CallResults:
        self.tokens.check(request.fencing_token)
        self.operator_heard()
        results = await asyncio.gather(
            *(self._manager.create_replica(r.partition, r.segment_bytes) for r in request.partitions)
        )
        self._set_learners(r.partition for r in request.partitions)
        return p.CallResults(tuple(results))

    async def remove_replicas(self, request: p.RemovalsRequest) -> p.CallResults:
        self.tokens.check(request.fencing_token)
        self.operator_heard()
        results = await asyncio.gather(*(self._remove(each) for each in request.removals))
        self._hub.publish_status()
        return p.CallResults(tuple(results))

    async def _remove(self, each: p.RemovalRequest) -> CallResult:
        if each.log_id in self._places.get(each.partition, ()):
            return CallResult(each.partition, CallStatus.INVALID, message="the metadata image names this replica")
        return await self._manager.remove_replica(each.partition, each.log_id, each.epoch)

    async def elect(self, request: p.ElectionsRequest) -> p.CallResults:
        self.operator_heard()
        results = await asyncio.gather(
            *(
                self._manager.elect(
                    e.partition,
                    e.epoch,
                    e.replicas,
                    e.previous_replicas,
                    bootstrap=e.bootstrap,
                    force=e.force,
                    allow_data_loss=e.allow_data_loss,
                )
                for e in request.elections
            )
        )
        self._manager.metrics.elections.update(result.status.value for result in results)
        return p.CallResults(tuple(results))

    async def resign(self, request: p.ResignationsRequest) -> p.CallResults:
        self.operator_heard()
        results = await asyncio.gather(*(self._manager.resign(r.partition, r.epoch) for r in request.resignations))
        return p.CallResults(tuple(results))

    def update_metadata(self, image: MetadataImage) -> MetadataAnswer:
        self.tokens.check(image.token)
        self.operator_heard()
        topics, was_ready = self._view.topics, self.ready()[0]
        if not self._view.update(image):
            self._hub.publish_status()  # the operator learns which image is here
            raise RefusedCallError(
                409, "StaleImage", f"image {image.token}.{image.version} is older than the current one"
            )
        self._tell_replicas(image)
        self._last_image.keep(image)
        self._give_up_replaced(image)
        if self.ready()[0] != was_ready:
            self._hub.publish_status()
        if self._delete_offsets and self._view.lacks_any_of(topics):
            for shard in self._manager.shards.values():
                shard.notify(TopicsDeleted(self._view.has))
        return MetadataAnswer(image.token, image.version)

    def _give_up_replaced(self, image: MetadataImage) -> None:
        """What a re-shard has replaced is led no more. It was closed before, so no client notices."""
        replaced = [partition for partition in led_partitions(self._manager) if partition < image.offsets_base]
        if replaced:
            self._giving_up = asyncio.create_task(resign_from(self._manager, replaced))

    def _tell_replicas(self, image: MetadataImage) -> None:
        """Where the others are, and whom a leader here feeds besides those that its log counts."""
        self._network.update(image)
        places: dict[int, tuple[str, ...]] = {}
        for place in image.places:
            places[place.partition] = (*places.get(place.partition, ()), place.log_id)
        self._places = places
        self._set_learners(self._manager.replicas)

    def _set_learners(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._manager.set_learners(partition, self._places.get(partition, ()))

    def operator_heard(self) -> None:
        self._drain.operator_heard()
        self._manager.operator_heard()

    async def drain(self, token: int | None = None) -> None:
        if token is not None:
            self.tokens.check(token)
        await self._drain.run()

    # -- status -------------------------------------------------------------------------------------------------------

    def status(self) -> p.PodStatus:
        image = self._view.image if not self._view.recalled else None  # so that the operator pushes its own
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
            peer_address=self._network.address,
            fencing_token=self.tokens.highest,
            lost_peers=self._network.lost,
        )

    def partitions(self) -> tuple[p.ReplicaStatus, ...]:
        """Every replica; and directories that are none because their promise cannot be read."""
        here = sorted({*self._manager.replicas, *self._manager.damage})
        return tuple(status for one in here if (status := self._status_of(one)) is not None)

    def _status_of(self, partition: int) -> p.ReplicaStatus | None:
        return partition_status(self._manager, partition)

    def _replicated(self) -> Iterable[int]:
        """Partitions that other pods have replicas of, or may be about to get."""
        return [one for one in self._manager.replicas if len(self._places.get(one, ())) > 1]

    def subscribe(self) -> AsyncGenerator[p.StatusEvent | p.PartitionEvent, None]:
        return self._hub.subscribe()

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
