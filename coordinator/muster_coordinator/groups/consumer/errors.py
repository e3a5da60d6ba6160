"""The refusal of an operation on a group of the consumer protocol: nothing that the operation has begun remains."""

from __future__ import annotations

from muster_coordinator.errors import ErrorCode


class GroupError(Exception):
    """`code` and `message` are what the client is told."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
