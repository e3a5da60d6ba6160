"""The places for backups: the port `Store`, and the one that is a directory, such as a mounted volume."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from muster_cli.errors import CliError
from muster_coordinator.sites.directory import sync_directory

READ_BYTES = 1 << 20
_PART = ".part"


class StoreError(CliError):
    """The store did not do what was asked of it; the message says which file, and why."""


class MissingError(StoreError):
    """The store has no file of this name."""


class Stored(Protocol):
    """A file as a store shows it. `modified_ms`: since 1970, by the clock of the store."""

    @property
    def size(self) -> int: ...

    @property
    def modified_ms(self) -> int: ...


class Source(Protocol):
    """Files by name, to be read. All methods block, and raise StoreError."""

    @property
    def address(self) -> str:
        """Returns the address as people write it."""

    def read(self, name: str) -> Iterator[bytes]:
        """The content in pieces. Raises MissingError."""


class Store(Source, Protocol):
    """A file is there as a whole or not at all."""

    def files(self) -> dict[str, Stored]:
        """All files, by name."""

    def write(self, name: str, content: Path | bytes) -> None:
        """Put a file there, durably; replaces one of the same name."""

    def delete(self, name: str) -> None:
        """Does nothing if there is none."""

    def drop_unfinished(self, before_ms: int) -> None:
        """Remove what writes that were interrupted before that time have left."""


class FileStat:
    """Implements `Stored`."""

    def __init__(self, size: int, modified_ms: int) -> None:
        self.size = size
        self.modified_ms = modified_ms


class DirectoryStore:
    """Implements `Store`. A file gets its name when all of it is on the disk."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def address(self) -> str:
        return str(self._root)

    def files(self) -> dict[str, Stored]:
        with _told(self._root, "list"):
            return {
                str(path.relative_to(self._root)): FileStat(stat.st_size, stat.st_mtime_ns // 1_000_000)
                for path, stat in self._found()
                if not path.name.endswith(_PART)
            }

    def _found(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self._root.rglob("*"):
            stat = path.stat()
            if path.is_file():
                yield path, stat

    def read(self, name: str) -> Iterator[bytes]:
        with _told(self._root / name, "read"), (self._root / name).open("rb") as file:
            while data := file.read(READ_BYTES):
                yield data

    def write(self, name: str, content: Path | bytes) -> None:
        path = self._root / name
        making = path.with_name(f"{path.name}.{secrets.token_hex(4)}{_PART}")
        with _told(path, "write"):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with making.open("xb") as file:
                    for data in _pieces(content):
                        file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                making.replace(path)
            finally:
                making.unlink(missing_ok=True)
            for directory in (path.parent, self._root):
                sync_directory(directory)

    def delete(self, name: str) -> None:
        with _told(self._root / name, "delete"):
            (self._root / name).unlink(missing_ok=True)

    def drop_unfinished(self, before_ms: int) -> None:
        with _told(self._root, "list"):
            for path, stat in list(self._found()):
                if path.name.endswith(_PART) and stat.st_mtime_ns // 1_000_000 < before_ms:
                    path.unlink(missing_ok=True)


def _pieces(content: Path | bytes) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    with content.open("rb") as file:
        while data := file.read(READ_BYTES):
            yield data


@contextmanager
def _told(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise MissingError(f"cannot {what} {path}: there is none") from error
    except OSError as error:
        raise StoreError(f"cannot {what} {path}: {error.strerror or error}") from error
