"""A disk in memory that can lose, tear and refuse what a real one can.

The model: a write is in the page cache at once and on the medium only after a sync of its file; a durable write takes
only itself there, and no older write can undo it, because what the kernel writes are pages as they are by then. Names
(made, renamed, removed) reach the medium in order, at the latest with `fsync_dir` of their directory. `kill` ends
the process: the page cache stays. `lose_power` keeps of every unsynced write all, nothing, or some sectors, and of
the unsynced names some first ones.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

SECTOR_BYTES = 512

Fault = Callable[[str, Path, int], int | None]
"""(operation, path, bytes) -> None: goes on; n >= 0: only n bytes are taken; raises OSError."""

Astray = Callable[[Path, int, bytes], tuple[Path, int] | None]
"""(path, position, data) of a write -> (path, position) where the drive puts it instead; None: where it belongs."""


@dataclass
class Inode:
    cached: bytearray = field(default_factory=bytearray)
    medium: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes] | int] = field(default_factory=list)  # (position, data), or a new length

    def sync(self) -> None:
        """What was written since the last one reaches the medium, as the cache has it."""
        for write in self.unsynced:
            if isinstance(write, int):
                del self.medium[min(write, len(self.cached)) :]
            else:
                position, data = write
                put(self.medium, position, bytes(self.cached[position : position + len(data)]))
        self.unsynced.clear()

    def write_through(self, position: int, data: bytes) -> None:
        """Only this reaches the medium. Of older writes to the same bytes nothing is left that could follow."""
        put(self.medium, position, data)
        left: list[tuple[int, bytes] | int] = []
        for older in self.unsynced:
            left += [older] if isinstance(older, int) else _beside(*older, position, position + len(data))
        self.unsynced = left

    def settle(self) -> None:
        """Cache and medium are the same."""
        self.medium = bytearray(self.cached)
        self.unsynced.clear()


def put(content: bytearray, position: int, data: bytes) -> None:
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _beside(position: int, data: bytes, start: int, end: int) -> list[tuple[int, bytes]]:
    """What of a write lies in front of `start`, and what behind `end`."""
    before, behind = data[: max(start - position, 0)], data[max(end - position, 0) :]
    return [part for part in ((position, before), (position + len(data) - len(behind), behind)) if part[1]]


class FakeDisk:
    """Implements `muster_coordinator.log.disk.Disk`."""

    def __init__(self) -> None:
        self.names: dict[Path, Inode] = {}
        self.fault: Fault | None = None
        self.astray: Astray | None = None
        self.room = 1 << 40
        self._medium_names: dict[Path, Inode] = {}
        self._name_changes: list[tuple[Path, Inode | None]] = []
        self._open: dict[int, tuple[Path, Inode]] = {}
        self._next = 100

    # --- Disk --------------------------------------------------------------------------------------------------------

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> int:
        self._ask("open", path)
        if path not in self.names:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            self._name(path, Inode())
        self._next += 1
        self._open[self._next] = (path, self.names[path])
        return self._next

    def close(self, descriptor: int) -> None:
        del self._open[descriptor]

    def size(self, descriptor: int) -> int:
        return len(self._open[descriptor][1].cached)

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        path, inode = self._open[descriptor]
        limit = self._ask("pread", path, size)
        return bytes(inode.cached[position : position + (size if limit is None else min(size, limit))])

    def pwritev(self, descriptor: int, buffers: Sequence[bytes], position: int) -> int:
        path, inode = self._open[descriptor]
        data = taken = self._taken("pwritev", path, b"".join(buffers))
        if (place := None if self.astray is None else self.astray(path, position, data)) is not None:
            taken = self._misdirect(inode, position, data, *place)
        put(inode.cached, position, taken)
        inode.unsynced.append((position, taken))
        return len(data)

    def pwritev_durably(self, descriptor: int, buffers: Sequence[bytes], position: int) -> int:
        path, inode = self._open[descriptor]
        data = b"".join(buffers)
        inode.unsynced.append((position, data))  # a write that fails may still have happened
        put(inode.cached, position, data)
        taken = self._taken("pwritev_durably", path, data)
        inode.unsynced.pop()
        inode.write_through(position, taken)
        return len(taken)

    def fdatasync(self, descriptor: int) -> None:
        path, inode = self._open[descriptor]
        self._ask("fdatasync", path)
        inode.sync()

    def begin_write_back(self, descriptor: int, position: int, size: int) -> None:
        self._ask("begin_write_back", self._open[descriptor][0], size)  # what is unsynced may be lost nevertheless

    def truncate(self, descriptor: int, size: int) -> None:
        inode = self._open[descriptor][1]
        del inode.cached[size:]
        put(inode.cached, size, b"")
        inode.unsynced.append(size)

    def fill_with_zeros(self, descriptor: int, size: int, *, gently: bool = False) -> None:
        path, inode = self._open[descriptor]
        self._taken("fill_with_zeros", path, bytes(size))
        inode.cached = bytearray(size)
        inode.settle()

    def mkdir(self, path: Path) -> None:
        pass

    def listdir(self, path: Path) -> list[str]:
        """Files and, because a directory is there as soon as something is in it, directories."""
        names = list(self.names)  # at once: another thread may make a file meanwhile
        below = (name.relative_to(path) for name in names if path in name.parents)
        return list(dict.fromkeys(name.parts[0] for name in below))

    def rename(self, source: Path, target: Path) -> None:
        self._ask("rename", source)
        inode = self.names[source]
        self._name(target, inode)
        self._name(source, None)

    def unlink(self, path: Path) -> None:
        self._ask("unlink", path)
        self._name(path, None)

    def fsync_dir(self, path: Path) -> None:
        self._ask("fsync_dir", path)
        others = [change for change in self._name_changes if change[0].parent != path]
        self._name_changes = [change for change in self._name_changes if change[0].parent == path]
        self._apply_names(len(self._name_changes))
        self._name_changes = others

    def free_bytes(self, path: Path) -> int:
        return self.room

    # --- what a test does --------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """The process ends; what it wrote stays."""
        self._open.clear()

    def count_as_written(self, path: Path) -> None:
        """A sync of the file failed: the kernel takes what was not synced for written, and tries it no more."""
        self.names[path].unsynced.clear()

    def lose_power(self, random: Random, *, written_back: bool = True) -> int:
        """The machine ends; of what was not synced, anything may be missing, or everything is unless the kernel has
        `written_back` some of it. How many writes were torn.
        """
        torn = 0
        self._open.clear()
        self._apply_names(random.randint(0, len(self._name_changes)) if written_back else 0)
        self._name_changes.clear()
        self.names = dict(self._medium_names)
        for inode in {id(inode): inode for inode in self.names.values()}.values():
            for write in inode.unsynced if written_back else ():
                torn += _reach_medium(inode.medium, write, random)
            inode.unsynced.clear()
            inode.cached = bytearray(inode.medium)
        return torn

    def flip(self, path: Path, position: int) -> None:
        """Damage one byte, on the medium and in the cache."""
        inode = self.names[path]
        inode.cached[position] ^= 0x55
        inode.sync()
        put(inode.medium, position, bytes(inode.cached[position : position + 1]))

    def clone(self) -> FakeDisk:
        """A snapshot of the volume: what is on the medium at this moment."""
        copy = FakeDisk()
        each = self._medium_names.values()
        inodes = {id(inode): Inode(bytearray(inode.medium), bytearray(inode.medium)) for inode in each}
        copy.names = {path: inodes[id(inode)] for path, inode in self._medium_names.items()}
        copy._medium_names = dict(copy.names)
        return copy

    def path_of(self, target: int | Path) -> Path:
        """Of an open file, by its descriptor; that of a name itself."""
        return target if isinstance(target, Path) else self._open[target][0]

    def content(self, path: Path) -> bytearray:
        """To be changed by a test; `write` puts it back."""
        return bytearray(self.names[path].cached)

    def write(self, path: Path, content: bytes) -> None:
        inode = self.names.get(path)
        if inode is None:
            inode = Inode()
            self._name(path, inode)
        inode.cached = bytearray(content)
        inode.settle()
        self._apply_names(len(self._name_changes))

    def fail_with(self, number: int, *operations: str, only: Callable[[Path], bool] = lambda path: True) -> None:
        """From now on the operations end with this errno."""

        def fault(operation: str, path: Path, size: int) -> int | None:
            if operation in operations and only(path):
                raise OSError(number, f"{operation} {path}")
            return None

        self.fault = fault

    def _misdirect(self, inode: Inode, position: int, data: bytes, path: Path, to: int) -> bytes:
        """The file system counts the write as done, so its file may grow. What there is where it belongs."""
        other = self.names[path]
        landed = data[: max(len(other.cached) - to, 0)]  # what lies behind is nobody's
        put(other.cached, to, landed)
        other.write_through(to, landed)
        return bytes(inode.cached[position : position + len(data)]).ljust(len(data), b"\0")

    def _taken(self, operation: str, path: Path, data: bytes) -> bytes:
        limit = self._ask(operation, path, len(data))
        return data if limit is None else data[:limit]

    def _ask(self, operation: str, path: Path, size: int = 0) -> int | None:
        return None if self.fault is None else self.fault(operation, path, size)

    def _name(self, path: Path, inode: Inode | None) -> None:
        if inode is None:
            del self.names[path]
        else:
            self.names[path] = inode
        self._name_changes.append((path, inode))

    def _apply_names(self, count: int) -> None:
        for path, inode in self._name_changes[:count]:
            if inode is None:
                self._medium_names.pop(path, None)
            else:
                self._medium_names[path] = inode
        del self._name_changes[:count]


def _reach_medium(medium: bytearray, write: tuple[int, bytes] | int, random: Random) -> bool:
    """One unsynced write after a power loss: whole, not at all, or sector by sector. True if it was torn."""
    fate = random.randrange(3)
    if fate == 0:
        return False
    if isinstance(write, int):
        del medium[write:]
        put(medium, write, b"")
        return False
    position, data = write
    if fate == 1:
        put(medium, position, data)
        return False
    start = taken = 0
    while start < len(data):
        end = min(len(data), (position + start) // SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES - position)
        if random.random() < 0.5:
            put(medium, position + start, data[start:end])
            taken += end - start
        start = end
    return 0 < taken < len(data)
