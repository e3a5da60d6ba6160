"""Statuses of which the API server keeps less than was written.

Its definitions are older than the operator, and it drops the fields that they lack. What is there then never equals
what is to be there, and would be written again without end. `CrdOutdated` tells people.
"""

from __future__ import annotations

from typing import Any

from muster_operator.api.models import Resource


class Dropped:
    """Remembers what was written and what became of it, by the uid of the object."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Any, Any]] = {}

    def note(self, sent: Any, answer: Resource) -> None:
        """The API server has answered with this object to a write of this status."""
        uid = answer.metadata.uid
        if sent == answer.status:
            self._known.pop(uid, None)
        else:
            self._known[uid] = (sent, answer.status)

    def is_in_vain(self, seen: Resource, status: Any) -> bool:
        """True if the same write was answered with this very object, so that a repeat changes nothing."""
        return self._known.get(seen.metadata.uid) == (status, seen.status)
