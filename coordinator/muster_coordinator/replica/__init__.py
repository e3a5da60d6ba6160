"""One replica of one offsets partition: the protocol core with what carries out its effects.

`host` feeds events to `replication.core` and carries out its effects on log, journal, peers and shard; `role` is
what the replica is at the moment, leader or warm standby; `stored` is its files: log, promise, checkpoints.
May import `shard`, `replication`, `groups`, `log` and `records`.
"""
