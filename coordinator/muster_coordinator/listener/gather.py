"""One request whose parts several shards answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests.refusals import refusal
from muster_coordinator.shard.ports import Answer

WINDOW = 16
"""Parts of one request that are asked for at a time: shards carry out what is asked of them in one turn, and a part may
be a group of a thousand members."""


class Gather:
    """Collects the answers of several shards to one request and passes them on together, in the order of the parts.

    `combine` gets the list of responses; a part that is refused contributes its refusal.
    """

    def __init__(self, count: int, combine: Callable[[Sequence[Any]], None]) -> None:
        self._responses: list[Any] = [None] * count
        self._missing = count
        self._combine = combine
        self._ask: Callable[[int], None] | None = None
        self._window = 0
        self._asked = 0
        self._is_asking = False
        if count == 0:
            combine(())

    def spread(self, ask: Callable[[int], None], window: int = WINDOW) -> None:
        """Ask for all parts, so many at a time. `ask` gets the index of a part."""
        if len(self._responses) == 1:
            ask(0)
            return
        self._ask, self._window = ask, window
        self._ask_more()

    def _ask_more(self) -> None:
        """Up to a window: who refuses at once would otherwise be asked for all parts in one turn."""
        ask, count = self._ask, len(self._responses)
        assert ask is not None
        self._is_asking = True
        for _ in range(self._window):
            if self._asked == count or self._asked - (count - self._missing) >= self._window:
                break
            self._asked += 1
            ask(self._asked - 1)
        self._is_asking = False
        if self._asked < count and self._asked == count - self._missing:
            asyncio.get_running_loop().call_soon(self._ask_more)

    def part(self, index: int, request: Any) -> Answer:
        return _Part(self, index, request)

    def complete(self, index: int, response: Any) -> None:
        self._responses[index] = response
        self._missing -= 1
        if self._missing == 0:
            self._ask = None  # it names this object: a cycle, which nobody may ever find
            self._combine(self._responses)
        elif self._asked < len(self._responses) and self._ask is not None and not self._is_asking:
            self._ask_more()


class _Part:
    __slots__ = ("_gather", "_index", "_request")

    def __init__(self, gather: Gather, index: int, request: Any) -> None:
        self._gather = gather
        self._index = index
        self._request = request

    def answer(self, response: Any) -> None:
        self._gather.complete(self._index, response)

    def refuse(self, code: ErrorCode) -> None:
        self._gather.complete(self._index, refusal(self._request, code))


class _Distinct:
    """No closures: compiled, those of one function name each other, and such a cycle may stay for ever."""

    __slots__ = ("_ask", "_combine", "_requests", "once")

    def __init__(
        self, requests: Sequence[Any], ask: Callable[[Any, Answer], None], combine: Callable[[tuple[Any, ...]], None]
    ) -> None:
        self.once = requests if len(requests) == 1 else tuple(dict.fromkeys(requests))
        self._requests = requests
        self._ask = ask
        self._combine = combine

    def ask(self, gather: Gather, index: int) -> None:
        request = self.once[index]
        self._ask(request, gather.part(index, request))

    def combine(self, parts: Sequence[Any]) -> None:
        if len(self.once) == len(self._requests):
            self._combine(tuple(parts))
            return
        found = dict(zip(self.once, parts, strict=True))
        self._combine(tuple([found[each] for each in self._requests]))


def ask_distinct(
    requests: Sequence[Any], ask: Callable[[Any, Answer], None], combine: Callable[[tuple[Any, ...]], None]
) -> None:
    """Ask for each of the requests, once however often it is there. `combine` gets a response to each, in order."""
    distinct = _Distinct(requests, ask, combine)
    gather = Gather(len(distinct.once), distinct.combine)
    gather.spread(partial(distinct.ask, gather))
