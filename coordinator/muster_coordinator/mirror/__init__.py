"""The mirror of an offsets partition of a Kafka cluster: what it takes over, and what it answers. No I/O.

Source: docs/adr/0032; `pod.mirroring` asks the brokers.
"""
