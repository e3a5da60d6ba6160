"""Two pods with both coordinators, one with the transactions and one with the groups. The test plays the operator."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from tests.support.pod import ELECTION_TIMEOUT_S, PodProcess

from muster_coordinator.calls import CallStatus
from muster_coordinator.partition_numbers import TRANSACTIONS
from muster_coordinator.podapi.image import Broker, DeclaredTopic, MetadataImage, PartitionLeader, Peer
from muster_coordinator.podapi.models import Election, ElectionsRequest, ReplicaRequest, ReplicasRequest

OFFSETS = range(3)
TXN = TRANSACTIONS.numbers[:2]
CONFIG = ("group.initial.rebalance.delay.ms=0",)


class TransactionPods:
    """`coordinator` leads the transaction partitions, `groups` those of offsets."""

    def __init__(self, directory: Path, kind: type[PodProcess] = PodProcess) -> None:
        self.coordinator = kind("pod-0", directory / "a" / "data", CONFIG)
        self.groups = kind("pod-1", directory / "b" / "data", CONFIG)
        self.epoch = 0

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.coordinator)
            await stack.enter_async_context(self.groups)
            await self.elect()
            self._running = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.groups.kafka_port}"

    async def elect(self) -> None:
        """Both lead in a new epoch, and know of each other."""
        self.epoch += 1
        for pod, numbers in ((self.coordinator, TXN), (self.groups, OFFSETS)):
            created = await pod.api.create_replicas(
                ReplicasRequest(1, tuple(ReplicaRequest(number) for number in numbers)), timeout_s=60
            )
            call = ElectionsRequest(
                tuple(
                    Election(each.partition, self.epoch, (each.log_id,), bootstrap=not each.used)
                    for each in created.results
                )
            )
            async with asyncio.timeout(ELECTION_TIMEOUT_S):
                while True:
                    answer = await pod.api.elect(call, timeout_s=ELECTION_TIMEOUT_S)
                    if all(each.status is CallStatus.ACCEPTED for each in answer.results):
                        break
        both = (self.coordinator, self.groups)
        image = MetadataImage(
            token=1,
            version=self.epoch,
            cluster_id="test",
            brokers=tuple(Broker(pod.node_id, "127.0.0.1", pod.kafka_port, pod.name) for pod in both),
            offsets_partitions=len(OFFSETS),
            leaders=(
                *(PartitionLeader(number, 1, self.epoch) for number in OFFSETS),
                *(PartitionLeader(number, 0, self.epoch) for number in TXN),
            ),
            topics=(DeclaredTopic("t", 2),),
            peers=tuple(Peer(pod.name, "127.0.0.1", pod.peer_port) for pod in both),
            transaction_partitions=len(TXN),
        )
        for pod in both:
            await pod.api.update_metadata(image)

    async def restart(self, *killed: PodProcess) -> None:
        """SIGKILL, new processes, and elections in the next epoch. A pod that was killed before is started too."""
        for pod in killed:
            pod.kill()
        for pod in killed:
            await pod.start()
        await self.elect()
