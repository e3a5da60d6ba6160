"""The backups of a store."""

from __future__ import annotations

from dataclasses import dataclass

from muster_cli.backup.manifest import BACKUPS, DROPPED, Backup, ManifestError, decode_manifest, is_backup_id
from muster_cli.backup.store import Store, Stored
from muster_cli.errors import CliError


@dataclass(frozen=True)
class Catalog:
    """All files of a store. `backups` and `dropped`: oldest first. `unreadable`: why, by file name."""

    files: dict[str, Stored]
    backups: tuple[Backup, ...]
    dropped: tuple[Backup, ...]
    unreadable: dict[str, str]

    def newest(self) -> Backup | None:
        """The newest backup; None if the store has none. Raises CliError: a newer manifest cannot be read."""
        return self.find("latest") if self.backups or self.unreadable else None

    def find(self, asked: str) -> Backup:
        """The backup of that id; "latest": the newest one. Raises CliError."""
        if asked == "latest":
            damaged = sorted(name for name in self.unreadable if name.startswith(BACKUPS))
            newest = self.backups[-1].name if self.backups else ""
            if damaged and damaged[-1] > newest:
                raise CliError(f"{damaged[-1]}: {self.unreadable[damaged[-1]]}. Name an older backup to take that")
            if not self.backups:
                raise CliError("the store has no backup")
            return self.backups[-1]
        name = f"{BACKUPS}{asked}.json"
        if name in self.unreadable:
            raise CliError(f"{name}: {self.unreadable[name]}")
        found = next((each for each in self.backups if each.id == asked), None)
        if found is None:
            raise CliError(f"the store has no backup {asked}; it has {', '.join(b.id for b in self.backups) or 'none'}")
        return found


def read_catalog(store: Store) -> Catalog:
    """Blocks. Raises StoreError."""
    files = store.files()
    found: dict[str, list[Backup]] = {BACKUPS: [], DROPPED: []}
    unreadable: dict[str, str] = {}
    for name in sorted(files):
        folder = next((each for each in found if name.startswith(each)), None)
        if folder is None:
            continue
        backup_id = name.removeprefix(folder).removesuffix(".json")
        if not name.endswith(".json") or not is_backup_id(backup_id):
            unreadable[name] = "no backup has such a name"
            continue
        try:
            backup = decode_manifest(b"".join(store.read(name)))
        except ManifestError as error:
            unreadable[name] = str(error)
            continue
        if backup.id != backup_id:
            unreadable[name] = f"it is the manifest of {backup.id}"
        else:
            found[folder].append(backup)
    return Catalog(files, tuple(found[BACKUPS]), tuple(found[DROPPED]), unreadable)
