"""What the fake API server and the fake network know of a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["Process"]


class Process(Protocol):
    """One run of a process: a restart is another one. `name`: of its machine."""

    @property
    def name(self) -> str: ...

    @property
    def is_alive(self) -> bool: ...

    def deliver(self, do: Callable[[], None]) -> None:
        """Run `do` on the event loop of the process: now, or when it thaws; never if it ends before."""
        ...
