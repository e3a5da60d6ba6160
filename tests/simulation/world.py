"""Virtual time and the network: everything that happens is an entry of one queue, drawn from one seed."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from hashlib import blake2b
from random import Random
from typing import Any

from tests.simulation.consuming.topics import GroupTopics
from tests.simulation.injected import Injected
from tests.simulation.options import Options

__all__ = ["Violation", "World"]

STOP_EVERY_MS = 10
KEPT = 100
"""Old messages between two processes from which one may come again."""


class Violation(Exception):
    """The protocol broke a promise. The text says which one."""


class World:
    """``now_ms`` is the true time; pods see their own. ``trace``: the last things that happened, for a failure.

    ``injected``: what failed, and how often.
    """

    def __init__(self, options: Options, write: Callable[[str], object] = lambda line: None) -> None:
        """`write` gets each line of the trace."""
        self.options = options
        self._write = write
        self.random = Random(f"world {options.seed}")
        self.now_ms = 0
        self.faults = True  # the safety phase
        self.topics = GroupTopics()
        self.trace: list[str] = []
        self.injected: Counter[Injected] = Counter()
        self.blocked: dict[tuple[str, str], int] = {}  # (from, to) -> until when
        self._last_arrival: dict[tuple[str, str], int] = {}
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self.listeners: dict[str, list[Callable[[MutableMapping[str, Any]], None]]] = {}  # of errors, by event
        self._digest = blake2b(digest_size=8)
        self._violation: Violation | None = None
        self._sent: dict[tuple[str, str], list[Callable[[], None]]] = {}  # some of all that was sent
        self._copies: dict[tuple[str, str], list[Callable[[], None]]] = {}  # all parts of full copies
        self.slow: dict[tuple[str, str], tuple[int, int]] = {}  # (from, to) -> (until when, how much)

    @property
    def trace_hash(self) -> str:
        """Of all that was logged, of how much happened, and of every random choice."""
        digest = self._digest.copy()
        digest.update(f"{self.now_ms} {self._number} {self.random.getstate()}".encode())
        return digest.hexdigest()

    def at(self, delay_ms: int, run: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._queue, (self.now_ms + max(delay_ms, 0), self._number, run))

    def run_until(self, end_ms: int, stop: Callable[[], bool] | None = None) -> None:
        """``stop`` is asked now and then."""
        asked_ms = self.now_ms
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, run = heapq.heappop(self._queue)
            run()
            if self._violation is not None:
                raise self._violation
            if stop is not None and self.now_ms - asked_ms >= STOP_EVERY_MS:
                asked_ms = self.now_ms
                if stop():
                    return
        self.now_ms = max(self.now_ms, end_ms)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Around checks that production code calls, which may catch what they raise: the run ends all the same."""
        try:
            yield
        except Violation as violation:
            self._violation = self._violation or violation
            raise

    def heard(self, event: MutableMapping[str, Any]) -> None:
        """An error that some process logs."""
        for listener in self.listeners.get(event["event"], ()):
            listener(event)

    def log(self, text: str) -> None:
        line = f"{self.now_ms:>7} {text}"
        self._digest.update(line.encode())
        self._write(line)
        self.trace.append(line)
        if len(self.trace) > 4_000:
            del self.trace[:2_000]

    def every(self, mean_ms: int, run: Callable[[], None]) -> None:
        """A fault: at random times, ``mean_ms`` apart on average, until the faults stop. 0: never."""
        if not mean_ms:
            return

        def again() -> None:
            if self.faults:
                run()
                self.at(1 + int(self.random.expovariate(1 / mean_ms)), again)

        self.at(1 + int(self.random.expovariate(1 / mean_ms)), again)

    # -- network ------------------------------------------------------------------------------------------------------

    def send(self, source: str, target: str, deliver: Callable[[], None], *, copies_log: bool = False) -> None:
        """Lost, delayed, doubled, overtaken; or not at all, while ``target`` is cut off from ``source``.

        ``copies_log``: it is part of a full copy.
        """
        options, random = self.options, self.random
        if self.blocked.get((source, target), -1) > self.now_ms:
            both = self.blocked.get((target, source), -1) > self.now_ms
            self.injected[Injected.CUT if both else Injected.CUT_ONE_WAY] += 1
            return
        copies = 1
        if self.faults:
            if random.random() < options.loss:
                self.injected[Injected.LOSS] += 1
                return
            if random.random() < options.duplicates:
                self.injected[Injected.DUPLICATE] += 1
                copies = 2
            if random.random() < options.old_duplicates:
                self._send_again(self._sent.get((source, target)))
            if options.old_copies and random.random() < options.old_copies:
                self._send_again(self._copies.get((source, target)))
        self._keep(source, target, deliver)
        if copies_log and options.old_copies:
            self._copies.setdefault((source, target), []).append(deliver)
        for _ in range(copies):
            delay = random.randint(0, options.delay_ms_max) + self._slowness(source, target)
            if self.faults and random.random() < options.long_delay:
                self.injected[Injected.DELAY] += 1
                delay += random.randint(0, options.long_delay_ms)
            self._note_order(source, target, self.now_ms + delay)
            self.at(delay, deliver)

    def _keep(self, source: str, target: str, deliver: Callable[[], None]) -> None:
        """Each message that was ever sent may come again."""
        if self.options.old_duplicates:
            kept = self._sent.setdefault((source, target), [])
            if len(kept) < KEPT:
                kept.append(deliver)
            else:
                kept[self.random.randrange(KEPT)] = deliver

    def _send_again(self, kept: list[Callable[[], None]] | None) -> None:
        if kept:
            self.injected[Injected.OLD_DUPLICATE] += 1
            self.at(self.random.randint(0, self.options.long_delay_ms), self.random.choice(kept))

    def _slowness(self, source: str, target: str) -> int:
        until_ms, delay_ms = self.slow.get((source, target), (-1, 0))
        if self.now_ms >= until_ms:
            return 0
        self.injected[Injected.SLOW_LINK] += 1
        return delay_ms

    def _note_order(self, source: str, target: str, arrival_ms: int) -> None:
        last_ms = self._last_arrival.get((source, target), -1)
        if arrival_ms < last_ms:
            self.injected[Injected.REORDERED] += 1
        else:
            self._last_arrival[source, target] = arrival_ms

    def block(self, source: str, target: str, duration_ms: int) -> None:
        self.blocked[(source, target)] = self.now_ms + duration_ms
