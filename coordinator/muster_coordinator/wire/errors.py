"""The errors in bytes that a peer sent. Nothing else escapes from this package on any input.

WireError                    the bytes are not a request; close the connection
├── FrameTooLargeError       a frame's length prefix is above the limit, or negative
└── UnsupportedRequestError  an API key or version that is not served; `answer` says what to send, if anything
"""

from __future__ import annotations


class WireError(Exception):
    """Malformed bytes; the message says what and at which byte.

    `answer` is a complete response frame for the peer (the connection then stays open), or None: close it.
    """

    answer: bytes | None = None


class FrameTooLargeError(WireError):
    """A frame that will not be read."""

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(f"a frame of {length} bytes: allowed are 0 to {limit}")


class UnsupportedRequestError(WireError):
    """Kafka closes the connection on these, except for ApiVersions of an unknown version (KIP-511)."""

    def __init__(self, api_key: int, api_version: int, answer: bytes | None = None) -> None:
        super().__init__(f"API key {api_key} version {api_version} is not served")
        self.api_key = api_key
        self.api_version = api_version
        self.answer = answer
