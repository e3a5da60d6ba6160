"""The network between fake pods."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.unit.podapi.fake_pod import FakePod

__all__ = ["FakeNet"]


@dataclass
class FakeNet:
    """The pods that reach one another."""

    pods: dict[str, FakePod] = field(default_factory=dict)

    def holders(self, index: int, log_ids: Iterable[str]) -> dict[str, FakePod]:
        """Pods by the log id that they have."""
        wanted = set(log_ids)
        return {
            replica.log_id: pod
            for pod in self.pods.values()
            if (replica := pod.volume.replicas.get(index)) is not None and replica.log_id in wanted
        }

    def replicate(self) -> None:
        """Every leader pushes its log to whoever shall have it."""
        for pod in tuple(self.pods.values()):
            pod.replicate()
