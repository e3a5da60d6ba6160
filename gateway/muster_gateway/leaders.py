"""Remembers which pod led a group's partition, bounded in memory: clients choose the ids of groups."""

from __future__ import annotations

from collections import OrderedDict

REMEMBERED_BYTES = 16 << 20
"""The most that ids of groups and their entries take; of ids of 50 characters it holds some 65,000. A group that is
forgotten is looked up again."""
_ENTRY_BYTES = 200
"""The bytes that an entry takes beside the characters of its id."""


class Leaders:
    """Node ids by group. Those that were not asked for the longest are forgotten first, so that a client that names
    many groups takes no place from groups in use."""

    def __init__(self, limit: int = REMEMBERED_BYTES) -> None:
        self.bytes = 0
        self._limit = limit
        self._pods: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, group_id: str) -> int | None:
        pod = self._pods.get(group_id)
        if pod is not None:
            self._pods.move_to_end(group_id)
        return pod

    def learn(self, group_id: str, pod: int) -> None:
        if group_id not in self._pods:
            self.bytes += _size(group_id)
        self._pods[group_id] = pod
        self._pods.move_to_end(group_id)
        while self.bytes > self._limit:
            oldest, _ = self._pods.popitem(last=False)
            self.bytes -= _size(oldest)

    def forget(self, group_id: str, pod: int) -> None:
        """The pod does not lead the group's partition any more."""
        if self._pods.get(group_id) == pod:
            del self._pods[group_id]
            self.bytes -= _size(group_id)


def _size(group_id: str) -> int:
    return len(group_id) * (1 if group_id.isascii() else 4) + _ENTRY_BYTES
