"""The APIs of the transaction coordinator. They are not in `apis.APIS`: a pod announces them when its cluster has one
(ADR 28)."""

from __future__ import annotations

from muster_coordinator.wire import (
    k22_init_producer_id,
    k24_add_partitions_to_txn,
    k25_add_offsets_to_txn,
    k26_end_txn,
    k61_describe_producers,
    k65_describe_transactions,
    k66_list_transactions,
)
from muster_coordinator.wire.api import Api

MODULES = (
    k22_init_producer_id,
    k24_add_partitions_to_txn,
    k25_add_offsets_to_txn,
    k26_end_txn,
    k61_describe_producers,
    k65_describe_transactions,
    k66_list_transactions,
)

TRANSACTION_APIS: dict[int, Api] = {module.API.key: module.API for module in MODULES}

TRANSACTION_FEATURES = (("transaction.version", 2),)
"""Feature and level that go with them: clients use transaction version 2 (KIP-890)."""
