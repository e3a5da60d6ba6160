"""Limits for an address until its clients have said who they are. Time is passed in."""

from __future__ import annotations

from collections import Counter, OrderedDict

_ADDRESSES_MAX = 10_000


class Admission:
    """`max_per_address`: logins of one address at a time. `first_delay_ms`: how long the first failed one waits for its
    answer; each further one twice as long, up to half of `longest_login_ms`. A failure is forgotten after six times
    that. An attempt counts until its connection is closed: so both bound how many passwords an address can try."""

    def __init__(self, max_per_address: int, first_delay_ms: int, longest_login_ms: int) -> None:
        self._max = max_per_address
        self._first_delay_ms = first_delay_ms
        self._longest_login_ms = longest_login_ms
        self._under_way: Counter[str] = Counter()
        self._failures: OrderedDict[str, tuple[int, int]] = OrderedDict()  # (number, time of the last)

    def enter(self, address: str) -> bool:
        """A connection that has not said who it is; False: it is one too many, and is not counted."""
        if self._under_way[address] >= self._max:
            return False
        self._under_way[address] += 1
        return True

    def leave(self, address: str) -> None:
        """It is closed, or has said who it is."""
        self._under_way[address] -= 1
        if not self._under_way[address]:
            del self._under_way[address]

    def failed(self, address: str, now_ms: int) -> int:
        """A login failed; returns how long (ms) its answer waits."""
        number, last_ms = self._failures.pop(address, (0, 0))
        if now_ms - last_ms > 6 * self._longest_login_ms:
            number = 0
        self._failures[address] = (number + 1, now_ms)
        if len(self._failures) > _ADDRESSES_MAX:
            self._failures.popitem(last=False)
        return min(self._first_delay_ms << min(number, 16), self._longest_login_ms // 2)
