"""Finds the modules to compile, from the lists in pyproject.toml (ADR 13): for the build hook and its test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def compiled_modules(package: Path, lists: Mapping[str, Sequence[str]]) -> list[str]:
    """Paths such as "groups/offset_store", relative to `package`, without suffix.

    `lists` has for each folder names of modules, or "*" for all of them and "!name" for those that stay Python. Raises
    ValueError for a name that is no module.
    """
    return [f"{folder}/{name}" for folder, names in lists.items() for name in _names(package / folder, names)]


def _names(folder: Path, names: Sequence[str]) -> list[str]:
    there = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    left_out = {name[1:] for name in names if name.startswith("!")}
    listed = {name for name in names if name != "*" and not name.startswith("!")}
    unknown = (left_out | listed) - there
    if unknown:
        raise ValueError(f"pyproject.toml: {folder} has no module {', '.join(sorted(unknown))}")
    return sorted((there if "*" in names else listed) - left_out)
