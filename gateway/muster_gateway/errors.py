"""The errors in what the two sides send.

GatewayError
├── ClientError      the client sent what is no request; its connection is closed
└── UpstreamError    a broker or pod sent what is no answer; the client's connection is closed
"""

from __future__ import annotations


class GatewayError(Exception):
    """The message says what and where."""


class ClientError(GatewayError):
    """`reason`: a word for logs and counters."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class UpstreamError(GatewayError):
    pass
