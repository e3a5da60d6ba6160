"""HTTP API of a pod: models (shared with the operator), client, and the server around a `PodControl`.

Imports nothing else of ours, so that the operator can depend on it without depending on the coordinator.
"""
