"""Requests and answers of Kafka's APIs as plain objects, without a version or a byte layout.

`groups` has those that a group coordinator answers, `cluster` all others. `wire` reads and writes them,
`listener` and `groups` handle them. Imports nothing of ours but `errors`.
"""
