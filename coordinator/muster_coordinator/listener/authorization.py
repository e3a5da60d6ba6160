"""The port through which requests are authorised, with Kafka's operations and resources (AclOperation, ResourceType).

``handlers/authorized.py`` asks it in Kafka's order. Without an authorizer everything is allowed, as in Kafka.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

ANONYMOUS = "User:ANONYMOUS"
"""Principal of a connection that did not authenticate."""

CLUSTER_NAME = "kafka-cluster"


class Operation(StrEnum):
    READ = "READ"
    WRITE = "WRITE"
    DELETE = "DELETE"
    DESCRIBE = "DESCRIBE"
    CLUSTER_ACTION = "CLUSTER_ACTION"


class Resource(StrEnum):
    GROUP = "GROUP"
    TOPIC = "TOPIC"
    CLUSTER = "CLUSTER"
    TRANSACTIONAL_ID = "TRANSACTIONAL_ID"


class Authorizer(Protocol):
    def allows(self, principal: str, operation: Operation, resource: Resource, name: str) -> bool:
        """Whether ``principal`` may do that. Called on the event loop for every request: it must not block."""
        ...
