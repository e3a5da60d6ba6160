"""HTTP API of a pod: models (shared with the operator), client, and the server around a `PodControl`.

It imports only names that the operator shares with the coordinator (`calls`, `states`), so that the operator can depend
on it without depending on the rest of the coordinator.
"""
