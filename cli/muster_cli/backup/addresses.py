"""The store that an address of the command line means."""

from __future__ import annotations

from pathlib import Path

from muster_cli.backup.store import DirectoryStore, Store
from muster_cli.errors import CliError


def open_store(address: str) -> Store:
    """The store at `address`: s3://BUCKET/PREFIX, or a directory, which is made if need be. Raises CliError."""
    if address.startswith("s3://"):
        from muster_cli.backup.object_store import ObjectStore

        return ObjectStore(address)
    if "://" in address:
        raise CliError(f"{address}: stores are directories and s3://BUCKET/PREFIX")
    return DirectoryStore(Path(address).expanduser().absolute())
