"""What was decided of each partition, kept from one plan to the next: most partitions do not change in between."""

from __future__ import annotations

from collections.abc import Mapping

from muster_operator.plan.failover import Decision

__all__ = ["Known"]

Inputs = tuple[object, ...]


class Known:
    """Decisions by the name of the partition, each with all that it was made from.

    It saves work and changes nothing: a decision is found only for inputs that are equal to those that it was made
    from. `facts` are the inputs that all partitions have in common; with other ones everything is decided anew.
    """

    def __init__(self) -> None:
        self._facts: Inputs | None = None
        self._decisions: Mapping[str, tuple[Inputs, Decision]] = {}
        self._next: dict[str, tuple[Inputs, Decision]] = {}

    def __repr__(self) -> str:
        return f"Known({len(self._decisions)})"

    def begin(self, facts: Inputs) -> None:
        """Of the next plan. What the last one did not keep is forgotten."""
        self._decisions = self._next if facts == self._facts else {}
        self._facts, self._next = facts, {}

    def find(self, name: str, inputs: Inputs) -> Decision | None:
        known = self._decisions.get(name)
        # Of tuples, items that are the same object are not compared: they are equal.
        if known is None or known[0] != inputs:
            return None
        self._next[name] = (inputs, known[1])  # of the newer objects: the next ones are more likely the same
        return known[1]

    def keep(self, name: str, inputs: Inputs, decision: Decision) -> None:
        self._next[name] = (inputs, decision)
