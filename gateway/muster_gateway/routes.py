"""Which coordinator serves a group: Muster for the prefixes of the settings, Kafka for all others."""

from __future__ import annotations

from collections.abc import Iterable


class Routes:
    """`prefixes`: of the ids of groups that Muster serves; "*" alone: all of them."""

    def __init__(self, prefixes: Iterable[str]) -> None:
        self._prefixes = tuple("" if prefix == "*" else prefix for prefix in prefixes)

    def __bool__(self) -> bool:
        """Whether Muster serves any."""
        return bool(self._prefixes)

    def served_here(self, group_id: str) -> bool:
        return group_id.startswith(self._prefixes)
