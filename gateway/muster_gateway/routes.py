"""Finds the coordinator that serves a group: Muster for the prefixes of the settings and for groups that have moved
there, Kafka for all others."""

from __future__ import annotations

from collections.abc import Callable


def prefixes_of(text: str) -> tuple[str, ...]:
    """The prefixes in a text with commas between them; `*` is the prefix of all ids."""
    return tuple("" if prefix == "*" else prefix for prefix in filter(None, (each.strip() for each in text.split(","))))


class Routes:
    """`prefixes`: of the ids of groups that Muster serves for good. `has_moved`: whether another one is there now;
    None: none can be."""

    def __init__(self, prefixes: tuple[str, ...], has_moved: Callable[[str], bool] | None = None) -> None:
        self._prefixes = prefixes
        self._has_moved = has_moved

    def __bool__(self) -> bool:
        """True if Muster serves any group, or may."""
        return bool(self._prefixes) or self._has_moved is not None

    def is_served(self, group_id: str) -> bool:
        """True if Muster serves the group for good."""
        return group_id.startswith(self._prefixes)

    def is_at_muster(self, group_id: str) -> bool:
        return group_id.startswith(self._prefixes) or (self._has_moved is not None and self._has_moved(group_id))
