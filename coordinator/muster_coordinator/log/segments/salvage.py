"""Batches of the journal of a log that must not be opened, kept beside that log, so that the journal can go.

Folder `damaged` in the partition's directory: `<base offset, 20 digits>.log`, the journaled batches as a segment of
their own, which DumpLogSegments reads and which a person may put beside the restored segments; and `reason.txt`. As
long as that is there the log is refused: the journal was evidence of the damage, and may be gone.

Folder `damaged/<n>`: a damaged log that was replaced by what other replicas have; nothing looks at it any more.
"""

from __future__ import annotations

from pathlib import Path

from muster_coordinator.log.disk import Disk, read_whole_file, replace_file
from muster_coordinator.log.journal.history import History
from muster_coordinator.log.segments.copy import log_files, mark_empty_log
from muster_coordinator.log.segments.segment import segment_name

FOLDER = "damaged"
REASON_NAME = "reason.txt"


def refusal(disk: Disk, directory: Path) -> str:
    """The reason why the log in `directory` must not be opened although it may look whole; "" if it may be."""
    if FOLDER not in disk.listdir(directory) or REASON_NAME not in disk.listdir(directory / FOLDER):
        return ""
    return read_whole_file(disk, directory / FOLDER / REASON_NAME).decode(errors="replace").strip()


def salvage(disk: Disk, directory: Path, history: History, reason: str) -> Path:
    """Keep the journaled batches and the reason, durably; returns the folder. What is there already stays.

    Raises OSError: then the journal must stay.
    """
    folder = directory / FOLDER
    disk.mkdir(folder)
    names = disk.listdir(folder)
    data = b"".join(batch.data for batch in history.batches)
    if data and not any(data in read_whole_file(disk, folder / name) for name in names if name.endswith(".log")):
        replace_file(disk, folder / _free_name(names, history.batches[0].base_offset), data)
    if REASON_NAME not in names:
        replace_file(disk, folder / REASON_NAME, f"{reason}\n".encode())
    disk.fsync_dir(folder)
    disk.fsync_dir(directory)
    disk.fsync_dir(directory.parent)
    return folder


def set_aside(disk: Disk, directory: Path, number: int, reason: str) -> None:
    """Move a damaged log into `damaged/<number>`, durably, and put an empty one in its place: a replica whose others
    live is rebuilt from them. Until the end of it the log is refused. Raises OSError; to be repeated then.
    """
    folder = directory / FOLDER
    aside = folder / str(number)
    disk.mkdir(aside)
    if not refusal(disk, directory):
        replace_file(disk, folder / REASON_NAME, f"{reason}\n".encode())
        disk.fsync_dir(folder)
    disk.fsync_dir(directory)
    for name in log_files(disk, directory):
        disk.rename(directory / name, aside / name)
    disk.fsync_dir(aside)
    disk.fsync_dir(directory)
    mark_empty_log(disk, directory, number + 1)
    disk.close(disk.open(directory / segment_name(0), create=True))
    disk.fsync_dir(directory)
    disk.rename(folder / REASON_NAME, aside / REASON_NAME)
    disk.fsync_dir(aside)
    disk.fsync_dir(folder)


def _free_name(names: list[str], base_offset: int) -> str:
    name = segment_name(base_offset)
    number = 1
    while name in names:
        number += 1
        name = segment_name(base_offset).replace(".", f".{number}.")
    return name
