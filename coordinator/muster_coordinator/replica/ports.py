"""What a replica needs of the pod around it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

__all__ = ["Workers"]


class Workers(Protocol):
    """The pod's threads and background tasks."""

    async def blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run `function` in a thread; returns or raises what it does."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that is cancelled when the pod stops."""
        ...
