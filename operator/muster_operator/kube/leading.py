"""The namespaces in which this operator acts: in each that has objects, one operator holds the Lease `muster-operator`.

The Lease is where the clusters are, not where the operator is. So operators that watch the same namespace notice each
other wherever they were installed, and one of them rests; transitions of that one Lease order all that ever acted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from muster_operator.kube.elector import Elector
from muster_operator.kube.objects_seen import ObjectsSeen


class Leading:
    """One elector for each namespace that has objects. `lead` runs for a namespace while its Lease is held."""

    def __init__(
        self,
        seen: ObjectsSeen,
        new_elector: Callable[[str], Elector],
        lead: Callable[[str], Awaitable[None]],
    ) -> None:
        self._seen = seen
        self._new_elector = new_elector
        self._lead = lead
        self._electors: dict[str, Elector] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    def token(self, namespace: str) -> int:
        """Transitions of the Lease of the namespace that we hold, or held last; 0: we never did."""
        elector = self._electors.get(namespace)
        return 0 if elector is None else elector.token

    async def run(self) -> None:
        """Runs until it is cancelled, or `lead` raises or ends in one of the namespaces. Releases every Lease at the
        end.
        """
        unwatch = self._seen.watch(lambda key: self._changed.set())
        try:
            while not await self._is_over():
                await self._follow()
        finally:
            unwatch()
            await self._stop([*self._tasks])

    async def _is_over(self) -> bool:
        """Wait for a change of the objects, and clear it; True if an elector ended instead."""
        change = asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait({change, *self._tasks.values()}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            change.cancel()
        self._changed.clear()
        ended = [task for task in self._tasks.values() if task.done()]
        for task in ended:
            task.result()
        return bool(ended)

    async def _follow(self) -> None:
        """Begin in namespaces that have objects now, and end in those that have none any more."""
        wanted = self._seen.namespaces()
        await self._stop([each for each in self._tasks if each not in wanted])
        for namespace in sorted(wanted - self._tasks.keys()):
            elector = self._electors[namespace] = self._new_elector(namespace)
            self._tasks[namespace] = asyncio.create_task(elector.run(partial(self._lead, namespace)))

    async def _stop(self, namespaces: list[str]) -> None:
        tasks = [self._tasks.pop(each) for each in namespaces]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
