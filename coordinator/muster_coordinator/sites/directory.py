"""Claims in a directory. Sites that share it must see at once what another one writes: a file system of one machine, or
one that keeps no cache of names."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from muster_coordinator.sites.claims import FOLDER, ClaimError


class DirectoryClaims:
    """Implements `ClaimFiles`."""

    def __init__(self, store: Path) -> None:
        self._folder = store / FOLDER

    def names(self) -> list[str]:
        with _told(self._folder):
            try:
                return os.listdir(self._folder)
            except FileNotFoundError:
                return []

    def read(self, name: str) -> bytes:
        with _told(self._folder / name):
            return (self._folder / name).read_bytes()

    def add(self, name: str, content: bytes) -> bool:
        path = self._folder / name
        making = self._folder / f"{name}.{secrets.token_hex(4)}.part"
        with _told(path):
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                with making.open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.link(making, path)  # fails if there is one, as a rename does not
            except FileExistsError:
                return False
            finally:
                making.unlink(missing_ok=True)
            for directory in (self._folder, self._folder.parent):
                sync_directory(directory)
        return True


def sync_directory(directory: Path) -> None:
    """Make the names in it durable. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ClaimError(f"{path}: {error.strerror or error}") from error
