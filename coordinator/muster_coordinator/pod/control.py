"""The pod as its HTTP API sees it: calls of operators, status, and health."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.partition_numbers import TRANSACTIONS
from muster_coordinator.peers.network import PeerNetwork
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.pod.drain import Drain
from muster_coordinator.pod.election_spans import ElectionSpans
from muster_coordinator.pod.fencing_token import FencingTokens
from muster_coordinator.pod.given_access import GivenAccess
from muster_coordinator.pod.images import Images
from muster_coordinator.pod.last_image import LastImage
from muster_coordinator.pod.mirroring.health import MirrorHealth
from muster_coordinator.pod.publishing import PartitionPublisher
from muster_coordinator.pod.replica_manager import ReplicaManager
from muster_coordinator.pod.status import held_by, replica_status
from muster_coordinator.podapi import models as p
from muster_coordinator.podapi.control import RefusedCallError
from muster_coordinator.podapi.events import EventHub
from muster_coordinator.podapi.image import MetadataAnswer, MetadataImage
from muster_coordinator.settings import PeerSettings
from muster_coordinator.tracing.ports import Spans


@dataclass(frozen=True)
class PodIdentity:
    """The names of this process. `boot_id` is the machine's; `uid` the Kubernetes pod's, or a text of this run only."""

    name: str
    node_id: int
    uid: str
    boot_id: str
    version: str
    kafka_address: str


class Pod:
    """Implements `podapi.control.PodControl` for one coordinator process."""

    def __init__(
        self,
        identity: PodIdentity,
        manager: ReplicaManager,
        view: ClusterView,
        network: PeerNetwork,
        last_image: LastImage,
        settings: PeerSettings,
        mirror: MirrorHealth,
        *,
        delete_offsets_of_removed_topics: bool,
        given: GivenAccess | None = None,
        spans: Spans | None = None,
        site: Callable[[], p.SiteStatus | None] = lambda: None,
    ) -> None:
        """`given`: what the operator has given of users and ACLs, if this pod takes them from it. `spans`: where
        elections are traced. `site`: the pod's right to answer clients, if it is of a site."""
        self.identity = identity
        self._mirror = mirror
        self._given = given
        self._site = site
        self._manager = manager
        self._view = view
        self._network = network
        self._hub = EventHub(self.status)
        self.tokens = FencingTokens(refused=self._hub.publish_status)
        self._images = Images(
            manager,
            view,
            network,
            last_image,
            self._hub.publish_status,
            recall_after_ms=settings.self_nomination_after_ms,
            delete_offsets_of_removed_topics=delete_offsets_of_removed_topics,
        )
        self._publisher = PartitionPublisher(self._hub, self._status_of, self._images.followed)
        self._drain = Drain(manager, self._images.replicated, self._hub.publish_status, settings.drain_timeout_ms)
        self._listening = False
        self._election_spans = ElectionSpans(spans, self._status_of) if spans is not None else None

    def partition_changed(self, partition: int) -> None:
        """Implements `pod.events.PodWatcher`."""
        self._publisher.changed(partition)
        if self._election_spans is not None:
            self._election_spans.partition_changed(partition)

    def pod_changed(self) -> None:
        """Implements `pod.events.PodWatcher`."""
        self._hub.publish_status()

    def remember(self, image: MetadataImage) -> None:
        """`image` is the last one of an earlier run of this pod."""
        self.tokens.note(image.token)
        self._images.remember(image)

    def listening(self) -> None:
        """The start is over: the Kafka listener accepts connections."""
        self._listening = True
        self._publisher.start()
        self._hub.publish_status()

    async def stop(self) -> None:
        """Stop publishing, and wait until the last image is written."""
        self._publisher.stop()
        await self._images.stop()

    # -- calls --------------------------------------------------------------------------------------------------------

    async def create_replicas(self, request: p.ReplicasRequest) -> p.CallResults:
        self.tokens.check(request.fencing_token)
        self.operator_heard()
        results = await asyncio.gather(
            *(self._manager.create_replica(r.partition, r.segment_bytes) for r in request.partitions)
        )
        self._images.set_learners(r.partition for r in request.partitions)
        return p.CallResults(tuple(results))

    async def remove_replicas(self, request: p.RemovalsRequest) -> p.CallResults:
        self.tokens.check(request.fencing_token)
        self.operator_heard()
        results = await asyncio.gather(*(self._remove(each) for each in request.removals))
        self._hub.publish_status()
        return p.CallResults(tuple(results))

    async def _remove(self, each: p.RemovalRequest) -> CallResult:
        if self._images.names(each.partition, each.log_id):
            return CallResult(each.partition, CallStatus.INVALID, message="the metadata image names this replica")
        is_served = self._view.image is None or self._view.is_current(each.partition)
        return await self._manager.remove_replica(each.partition, each.log_id, each.epoch, is_served=is_served)

    async def elect(self, request: p.ElectionsRequest) -> p.CallResults:
        self.operator_heard()
        results = await asyncio.gather(*(self._elect(each, request.trace) for each in request.elections))
        self._manager.metrics.elections.update(result.status.value for result in results)
        return p.CallResults(tuple(results))

    async def _elect(self, each: p.Election, trace: str) -> CallResult:
        if self._election_spans is not None:
            self._election_spans.called(each, trace)
        result = await self._manager.elect(
            each.partition,
            each.epoch,
            each.replicas,
            each.previous_replicas,
            bootstrap=each.bootstrap,
            force=each.force,
            allow_data_loss=each.allow_data_loss,
        )
        if self._election_spans is not None:
            self._election_spans.answered(each, result)
        return result

    async def resign(self, request: p.ResignationsRequest) -> p.CallResults:
        self.operator_heard()
        results = await asyncio.gather(*(self._manager.resign(r.partition, r.epoch) for r in request.resignations))
        return p.CallResults(tuple(results))

    def update_metadata(self, image: MetadataImage) -> MetadataAnswer:
        last = self._images.last
        if last is not None and last.cluster_id != image.cluster_id:
            message = f"the volume of this pod belongs to Kafka cluster {last.cluster_id!r}, not {image.cluster_id!r}"
            raise RefusedCallError(409, "ForeignCluster", message)
        self.tokens.check(image.token)
        self.operator_heard()
        was_ready = self.ready()[0]
        taken = self._images.take(image)
        if not taken or self.ready()[0] != was_ready:
            self._hub.publish_status()  # an operator whose image is refused learns which one is here
        if not taken:
            message = f"image {image.token}.{image.version} is older than the one that this pod serves"
            raise RefusedCallError(409, "StaleImage", message)
        return MetadataAnswer(image.token, image.version)

    def operator_heard(self) -> None:
        self._drain.operator_heard()
        self._manager.operator_heard()

    async def drain(self, token: int | None = None) -> None:
        if token is not None:
            self.tokens.check(token)
        await self._drain.run()

    # -- status -------------------------------------------------------------------------------------------------------

    def status(self) -> p.PodStatus:
        image = self._view.image if not self._view.recalled else None  # recalled: the operator shall put its own
        identity, last = self.identity, self._images.last
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
            cluster_id=last.cluster_id if last is not None else "",
            offsets_base=last.offsets_base if last is not None else 0,
            offsets_partitions=last.offsets_partitions if last is not None else 0,
            transaction_base=last.transaction_base if last is not None else TRANSACTIONS.first,
            transaction_partitions=last.transaction_partitions if last is not None else 0,
            mirror_problem=self._mirror.problem,
            mirror_bypassed=self._mirror.bypassed,
            access=self._given.fingerprint if self._given is not None else None,
            site=self._site(),
        )

    def partitions(self) -> tuple[p.ReplicaStatus, ...]:
        """All replicas, and directories that cannot serve as one because their promise cannot be read."""
        here = sorted({*self._manager.replicas, *self._manager.health.damage})
        return tuple(status for one in here if (status := self._status_of(one)) is not None)

    def _status_of(self, partition: int) -> p.ReplicaStatus | None:
        return replica_status(self._manager, partition, held_by(self._view))

    def subscribe(self) -> AsyncGenerator[p.StatusEvent | p.PartitionEvent, None]:
        return self._hub.subscribe()

    # -- health -------------------------------------------------------------------------------------------------------

    def live(self) -> tuple[bool, str]:
        must_restart = self._manager.health.must_restart
        return (False, must_restart) if must_restart else (True, "the event loop runs")

    def started(self) -> tuple[bool, str]:
        return (True, "listening") if self._listening else (False, "recovering the logs")

    def ready(self) -> tuple[bool, str]:
        if not self._listening:
            return False, "recovering the logs"
        if self._manager.health.cannot_write:
            return False, f"cannot write: {self._manager.health.cannot_write}"
        if self._manager.draining:
            return False, "draining"
        if self._view.image is None:
            return False, "no metadata image from the operator yet"
        return True, "serving"
