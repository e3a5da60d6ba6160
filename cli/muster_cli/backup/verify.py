"""`muster backup verify`: reads every file of a store again, and says of each that is wrong what is wrong with it."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass

from muster_cli.backup.catalog import Catalog
from muster_cli.backup.manifest import BACKUPS, DROPPED, SEGMENTS, Backup
from muster_cli.backup.store import MissingError, Source
from muster_cli.progress import Amount
from muster_coordinator.sites.claims import FOLDER as CLAIMS

_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True)
class Problem:
    """`backups`: ids of those that cannot be restored because of it; empty: of none that is whole by itself."""

    file: str
    what: str
    backups: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}: {self.what}" + (f" (needed by {', '.join(self.backups)})" if self.backups else "")


@dataclass(frozen=True)
class Verified:
    """`unnamed`: whole segments that no backup names: an interrupted run has left them, or a backup was dropped."""

    backups: int
    files: int
    size: int
    unnamed: int
    problems: tuple[Problem, ...]


def verify(
    store: Source, catalog: Catalog, backups: Sequence[Backup], progress: Amount, numbers: Container[int] | None = None
) -> Verified:
    """Check all files that `backups` need, and that nothing in the store is a double or of unknown origin. Blocks.
    Raises StoreError. `numbers`: only those files that these partitions need are read.
    """
    needed: dict[str, list[str]] = defaultdict(list)
    problems = [Problem(name, why) for name, why in catalog.unreadable.items() if name.startswith(BACKUPS)]
    sizes: dict[str, int] = {}
    for backup in backups:
        problems += _inside(backup)
        for segment in backup.segments(numbers):
            sizes[segment.name] = segment.size
            if backup.id not in needed[segment.name]:
                needed[segment.name].append(backup.id)
    for done, (name, users) in enumerate(sorted(needed.items())):
        progress("files", done, len(needed))
        what = _wrong(store, name, sizes[name])
        if what:
            problems.append(Problem(name, what, tuple(users)))
    progress("files", len(needed), len(needed))
    others = [each for each in sorted(catalog.files) if each not in needed and each.startswith(SEGMENTS)]
    strange = [each for each in others if not _is_digest(each.removeprefix(SEGMENTS))]
    strange += [each for each in catalog.files if not each.startswith((SEGMENTS, BACKUPS, DROPPED, CLAIMS))]
    problems += [Problem(name, _origin(store, name, needed.keys())) for name in strange]
    named = {segment.name for each in (*catalog.backups, *catalog.dropped) for segment in each.segments()}
    unnamed = len([each for each in others if each not in named and each not in strange])
    return Verified(len(backups), len(needed), sum(sizes.values()), unnamed, tuple(problems))


def _inside(backup: Backup) -> list[Problem]:
    """The manifest contradicts itself."""
    wanted = sorted([*backup.layout.offsets, *backup.layout.transactions])
    there = sorted(partition.number for partition in backup.partitions)
    found = []
    if there != wanted:
        found.append(Problem(backup.name, "it does not have each partition once", (backup.id,)))
    for partition in backup.partitions:
        bases = [segment.base_offset for segment in partition.segments]
        if bases != sorted(set(bases)):
            found.append(Problem(backup.name, f"{partition.name} has a segment twice", (backup.id,)))
    return found


def _wrong(store: Source, name: str, size: int) -> str:
    """ "" if the file is what its name says."""
    digest, read = hashlib.sha256(), 0
    try:
        for data in store.read(name):
            digest.update(data)
            read += len(data)
    except MissingError:
        return "missing"
    if read != size:
        return f"it has {read} bytes, not {size}"
    return "" if SEGMENTS + digest.hexdigest() == name else "its content has changed: the checksum does not match"


def _origin(store: Source, name: str, needed: Collection[str]) -> str:
    digest = hashlib.sha256()
    for data in store.read(name):
        digest.update(data)
    original = SEGMENTS + digest.hexdigest()
    return f"a double of {original}" if original in needed else "of no backup: nothing says where it comes from"


def _is_digest(text: str) -> bool:
    return len(text) == 64 and _HEX.issuperset(text)
