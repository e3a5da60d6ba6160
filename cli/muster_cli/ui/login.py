"""The login of the pages: names with hashes of passwords or tokens, in a file that is read again when it changes.

A line is NAME:scrypt:SALT:HASH (a password, for HTTP's Basic) or NAME:sha256:HASH (a token, for Bearer). Salt and hash
are hexadecimal.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from muster_cli.errors import CliError
from muster_coordinator.security.watched_file import SecurityFileError, WatchedFile

SALT_BYTES = 16
PASSWORD_MAX = 1024
"""Characters; more are refused before they are hashed."""
REMEMBERED_MAX = 256
"""Passwords that were right and are not hashed again: the pages ask every two seconds."""


@dataclass(frozen=True)
class Logins:
    """`passwords`: salt and hash by name. `tokens`: names by hash."""

    passwords: Mapping[str, tuple[bytes, bytes]]
    tokens: Mapping[bytes, str]


def parse_logins(content: bytes) -> Logins:
    """Raises ValueError, which names the line and repeats nothing of it."""
    passwords: dict[str, tuple[bytes, bytes]] = {}
    tokens: dict[bytes, str] = {}
    for number, raw in enumerate(content.decode("utf-8", "strict").splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        try:
            match line.split(":"):
                case [name, "scrypt", salt, digest] if name and len(salt) == 2 * SALT_BYTES and len(digest) == 128:
                    passwords[name] = (bytes.fromhex(salt), bytes.fromhex(digest))
                case [name, "sha256", digest] if name and len(digest) == 64:
                    tokens[bytes.fromhex(digest)] = name
                case _:
                    raise ValueError
        except ValueError:
            raise ValueError(f"line {number}: neither NAME:scrypt:SALT:HASH nor NAME:sha256:HASH") from None
    if not passwords and not tokens:
        raise ValueError("it names nobody; `muster ui --new-password NAME` makes a line")
    return Logins(passwords, tokens)


def password_line(name: str, password: str) -> str:
    """The line of the file for a name with a password."""
    salt = secrets.token_bytes(SALT_BYTES)
    return f"{name}:scrypt:{salt.hex()}:{_scrypt(password, salt).hex()}"


def token_line(name: str, token: str) -> str:
    """The line of the file for a name with a token, which has to be a random one."""
    return f"{name}:sha256:{_sha256(token).hex()}"


class Doorkeeper:
    """Knows whether the credentials of a request are right."""

    def __init__(self, path: Path) -> None:
        """Reads the file. Raises CliError."""
        try:
            self._file = WatchedFile(path, parse_logins)
        except SecurityFileError as error:
            raise CliError(f"--login-file: {error}") from error
        self._key = secrets.token_bytes(32)
        self._remembered: set[bytes] = set()
        self._hashing = asyncio.Lock()
        self._nobody = (secrets.token_bytes(SALT_BYTES), secrets.token_bytes(64))

    async def admits(self, authorization: str) -> bool:
        """`authorization`: the header of that name, "" if there is none."""
        if self._file.look():
            self._remembered.clear()
        scheme, _, value = authorization.partition(" ")
        if scheme.lower() == "bearer":
            return _sha256(value.strip()) in self._file.value.tokens
        if scheme.lower() != "basic":
            return False
        try:
            name, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        return bool(colon) and len(password) <= PASSWORD_MAX and await self._knows(name, password)

    async def _knows(self, name: str, password: str) -> bool:
        """One password is hashed at a time, so that guesses cannot take all processors. An unknown name takes as long
        as a known one.
        """
        mark = hmac.digest(self._key, f"{name}:{password}".encode(), "sha256")
        if mark in self._remembered:
            return True
        logins = self._file.value
        async with self._hashing:
            salt, digest = logins.passwords.get(name, self._nobody)
            right = hmac.compare_digest(await asyncio.to_thread(_scrypt, password, salt), digest)
        if right and logins is self._file.value:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered.add(mark)
        return right


def _scrypt(password: str, salt: bytes) -> bytes:
    """64 bytes; 16 MiB and about 50 ms for each."""
    return hashlib.scrypt(password.encode(), salt=salt, n=1 << 14, r=8, p=1, maxmem=64 << 20)


def _sha256(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
