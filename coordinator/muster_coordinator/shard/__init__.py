"""The runtime of one partition of any coordinator: queue, batching, parked answers, timers (Kafka: CoordinatorRuntime).

`Shard` runs a `state_machine.StateMachine` and appends its records to a `ports.PartitionWriter`. It knows no groups, no
log and no replication.
"""
