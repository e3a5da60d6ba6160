"""Shared by the tests: real pod processes, and a raw Kafka client that is independent of our own codecs (it uses
kio's)."""
