"""What leaves a process: messages to the replicas of other pods, and answers to clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from tests.simulation.injected import Injected
from tests.simulation.request import Request
from tests.simulation.world import Violation

from muster_coordinator.errors import ErrorCode
from muster_coordinator.pod.replica_manager import ReplicaManager
from muster_coordinator.replication.messages import Append, Fetched, Message, decode_message, encode_message

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.pods.process import HostedPod
    from tests.simulation.pods.replica import HostedReplica

__all__ = ["ClientAnswer", "ProcessNetwork"]

UNCOVERED = frozenset((*range(8), *range(12, 16)))
"""Positions in a batch that its checksum does not cover: base offset and leader epoch."""


class ProcessNetwork:
    """Implements `replica.ports.Peers`. Messages go as bytes."""

    def __init__(self, pod: HostedPod) -> None:
        self._pod = pod
        self._run = pod.run

    def send(self, partition: int, message: Message) -> None:
        pod = self._pod
        if pod.run != self._run or not pod.is_running:
            return
        here = pod.replica_of(partition)
        with pod.world.noting():
            here.sends(message)
        target = here.partition.replica_of(message.to)
        if target is None:
            return
        world = pod.world
        if world.faults and world.random.random() < world.options.corrupt:
            message = _damaged(message, world.random)
            world.injected[Injected.CORRUPT] += 1
        sent = decode_message(encode_message(message))

        def receive(manager: ReplicaManager) -> None:
            target.hears(sent)
            manager.receive(partition, sent)

        copies_log = isinstance(message, Append) and message.sync > 0
        world.send(pod.name, target.pod.name, lambda: target.pod.call(receive), copies_log=copies_log)


def _damaged(message: Message, random: Random) -> Message:
    """With a flipped bit in one of its batches, if it has any."""
    if not isinstance(message, Append | Fetched) or not message.batches:
        return message
    batches = list(message.batches)
    index = random.randrange(len(batches))
    data = bytearray(batches[index].data)
    position = random.choice([one for one in range(len(data)) if one not in UNCOVERED])
    data[position] ^= 1 << random.randrange(8)
    batches[index] = msgspec.structs.replace(batches[index], data=bytes(data))
    return msgspec.structs.replace(message, batches=tuple(batches))


class ClientAnswer:
    """Implements `shard.ports.Answer`."""

    def __init__(self, replica: HostedReplica, request: Request) -> None:
        self._replica = replica
        self._pod = replica.pod
        self._run = replica.pod.run
        self._request = request
        self._led = replica.partition.checker.highest_active
        self.generation = -1
        """The generation that the classic group had when it was asked; -1: there was none, or nobody was asked."""

    def answer(self, response: Any) -> None:
        if self._pod.run == self._run and self._pod.is_running:
            with self._pod.world.noting():
                self._replica.leads_since(self._led, self._request.message)
            self._replica.answers(self._request.message, response, self.generation)
            self._request.answer(response)

    def refuse(self, code: ErrorCode) -> None:
        with self._pod.world.noting():
            if code is ErrorCode.UNKNOWN_SERVER_ERROR:
                raise Violation(f"{self._pod.name} has no answer for {self._request.message}")
        if self._pod.run == self._run and self._pod.is_running:
            self._request.answer(None)
