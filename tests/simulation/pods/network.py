"""What leaves a process: messages to the replicas of other pods, and answers to clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.shard import Request
from tests.simulation.world import Violation

from muster_coordinator.errors import ErrorCode
from muster_coordinator.replication.messages import Ack, Message, decode_message, encode_message

if TYPE_CHECKING:
    from tests.simulation.pods.process import HostedPod

__all__ = ["ClientAnswer", "ProcessNetwork"]


class ProcessNetwork:
    """Implements `replica.ports.Peers`."""

    def __init__(self, pod: HostedPod) -> None:
        self._pod = pod

    def send(self, partition: int, message: Message) -> None:
        pod = self._pod
        here = next(one for one in pod.replicas if one.partition.index == partition)
        target = here.partition.replica_of(message.to)
        if target is None or not pod.is_running:
            return
        if isinstance(message, Ack):
            here.acked(message)
        to: HostedPod = target.pod  # type: ignore[assignment]
        sent = decode_message(encode_message(message))
        pod.world.send(pod.name, to.name, lambda: to.call(lambda manager: manager.receive(partition, sent)))


class ClientAnswer:
    """Implements `shard.ports.Answer`."""

    def __init__(self, pod: HostedPod, request: Request) -> None:
        self._pod = pod
        self._run = pod.run
        self._request = request

    def answer(self, response: Any) -> None:
        if self._pod.run == self._run and self._pod.is_running:
            self._request.answer(response)

    def refuse(self, code: ErrorCode) -> None:
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            raise Violation(f"{self._pod.name} has no answer for {self._request.message}")
        self.answer(None)
