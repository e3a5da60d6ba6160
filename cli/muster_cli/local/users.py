"""`muster local user`: a user in a file of users, with credentials in place of the password."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

import msgspec

from muster_cli.errors import CliError
from muster_coordinator.security.scram import DEFAULT_ITERATIONS, HASHES, credential_of, write_credential
from muster_coordinator.security.users import parse_users

_File = dict[str, dict[str, Any]]
"""The file with what else stands in it, such as quotas, as it is."""


def set_user(path: Path, name: str, password: str) -> None:
    """Add the user, or give it another password. Makes the file if there is none. Raises CliError."""
    if not password:
        raise CliError("the password is empty")
    file = _read(path) if path.exists() else {"users": {}}
    file["users"][name] = {
        mechanism: write_credential(
            credential_of(password.encode(), hash_name, secrets.token_bytes(16), DEFAULT_ITERATIONS)
        )
        for mechanism, hash_name in HASHES.items()
    }
    _write(path, file)


def remove_user(path: Path, name: str) -> None:
    """Raises CliError, also if there is no such user."""
    file = _read(path)
    if file["users"].pop(name, None) is None:
        raise CliError(f"{path} has no user {name!r}")
    file.get("quotas", {}).pop(name, None)
    _write(path, file)


def _read(path: Path) -> _File:
    try:
        content = path.read_bytes()
        parse_users(content)
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise CliError(f"{path}: {error}") from None
    return msgspec.json.decode(content, type=_File)


def _write(path: Path, content: _File) -> None:
    """Readers see the old file or the new one; it is for its owner only."""
    new = path.with_name(path.name + ".new")
    try:
        new.unlink(missing_ok=True)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
        new.replace(path)
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}") from None
