"""The scripts, one module for each area; importing this package registers all of them."""

from tests.conformance.scripts import (
    administration,
    defects,
    discovery,
    expiry,
    group_life,
    initial_rebalance,
    joining,
    leaving,
    limits,
    offsets,
    random_walks,
    static_members,
    syncing,
    timers,
    topics,
    transactions,
)

__all__ = [
    "administration",
    "defects",
    "discovery",
    "expiry",
    "group_life",
    "initial_rebalance",
    "joining",
    "leaving",
    "limits",
    "offsets",
    "random_walks",
    "static_members",
    "syncing",
    "timers",
    "topics",
    "transactions",
]
