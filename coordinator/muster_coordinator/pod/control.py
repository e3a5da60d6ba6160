"""The pod as its HTTP API sees it: implements ``podapi.control.PodControl`` over the shard manager and the cluster
view."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass

import structlog

from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.peers.network import PeerNetwork
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.pod.fencing_token import FencingTokens
from muster_coordinator.pod.last_image import LastImage
from muster_coordinator.pod.publishing import PartitionPublisher
from muster_coordinator.pod.replica_manager import ReplicaManager
from muster_coordinator.pod.status import partition_status
from muster_coordinator.podapi import models as p
from muster_coordinator.podapi.control import RefusedCallError
from muster_coordinator.podapi.events import EventHub
from muster_coordinator.podapi.image import MetadataAnswer, MetadataImage
from muster_coordinator.replication.epochs import NOBODY
from muster_coordinator.requests.groups import TopicsDeleted
from muster_coordinator.settings import PeerSettings
from muster_coordinator.states import LEADING_STATES

logger = structlog.get_logger(__name__)

OPERATOR_AWAY_S = 1.0
"""An operator that was heard within this time may still move partitions away; its streams give a sign every 200 ms."""

DRAIN_POLL_S = 0.02
LONGEST_DRAIN_S = 20.0
"""A drain whose moves go on is not broken off before that: Kubernetes leaves a pod 30 s."""

HAND_OVER_S = 1.0
"""How long a drained pod stays for new leaders that have not committed anything yet."""


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
        self._listening = False
        self._operator_heard_s: float | None = None  # on the loop's clock
        self._places: dict[int, tuple[str, ...]] = {}  # log ids by partition, as the image has them
        self._drained: asyncio.Task[None] | None = None
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
        replaced = [partition for partition in self._led() if partition < image.offsets_base]
        if replaced:
            self._giving_up = asyncio.get_running_loop().create_task(self._resign(replaced))

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
        self._operator_heard_s = asyncio.get_running_loop().time()
        self._manager.operator_heard()

    @property
    def _operator_is_near(self) -> bool:
        heard_s = self._operator_heard_s
        return heard_s is not None and asyncio.get_running_loop().time() - heard_s < OPERATOR_AWAY_S

    async def drain(self, token: int | None = None) -> None:
        if token is not None:
            self.tokens.check(token)
        if self._drained is None:
            self._drained = asyncio.create_task(self._drain())
        await asyncio.shield(self._drained)

    async def _drain(self) -> None:
        """Partitions of one replica have nowhere to go: they are given up at once. The others are led on until the
        operator has moved them away, so that their clients wait for an election and no longer. And the pod stays until
        the new leaders have committed: what they lack of their log they may be fetching from here."""
        self._manager.draining = True
        self._hub.publish_status()  # first of all, so that nobody elects this pod for what it gives up now
        replicated = set(self._replicated()).intersection(self._led())
        await self._resign(p for p in self._led() if p not in replicated)
        if not await self._moved_away(replicated, self._settings.drain_timeout_ms / 1000):
            logger.warning("drain_not_finished", partitions=sorted(replicated.intersection(self._led())))
        await self._resign(self._led())
        await self._while_operator_is_near(lambda: all(self._led_elsewhere(p) for p in replicated), HAND_OVER_S)
        self._hub.publish_status()

    async def _moved_away(self, partitions: set[int], timeout_s: float) -> bool:
        """Wait until none of them is led here, for as long as the next one goes within the time."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + max(timeout_s, LONGEST_DRAIN_S)
        left = partitions

        def some_moved() -> bool:
            nonlocal left
            before, left = left, left.intersection(self._led())
            return left != before

        while left:
            if not await self._while_operator_is_near(some_moved, min(timeout_s, ends_s - loop.time())):
                return False
        return True

    async def _while_operator_is_near(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until ``done``; whether it was."""
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        while not done():
            if not self._operator_is_near or asyncio.get_running_loop().time() >= deadline_s:
                return False
            await asyncio.sleep(DRAIN_POLL_S)
        return True

    def _led_elsewhere(self, partition: int) -> bool:
        """Another replica leads, and this one knows a record of its epoch to be committed."""
        host = self._manager.hosts.get(partition)
        core = host.core if host is not None else None
        if core is None:
            return True
        own_or_nobody = core.promise.leader in (core.log_id, NOBODY)
        return not own_or_nobody and core.log.epoch_before(core.commit_point) == core.promise.epoch

    async def _resign(self, partitions: Iterable[int]) -> None:
        replicas = self._manager.replicas
        await asyncio.gather(*(self._manager.resign(p, replicas[p].promised.epoch + 1) for p in partitions))

    def _led(self) -> list[int]:
        return [s.partition for s in self._manager.shards.values() if s.state in LEADING_STATES]

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
