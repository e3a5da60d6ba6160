"""The clocks of a process: its wall clock may jump, its monotonic clock may drift."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.pods.process import HostedPod

__all__ = ["ProcessClock"]


class ProcessClock:
    """Implements `shard.ports.Clock`."""

    def __init__(self, pod: HostedPod) -> None:
        self._pod = pod

    def wall_ms(self) -> int:
        return self._pod.wall_ms()

    def monotonic_ms(self) -> int:
        return self._pod.now_ms()

    def monotonic_s(self) -> float:
        return self._pod.now_ms() / 1000
