"""Puts a run with both coordinators together: pods that ask one another, images, producers, readers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tests.simulation.client import Caller
from tests.simulation.cluster import Cluster
from tests.simulation.operating.machine import peer_address
from tests.simulation.operating.wire import Wire
from tests.simulation.store import Recorded
from tests.simulation.transactions.model import Model
from tests.simulation.transactions.pipeline import Pipeline
from tests.simulation.transactions.pods import KAFKA_PORT, TransactionalPod, kafka_address
from tests.simulation.transactions.producer import Idempotent, Places, Producer
from tests.simulation.transactions.reader import Reader
from tests.simulation.world import World

from muster_coordinator.podapi.image import Broker, MetadataImage, PartitionLeader, Peer

__all__ = ["Transactional"]

IMAGE_MS = 150


class Transactional:
    """`model`: what is known of transactions; `clients`: who must be served."""

    clients: Sequence[Producer | Reader | Idempotent | Pipeline]

    def __init__(self, world: World) -> None:
        self._world = world
        self.model = Model(world)
        self._wire = wire = Wire(world)
        self.cluster = Cluster(world, partial(TransactionalPod, wire=wire), transactions=self.model)
        self.pods = [pod for pod in self.cluster.pods.values() if isinstance(pod, TransactionalPod)]
        self._images = 0

    def begin(self, stores: Sequence[Recorded]) -> None:
        self._stores = stores
        places = Places(self.cluster, stores)
        producers = [Producer(f"x{index}", places, self.model) for index in range(self._world.options.producers)]
        readers = [
            Reader(f"{group}-reader", group, Caller(*places.of_group(group)), self.model)
            for producer in producers
            for group in producer.groups
        ]
        count = self._world.options.pipelines
        pipelines = [Pipeline(f"pipe{index}", places, self._wire, kafka_address) for index in range(count)]
        self.clients = [*producers, *readers, Idempotent(places, self.model), *pipelines]
        self._show()

    def _show(self) -> None:
        """Images with what is recorded, late and lost as all else."""
        world, options = self._world, self._world.options
        nodes = {pod.name: node for node, pod in enumerate(self.pods)}
        brokers = tuple(Broker(node, pod, KAFKA_PORT, pod) for pod, node in nodes.items())
        addresses = {pod: peer_address(pod).rpartition(":") for pod in nodes}
        peers = tuple(Peer(pod, host, int(port)) for pod, (host, _, port) in addresses.items())
        leaders = [
            PartitionLeader(partition.index, nodes[store.record.leader], store.record.epoch)
            for partition, store in zip(self.cluster.partitions, self._stores, strict=True)
        ]
        self._images += 1
        image = MetadataImage(
            0,
            self._images,
            "simulated",
            brokers,
            options.partitions,
            tuple(leaders),
            any_topic=True,
            peers=peers,
            transaction_partitions=options.coordinators,
        )
        for pod_ in self.pods:
            world.send("images", pod_.name, partial(pod_.show, image))
        world.at(world.random.randint(1, IMAGE_MS), self._show)

    def pending(self, healed_ms: int) -> str:
        """What is not well yet."""
        for pod in self.pods:
            unanswered = pod.unanswered_since(healed_ms)
            if unanswered:
                return unanswered
        return self.model.open_since(healed_ms)
