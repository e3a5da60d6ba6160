"""The errors of decoding a record.

RecordDecodeError                    the bytes are no record of their type: the load fails
└── UnsupportedValueVersionError     a known record type with an unknown value version: the load fails (KIP-915)
"""

from __future__ import annotations


class RecordDecodeError(Exception):
    """Key or value do not parse; the text says what and where."""


class UnsupportedValueVersionError(RecordDecodeError):
    """`name` is the value's schema, `version` what the log holds."""

    def __init__(self, name: str, version: int) -> None:
        super().__init__(f"{name} version {version} is not supported")
        self.name = name
        self.version = version
