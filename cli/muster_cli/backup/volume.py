"""The volume of one pod on Kubernetes: that it was restored is noted in it, and only one run at a time writes to it.

The note is part of the data directory, which gets its name when all of it is on stable storage. So a volume has the
note exactly if it was restored whole, whatever was killed when, and the same restore asked for again does nothing: also
if the pod has written to the volume since.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from muster_cli.errors import CliError
from muster_coordinator.log.disk import OsDisk, replace_file
from muster_coordinator.sites.origin import NAME, Origin, read_origin

_LOCK = ".restore.lock"


def write_note(directory: Path, note: Origin) -> None:
    """Raises OSError."""
    replace_file(OsDisk(), directory / NAME, msgspec.json.encode(note))


def is_done(directory: Path, wanted: Origin) -> bool:
    """True if the volume was restored so. A number of pods or partitions that is 0 may be any. Raises CliError."""
    try:
        note = read_origin(directory)
        if note is None:
            return False
        OsDisk().fsync_dir(directory.parent)  # the run before may have ended before it did so
    except (OSError, msgspec.MsgspecError) as error:
        raise CliError(f"{directory / NAME} cannot be read: {error}") from error
    return note == Origin(
        wanted.backup,
        wanted.pod,
        wanted.pods or note.pods,
        wanted.partitions or note.partitions,
        wanted.transaction_partitions or note.transaction_partitions,
    )


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Hold the lock beside `root`, which ends with this process. Raises CliError: another run has it."""
    file = root.with_name(_LOCK)
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CliError(f"{file}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise CliError(f"another muster restore works on {root}") from None
    finally:
        os.close(descriptor)


def make_durable(root: Path) -> None:
    """Have all files below `root`, and their names, on stable storage. Raises OSError."""
    disk = OsDisk()
    for directory, _, names in os.walk(root):
        for name in names:
            descriptor = disk.open(Path(directory, name))
            try:
                disk.fdatasync(descriptor)
            finally:
                disk.close(descriptor)
        disk.fsync_dir(Path(directory))
