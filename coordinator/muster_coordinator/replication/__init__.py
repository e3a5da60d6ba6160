"""Replication of one offsets partition: who leads, what is committed, how a replica catches up.

The protocol core (``core.ReplicaCore`` and the modules behind it) is sans-IO: events in, effects out, no clock, no
randomness, no files. ``promise`` and ``log_id`` are the only modules here that touch a disk or draw random bytes.
Page: docs/replication.md.
"""
