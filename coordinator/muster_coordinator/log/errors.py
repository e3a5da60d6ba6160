"""The errors of the log, apart from OSError of the disk below it."""

from __future__ import annotations

from pathlib import Path


class DamagedLogError(Exception):
    """Bytes that were durable are missing or wrong, and nothing at hand can restore them: the replica must not serve.

    `file` and `position` say where, `reason` what is wrong and why it was not simply cut off.
    """

    def __init__(self, file: Path, position: int, reason: str) -> None:
        super().__init__(f"{file} at byte {position}: {reason}")
        self.file = file
        self.position = position
        self.reason = reason
