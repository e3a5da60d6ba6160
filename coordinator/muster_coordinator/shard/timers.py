"""Keyed timers of one shard, without a clock or an event loop of their own.

One timer per key. Setting a key again replaces its deadline, and a replaced or cancelled timer never fires, not even
when it is already due and queued: `pop_due` returns (key, serial), and `claim` says whether that timer is still set.
Moving a deadline to a later time, which every heartbeat and commit of a member does, costs two dictionary writes and
does not touch the heap.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable


class Timers:
    def __init__(self) -> None:
        self._timers: dict[Hashable, tuple[int, int]] = {}  # key -> (deadline_ms, serial)
        self._heap: list[tuple[int, int, Hashable]] = []  # (deadline_ms or earlier, serial of the push, key)
        self._pushed: dict[Hashable, tuple[int, int]] = {}  # key -> (deadline_ms, serial) of its one live heap entry
        self._serial = 0

    def __len__(self) -> int:
        return len(self._timers)

    def set(self, key: Hashable, deadline_ms: int) -> None:
        """Start or replace the timer of `key`. `deadline_ms` is on the shard's monotonic clock."""
        self._serial += 1
        self._timers[key] = (deadline_ms, self._serial)
        pushed = self._pushed.get(key)
        if pushed is None or pushed[0] > deadline_ms:
            self._push(key, deadline_ms)

    def cancel(self, key: Hashable) -> None:
        self._timers.pop(key, None)

    def clear(self) -> None:
        self._timers.clear()
        self._heap.clear()
        self._pushed.clear()

    def next_deadline_ms(self) -> int | None:
        """Returns a time before which no timer is due; None if none is set. It may be too early, never too late."""
        self._drop_dead_entries()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> list[tuple[Hashable, int]]:
        """Returns (key, serial) of every timer that is due. Each stays set until it is claimed, cancelled or
        replaced."""
        due: list[tuple[Hashable, int]] = []
        while self._heap and self._heap[0][0] <= now_ms:
            deadline_ms, serial, key = heapq.heappop(self._heap)
            if self._pushed.get(key) != (deadline_ms, serial):
                continue
            del self._pushed[key]
            timer = self._timers.get(key)
            if timer is None:
                continue
            if timer[0] > now_ms:
                self._push(key, timer[0])
            else:
                due.append((key, timer[1]))
        return due

    def claim(self, key: Hashable, serial: int) -> bool:
        """Returns True, once, for a due timer that was neither cancelled nor replaced since `pop_due`, and removes
        it."""
        timer = self._timers.get(key)
        if timer is None or timer[1] != serial:
            return False
        del self._timers[key]
        return True

    def _push(self, key: Hashable, deadline_ms: int) -> None:
        self._serial += 1
        self._pushed[key] = (deadline_ms, self._serial)
        heapq.heappush(self._heap, (deadline_ms, self._serial, key))

    def _drop_dead_entries(self) -> None:
        heap = self._heap
        while heap:
            deadline_ms, serial, key = heap[0]
            if key in self._timers and self._pushed.get(key) == (deadline_ms, serial):
                return
            if self._pushed.get(key) == (deadline_ms, serial):
                del self._pushed[key]
            heapq.heappop(heap)
