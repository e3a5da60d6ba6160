"""The runtime of one partition of a coordinator: queue, batching, parked answers, timers.

``Shard`` runs the group state machine of one partition that this pod leads, and holds no group rules.
"""
