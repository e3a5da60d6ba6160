"""The metadata images that an operator puts: who learns what of them, and what is left of the last one after a restart.

See ADR 2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from muster_coordinator.partition_numbers import OFFSETS, TRANSACTIONS, topic_of
from muster_coordinator.peers.network import PeerNetwork
from muster_coordinator.pod.cluster_view import ClusterView, topic_id
from muster_coordinator.pod.drain import led_partitions, resign_from
from muster_coordinator.pod.last_image import LastImage
from muster_coordinator.pod.replica_manager import ReplicaManager
from muster_coordinator.podapi.image import MetadataImage
from muster_coordinator.requests.groups import TopicsDeleted

logger = structlog.get_logger(__name__)


class Images:
    """`last`: the last image that this data directory has taken, also in an earlier run.

    `changed` is called when the pod begins to answer clients from the image of an earlier run.
    """

    def __init__(
        self,
        manager: ReplicaManager,
        view: ClusterView,
        network: PeerNetwork,
        last_image: LastImage,
        changed: Callable[[], None],
        *,
        recall_after_ms: int,
        delete_offsets_of_removed_topics: bool,
    ) -> None:
        self.last: MetadataImage | None = None
        self._manager = manager
        self._view = view
        self._network = network
        self._last_image = last_image
        self._changed = changed
        self._recall_after_ms = recall_after_ms
        self._delete_offsets = delete_offsets_of_removed_topics
        self._places: dict[int, tuple[str, ...]] = {}  # log ids by partition, as the last image has them
        self._recalling: asyncio.TimerHandle | None = None
        self._giving_up: asyncio.Task[None] | None = None

    def take(self, image: MetadataImage) -> bool:
        """False: the image is older than the one that the pod has, and nothing was done."""
        topics = self._view.topics
        if not self._view.update(image):
            return False
        self.last = image
        self._tell_replicas(image)
        self._last_image.keep(image)
        self._give_up_replaced(image)
        if self._delete_offsets and self._view.lacks_any_of(topics):
            for shard in self._manager.shards.values():
                shard.notify(TopicsDeleted(self._view.has, topic_id))
        return True

    def remember(self, image: MetadataImage) -> None:
        """`image` is the last one of an earlier run. The replicas use it at once; clients are answered from it only
        when no operator has put one for `recall_after_ms`, because an operator knows better. 0: they never are.
        """
        self.last = image
        self._view.expect(image)
        self._tell_replicas(image)
        if self._recall_after_ms:
            loop = asyncio.get_running_loop()
            self._recalling = loop.call_later(self._recall_after_ms / 1000, self._recall, image)

    def _recall(self, image: MetadataImage) -> None:
        if self._view.image is None:
            logger.warning("operator_not_heard", note="clients are answered from what an earlier run knew")
            self._view.recall(image)
            self._changed()

    async def stop(self) -> None:
        """Wait until the last image is written."""
        if self._recalling is not None:
            self._recalling.cancel()
        await self._last_image.close()

    def names(self, partition: int, log_id: str) -> bool:
        """True if the last image has this replica."""
        return log_id in self._places.get(partition, ())

    def replicated(self) -> list[int]:
        """Partitions here that other pods have replicas of, or may be about to get."""
        return [partition for partition in self._manager.replicas if len(self._places.get(partition, ())) > 1]

    def followed(self) -> list[int]:
        """Partitions whose status an operator follows: also those whose open transactions it waits for."""
        return list(self._manager.replicas) if self._view.holds_transactions else self.replicated()

    def set_learners(self, partitions: Iterable[int]) -> None:
        """Have a leader here feed all replicas that the image has, next to those that its log counts."""
        for partition in partitions:
            self._manager.set_learners(partition, self._places.get(partition, ()))

    def _tell_replicas(self, image: MetadataImage) -> None:
        self._network.update(image)
        places: dict[int, tuple[str, ...]] = {}
        for place in image.places:
            places[place.partition] = (*places.get(place.partition, ()), place.log_id)
        self._places = places
        self.set_learners(self._manager.replicas)

    def _give_up_replaced(self, image: MetadataImage) -> None:
        """Resign from partitions that a re-shard has replaced. They were closed before, so no client notices."""
        first = {OFFSETS: image.offsets_base, TRANSACTIONS: image.transaction_base}
        replaced = [number for number in led_partitions(self._manager) if number < first[topic_of(number)]]
        if replaced:
            self._giving_up = asyncio.create_task(resign_from(self._manager, replaced))
