"""Errors of reading segments.

PipelineError
├── SegmentReadError      the file is away, cut shorter while it is read, or cannot be read
└── SegmentDamagedError   FAILFAST met something that PERMISSIVE lists as a row
"""

from __future__ import annotations


class PipelineError(Exception):
    """Base of the errors that the pipeline raises on purpose. The text is for people."""


class SegmentReadError(PipelineError):
    def __init__(self, file: str, position: int, reason: str) -> None:
        super().__init__(f"{file}, byte {position}: {reason}")
        self.file = file
        self.position = position
        self.reason = reason


class SegmentDamagedError(PipelineError):
    """Bytes that are no valid batch or record; `problem` is a code of `schema.Problem`."""

    def __init__(self, file: str, position: int, problem: str, detail: str) -> None:
        super().__init__(f"{file}, byte {position}: {problem}: {detail}")
        self.file = file
        self.position = position
        self.problem = problem
        self.detail = detail
