"""The backup that a data directory was made from, as its restore has noted it there."""

from __future__ import annotations

from pathlib import Path

import msgspec

NAME = "restored.json"


class Origin(msgspec.Struct, frozen=True, rename="camel"):
    """The data directory has the share of pod number `pod` of `pods` in this backup, restored with these numbers of
    partitions (0: not noted)."""

    backup: str
    pod: int
    pods: int
    partitions: int = 0
    transaction_partitions: int = 0


def read_origin(data_dir: Path) -> Origin | None:
    """None: it began empty. Raises OSError, msgspec.MsgspecError."""
    try:
        return msgspec.json.decode((data_dir / NAME).read_bytes(), type=Origin)
    except FileNotFoundError:
        return None
