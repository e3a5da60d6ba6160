"""The replicas that count, and how their set may change.

The log holds the set: each leader-change record names (replicas, previousReplicas), a set record ends a change.
Source: replication.md, "Sets and their change".
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec


class Sets(msgspec.Struct, frozen=True, gc=False):
    """Log ids. `previous_replicas` is empty unless a change of the set is under way."""

    replicas: tuple[str, ...]
    previous_replicas: tuple[str, ...] = ()
    loss_epoch: int = -1
    """The last epoch, by a leader-change record, its own or an earlier one, whose leader was elected in spite of a loss
    of data; -1: there is none, or this is not from such a record."""

    @property
    def each(self) -> tuple[tuple[str, ...], ...]:
        """The one set, or both."""
        return (self.replicas, self.previous_replicas) if self.previous_replicas else (self.replicas,)

    @property
    def members(self) -> tuple[str, ...]:
        """All log ids, each once, in the order in which they are named."""
        return tuple(dict.fromkeys(self.replicas + self.previous_replicas))

    def may_become(self, call: Sets) -> bool:
        """True if a call may name the sets `call` while the chosen log names these.

        The same pair again; from {S}: (T, previous S); from {T, previous S}: the way back (S, previous T).
        """
        if _same(self, call):
            return True
        if not self.previous_replicas:
            return set(call.previous_replicas) == set(self.replicas)
        return set(call.replicas) == set(self.previous_replicas) and set(call.previous_replicas) == set(self.replicas)


def is_majority(replicas: tuple[str, ...], those: Collection[str]) -> bool:
    """More than half of `replicas` are among `those`."""
    return 2 * sum(replica in those for replica in replicas) > len(replicas)


def _same(one: Sets, other: Sets) -> bool:
    return set(one.replicas) == set(other.replicas) and set(one.previous_replicas) == set(other.previous_replicas)
