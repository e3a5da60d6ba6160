"""A ledger of the offsets that a Kafka cluster was told, and when: it tells which were committed at any moment."""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping

Key = tuple[str, int]
"""A group, and a partition of the one topic."""


def now_ms() -> int:
    """Wall clock, as the records' times are."""
    return int(time.time() * 1000)


class _History:
    """Changes of one key, each sent after the one before was answered; None: no offset any more."""

    __slots__ = ("answered", "offsets", "sent")

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.answered: list[int] = []
        self.offsets: list[int | None] = []

    def allowed(self, at_ms: int) -> list[int | None]:
        """The offsets that may be committed: that of the last answered change, and that of each change under way."""
        last = bisect_right(self.answered, at_ms)
        return [self.offsets[last - 1] if last else None, *self.offsets[last : bisect_right(self.sent, at_ms)]]


class Ledger:
    """`commits`: how many offsets were committed. Aborted ones change nothing, and are not noted."""

    def __init__(self) -> None:
        self.commits = 0
        self.first_ms = now_ms()
        self.last_ms = self.first_ms
        self._histories: defaultdict[Key, _History] = defaultdict(_History)

    def changed(self, group: str, offsets: Mapping[int, int | None], sent_ms: int, answered_ms: int) -> None:
        for partition, offset in offsets.items():
            history = self._histories[group, partition]
            history.sent.append(sent_ms)
            history.answered.append(answered_ms)
            history.offsets.append(offset)
        self.commits += sum(offset is not None for offset in offsets.values())
        self.last_ms = max(self.last_ms, answered_ms)

    def superseded(self, chance: random.Random) -> tuple[str, int]:
        """A group, and a moment when it had an offset that another one has taken the place of since."""
        followed = [(key[0], history) for key, history in self._histories.items() if len(history.sent) > 1]
        group, history = chance.choice(followed)
        return group, chance.choice(history.answered[:-1])

    def partitions_of(self, group: str) -> list[int]:
        """The partitions with an offset, after the last change."""
        return [key[1] for key, history in self._of(group) if history.offsets[-1] is not None]

    def _of(self, group: str) -> Iterable[tuple[Key, _History]]:
        keys = [(group, partition) for partition in range(PARTITIONS)]
        return [(key, self._histories[key]) for key in keys if key in self._histories]

    def wrong(self, groups: Iterable[str], found: Mapping[Key, int], at_ms: int) -> dict[Key, object]:
        """(found, allowed) of all keys of these groups for which the ledger says otherwise."""
        wrong: dict[Key, object] = {}
        for group in groups:
            for key, history in self._of(group):
                allowed = history.allowed(at_ms)
                if found.get(key) not in allowed:
                    wrong[key] = (found.get(key), allowed)
        return wrong


PARTITIONS = 12
"""The number of partitions of the topic."""
