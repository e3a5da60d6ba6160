"""The API server as processes reach it: requests and watch streams that are late, fail, hang, end, or show the past."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any

import msgspec
from tests.simulation.injected import Injected
from tests.simulation.operating.objects import Answer, ApiObjects, Change, Json, labels_match
from tests.simulation.operating.process import Process
from tests.simulation.world import World

from muster_operator.api.durations import format_time

__all__ = ["ApiServer", "Stream", "Unanswered"]

WALL_START_S = 1_700_000_000


class Unanswered(Exception):
    """The connection was refused or broke. What the request did is unknown."""


class Fate(Enum):
    """Of one request."""

    WELL = "well"
    REFUSED = "refused"  # 429
    FAILED = "failed"  # 500
    LOST = "lost"  # no answer, nothing was done
    LATE = "late"  # done, long after the caller has given up
    UNKNOWN = "unknown"  # done, no answer


@dataclass
class Stream:
    """One watch. `take` gets (event, object) in order; `ended` whether the watch must begin anew (410 Gone)."""

    process: Process
    plural: str
    namespace: str
    selector: str
    take: Callable[[str, Json], None]
    ended: Callable[[bool], None]
    is_open: bool = True
    last_ms: int = field(default=0)

    def wants(self, change: Change) -> bool:
        plural, namespace, _ = change.name
        return plural == self.plural and self.namespace in ("", namespace) and labels_match(change.raw, self.selector)


class ApiServer:
    """`down_until`: nobody reaches it. `on_write`: told of each change, at once. Its randomness is its own: what
    a person or the rest of Kubernetes writes changes no other draw.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.down_until = -1
        self.on_write: list[Callable[[Change], None]] = []
        self.objects = ApiObjects(self._now, self._changed)
        self._random = Random(f"api server {world.options.seed}")
        self._streams: list[Stream] = []
        self._lag_ms: dict[str, int] = {}
        self._writer = ""

    def _now(self) -> str:
        return format_time(WALL_START_S + self.world.now_ms / 1000)

    def _delay_ms(self) -> int:
        options, random = self.world.options, self._random
        delay = random.randint(0, options.delay_ms_max)
        if self.world.faults and random.random() < options.long_delay:
            delay += random.randint(0, options.long_delay_ms)
        return delay

    # -- requests -----------------------------------------------------------------------------------------------------

    def request(
        self,
        process: Process,
        method: str,
        path: str,
        query: dict[str, str],
        body: bytes | None,
        answered: Callable[[tuple[int, bytes] | Unanswered], None],
    ) -> None:
        """`answered` gets (status, body) on the process's loop, or never."""
        world = self.world

        def answer(result: tuple[int, bytes] | Unanswered) -> None:
            world.at(self._delay_ms(), lambda: process.deliver(lambda: answered(result)))

        def arrives() -> None:
            if world.now_ms < self.down_until:
                world.injected[Injected.OUTAGE] += 1
                if self._random.random() < 0.5:
                    answer(Unanswered("connection refused"))
                return
            fate = self._fate()
            if fate is Fate.REFUSED:
                answer((429, _problem("TooManyRequests")))
            elif fate is Fate.FAILED:
                answer((500, _problem("InternalError")))
            elif fate is Fate.LATE:
                world.at(self._random.randint(500, 6_000), lambda: self._carry_out(process, method, path, query, body))
            elif fate is not Fate.LOST:
                result = self._carry_out(process, method, path, query, body)
                if fate is Fate.WELL:
                    answer((result.code, msgspec.json.encode(result.body)))
                elif self._random.random() < 0.5:
                    answer(Unanswered("connection reset"))

        world.at(self._delay_ms(), arrives)

    def _fate(self) -> Fate:
        if not self.world.faults or self._random.random() >= self.world.options.api_errors:
            return Fate.WELL
        fate = self._random.choice([each for each in Fate if each is not Fate.WELL])
        self.world.injected[Injected.WRITE_UNKNOWN if fate in _UNKNOWN else Injected.THROTTLED] += 1
        return fate

    def _carry_out(self, process: Process, method: str, path: str, query: dict[str, str], body: bytes | None) -> Answer:
        before = self.objects.revision
        given: Any = msgspec.json.decode(body) if body is not None else None
        result = self.objects.handle(method, path, query, given)
        if result.code == 409:
            self.world.injected[Injected.CONFLICT] += 1
        if self.objects.revision != before and "/leases" not in path:
            if self._writer not in ("", process.name):
                self.world.injected[Injected.TWO_OPERATORS] += 1
            self._writer = process.name
        return result

    # -- watches ------------------------------------------------------------------------------------------------------

    def watch(self, stream: Stream, since: int) -> None:
        """`stream` gets all changes after the revision `since`."""
        world = self.world

        def arrives() -> None:
            backlog = self.objects.since(since)
            if world.now_ms < self.down_until or backlog is None:
                gone = backlog is None
                world.at(self._delay_ms(), lambda: stream.process.deliver(lambda: stream.ended(gone)))
                return
            self._streams = [each for each in self._streams if each.is_open and each.process.is_alive]
            self._streams.append(stream)
            for change in backlog:
                self._send(stream, change)

        world.at(self._delay_ms(), arrives)

    def _changed(self, change: Change) -> None:
        for told in self.on_write:
            told(change)
        for stream in self._streams:
            self._send(stream, change)

    def _send(self, stream: Stream, change: Change) -> None:
        """In order, and late while the operator's watches lag."""
        if not stream.wants(change):
            return
        lag_ms = self._lag_ms.get(stream.process.name, 0)
        self.world.injected[Injected.STALE_READ] += lag_ms > 0
        arrival_ms = max(self.world.now_ms + self._delay_ms() + lag_ms, stream.last_ms)
        stream.last_ms = arrival_ms
        self.world.at(
            arrival_ms - self.world.now_ms,
            lambda: stream.process.deliver(lambda: stream.is_open and stream.take(change.event, change.raw)),
        )

    # -- faults -------------------------------------------------------------------------------------------------------

    def lag(self, name: str) -> None:
        """The watches of this operator show the past for a while; or they end, with what was under way lost."""
        if self._random.random() < 0.4:
            self.end_watches(name)
            return
        self._lag_ms[name] = self._random.randint(100, 2_000)
        self.world.at(self._random.randint(200, 3_000), lambda: self._lag_ms.pop(name, None))

    def end_watches(self, name: str = "") -> None:
        """Those of one process, or all. The next watch may find that its revision is gone."""
        if self._random.random() < 0.5:
            self.world.injected[Injected.WATCH_GONE] += 1
            self.objects.compact()
        for stream in self._streams:
            if stream.process.name == name or not name:
                self._end(stream)
        self._streams = [each for each in self._streams if each.is_open]

    def _end(self, stream: Stream) -> None:
        stream.is_open = False
        self.world.at(self._delay_ms(), lambda: stream.process.deliver(lambda: stream.ended(False)))


_UNKNOWN = (Fate.LOST, Fate.LATE, Fate.UNKNOWN)


def _problem(reason: str) -> bytes:
    return msgspec.json.encode({"kind": "Status", "reason": reason, "message": f"{reason}, by the simulation"})
