"""`muster backup prune`: drops old backups, and removes the segments that no backup has named for a day.

The day is for a run of `create` that goes on at the same time: what it found in the store when it began stays until it
has written its manifest, and what it writes itself is new.
"""

from __future__ import annotations

from dataclasses import dataclass

from muster_cli.backup.catalog import Catalog
from muster_cli.backup.manifest import DROPPED, SEGMENTS, Backup, encode_manifest
from muster_cli.backup.store import Store
from muster_cli.errors import CliError

DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True)
class Pruned:
    """`removed`: segments, `freed` their bytes."""

    dropped: tuple[str, ...]
    kept: tuple[str, ...]
    removed: int
    freed: int


def prune(store: Store, catalog: Catalog, keep: int, keep_days: float, now_ms: int, *, dry_run: bool) -> Pruned:
    """Drop all but the newest `keep` backups and those of the last `keep_days` days. Blocks. Raises CliError: a
    manifest cannot be read, so nobody knows what it needs; StoreError.
    """
    if catalog.unreadable:
        name, why = next(iter(catalog.unreadable.items()))
        raise CliError(f"{name}: {why}. Nothing was pruned: what it needs is not known. Remove it by hand if it may go")
    since_ms = now_ms - int(keep_days * DAY_MS)
    beyond = catalog.backups[: max(0, len(catalog.backups) - keep)]
    old = [backup for backup in beyond if backup.taken_at_ms < since_ms]
    kept = [backup for backup in catalog.backups if backup not in old]
    fresh = [each for each in catalog.dropped if catalog.files[_dropped(each)].modified_ms >= now_ms - DAY_MS]
    needed = {segment.name for backup in (*kept, *old, *fresh) for segment in backup.segments()}
    gone = [
        name
        for name, stored in catalog.files.items()
        if name.startswith(SEGMENTS) and name not in needed and stored.modified_ms < now_ms - DAY_MS
    ]
    freed = sum(catalog.files[name].size for name in gone)
    if not dry_run:
        for backup in old:
            store.write(_dropped(backup), encode_manifest(backup))
            store.delete(backup.name)
        for name in gone:
            store.delete(name)
        for backup in catalog.dropped:
            if backup not in fresh:
                store.delete(_dropped(backup))
        store.drop_unfinished(now_ms - DAY_MS)
    return Pruned(tuple(each.id for each in old), tuple(each.id for each in kept), len(gone), freed)


def _dropped(backup: Backup) -> str:
    return f"{DROPPED}{backup.id}.json"
