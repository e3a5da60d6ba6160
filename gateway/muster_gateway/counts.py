"""The counts that a gateway keeps for its metrics, raised where things happen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Traffic:
    """Bytes that passed without being read: of requests to brokers, and of answers to clients."""

    to_brokers: int = 0
    to_clients: int = 0


@dataclass(slots=True)
class GroupCounts:
    """Requests about groups at Muster. `waiting`: how many wait for a leader now. `delayed`: how many have had to.
    `given_up`: those of them that no leader took in time, or that must not be sent twice."""

    answered: int = 0
    waiting: int = 0
    delayed: int = 0
    given_up: int = 0
