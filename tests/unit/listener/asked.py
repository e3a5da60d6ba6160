"""What stands in place of an Exchange in tests of handlers."""

from __future__ import annotations

from typing import Any

from muster_coordinator.errors import ErrorCode
from muster_coordinator.peers.asking import Asking
from muster_coordinator.pod.pod_connections import PodConnections
from muster_coordinator.requests.refusals import refusal


class Asked:
    """`got`: its answers, refusals among them."""

    def __init__(self, request: Any) -> None:
        self.request = request
        self.got: list[Any] = []

    def answer(self, response: Any) -> None:
        self.got.append(response)

    def refuse(self, code: ErrorCode) -> None:
        self.got.append(refusal(self.request, code))


class Nowhere:
    """A network on which no other pod can be reached."""

    async def ask(self, pod: str, *_: Any) -> Asking:
        raise ConnectionError(f"the address of {pod} is not known")


NO_PODS = PodConnections(Nowhere(), answer_timeout_s=5)
