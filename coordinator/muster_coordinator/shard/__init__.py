"""The runtime of offsets partitions: queue, batching, parked answers, timers, load and unload, and the replicas.

``Shard`` runs the group state machine of one partition that this pod leads, and holds no group rules. ``ReplicaHost``
runs the replication core of one replica, and holds no protocol rules. ``ShardManager`` holds a pod's partitions: calls,
messages of other pods, storage failures. May import ``groups``, ``log``, ``replication``, ``records``.
"""
