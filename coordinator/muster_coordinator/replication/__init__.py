"""Replication of one offsets partition: who leads, what is committed, how a replica catches up.

The protocol core (`core.ReplicaCore` and the modules behind it) is sans-IO: events in, effects out, no clock, no
randomness, no files.
Page: docs/replication.md.
"""
