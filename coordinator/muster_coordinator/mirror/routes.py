"""The groups of a partition that Muster serves: its own from the start, and those that have moved to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice

import msgspec

from muster_coordinator.records.group_route import GroupRoute

_Entry = tuple[str, int, bool]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Entry]).decode


class Routes:
    """Durable state: only replay and `restore` change it. `own`: whether a group is Muster's without a route."""

    def __init__(self, own: Callable[[str], bool]) -> None:
        self._own = own
        self._by_group: dict[str, GroupRoute] = {}

    def serves(self, group_id: str) -> bool:
        route = self._by_group.get(group_id)
        return self._own(group_id) or (route is not None and route.at_muster)

    def is_own(self, group_id: str) -> bool:
        """True if it is Muster's without a route."""
        return self._own(group_id)

    @property
    def by_group(self) -> Mapping[str, GroupRoute]:
        return self._by_group

    def replay(self, route: GroupRoute) -> None:
        self._by_group[route.group_id] = route

    def snapshot(self, size: int) -> Iterator[bytes]:
        entries = ((each.group_id, each.epoch, each.at_muster) for each in self._by_group.values())
        while part := list(islice(entries, size)):
            yield _encode(part)

    def check(self, part: bytes) -> None:
        """Raises msgspec.MsgspecError if `restore` cannot take `part`."""
        _decode(part)

    def restore(self, part: bytes) -> None:
        for entry in _decode(part):
            self.replay(GroupRoute(*entry))
