"""A small file of a person or of Kubernetes (Secret, ConfigMap) that is read again when it changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import structlog

logger = structlog.get_logger(__name__)

MAX_BYTES = 16 << 20

_T = TypeVar("_T")


class SecurityFileError(Exception):
    """A file that cannot be taken. The message names the file and the place, and never repeats what stands there."""


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Changes with the file. A mounted Secret is exchanged by moving a link: another inode. None: there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class WatchedFile(Generic[_T]):
    """`value` is what `parse` made of the bytes. `parse` raises ValueError with a message that names the place."""

    def __init__(self, path: Path, parse: Callable[[bytes], _T]) -> None:
        """Reads the file. Raises SecurityFileError."""
        self._path = path
        self._parse = parse
        self._seen = file_stamp(path)
        self.value = self._read()

    def look(self) -> bool:
        """Read the file if it has changed. Returns whether `value` is a new one. A file that cannot be taken is logged
        once, and what was read before stays in force."""
        stamp = file_stamp(self._path)
        if stamp == self._seen:
            return False
        self._seen = stamp
        try:
            self.value = self._read()
        except SecurityFileError as error:
            logger.error("security_file_refused", path=str(self._path), error=str(error))
            return False
        logger.info("security_file_read", path=str(self._path))
        return True

    def _read(self) -> _T:
        try:
            with open(self._path, "rb") as file:
                content = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise SecurityFileError(f"{self._path}: {error.strerror}") from None
        if len(content) > MAX_BYTES:
            raise SecurityFileError(f"{self._path}: more than {MAX_BYTES} bytes")
        try:
            return self._parse(content)
        except ValueError as error:
            raise SecurityFileError(f"{self._path}: {error}") from None
