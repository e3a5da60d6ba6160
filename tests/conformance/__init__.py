"""Muster beside a real Kafka broker: the same scripted requests to both, every difference of the answers shown.

`make conformance` runs it. A *script* is a function that sends requests (`session`); it runs against each server
with the same group names. What servers choose freely (member ids, addresses, topic ids) is normalised
(`answers`); every other difference is either listed with its reason in `differences.toml` or fails the run.
"""
