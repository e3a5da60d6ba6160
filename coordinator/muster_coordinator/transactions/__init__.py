"""The transaction coordinator of one partition of `__transaction_state`, without I/O (Kafka: TransactionCoordinator).

`coordinator` is the state machine that a shard runs. `states` has the states and what a call does in each of them,
`transitions` how one state of a transactional id follows from another, `producer_ids` where producer ids come from.
`init_producer_id`, `add_partitions`, `end_txn`, `markers`, `description` and `expiry` carry out the calls on `tables`.
"""
