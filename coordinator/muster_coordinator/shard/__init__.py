"""The runtime of offsets partitions: queue, batching, parked answers, timers, load and unload.

``Shard`` runs the group state machine of one partition and holds no group rules; ``ShardManager`` holds a pod's
partitions: elections and resignations, the flush turn, storage failures. May import ``groups``, ``log``,
``replication``, ``records``.
"""
