"""The users and ACLs that an operator gives (ADR 38): in force at once, and kept in the data directory for a restart.

The file is `<data>/access.json`; each gift replaces it as a whole. It has SCRAM credentials and no passwords.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import structlog

from muster_coordinator.podapi.control import RefusedCallError
from muster_coordinator.podapi.users import AccessImage
from muster_coordinator.security.acl_file import acls_of
from muster_coordinator.security.acls import Acl, Authorizer
from muster_coordinator.security.users import Users, parse_users

logger = structlog.get_logger(__name__)

NAME = "access.json"

_T = TypeVar("_T")


class Held(Generic[_T]):
    """The value that is in force, with the methods of a file that is watched (`security.watched_file`)."""

    def __init__(self, value: _T) -> None:
        self.value = value
        self._is_new = False

    def put(self, value: _T) -> None:
        self.value = value
        self._is_new = True

    def look(self) -> bool:
        """True if `value` has changed since the last look."""
        was_new, self._is_new = self._is_new, False
        return was_new


class GivenAccess:
    """The users and rights that an operator has given. Before the first gift, here or in an earlier run, there is no
    user, and nobody may do anything.

    `fingerprint` is of what is in force and on the disk; "" if that is nothing. `gone`: users of certificates and
    tokens that the last gift took away.
    """

    def __init__(self, data_dir: Path, authorizer: Callable[[tuple[Acl, ...]], Authorizer]) -> None:
        self._data_dir = data_dir
        self._authorizer = authorizer
        self.users: Held[Users] = Held(Users())
        self.acls: Held[Authorizer] = Held(authorizer(()))
        self.fingerprint = ""
        self.gone: frozenset[str] = frozenset()
        self._external: frozenset[str] = frozenset()
        self._one_at_a_time = asyncio.Lock()

    def load(self) -> None:
        """Take what an earlier run has kept. What cannot be read is left: the operator gives it anew."""
        path = self._data_dir / NAME
        try:
            image = msgspec.json.decode(path.read_bytes(), type=AccessImage)
            self._use(image, *_parsed(image))
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            logger.warning("given_access_ignored", path=str(path), error=str(error))
            return
        self.fingerprint = image.fingerprint

    async def take(self, image: AccessImage, in_force: Callable[[], None]) -> str:
        """Returns the fingerprint once the image would survive a restart; it is in force before, which `in_force` is
        told: a removed user must not stay because a disk is slow or full. Raises RefusedCallError."""
        try:
            users, acls = _parsed(image)
        except ValueError as error:
            raise RefusedCallError(400, "InvalidRequest", str(error)) from None
        async with self._one_at_a_time:
            if image.fingerprint == self.fingerprint:
                return self.fingerprint
            self._use(image, users, acls)
            self.fingerprint = ""
            in_force()
            try:
                await asyncio.to_thread(self._keep, msgspec.json.encode(image))
            except OSError as error:
                raise RefusedCallError(507, "CannotWrite", f"{NAME}: {error.strerror}") from None
            self.fingerprint = image.fingerprint
            logger.info("access_given", users=len(image.users), acls=len(image.acls), fingerprint=self.fingerprint)
            return self.fingerprint

    def _use(self, image: AccessImage, users: Users, acls: tuple[Acl, ...]) -> None:
        external = frozenset(image.external)
        self.gone, self._external = self._external - external - image.users.keys(), external
        self.users.put(users)
        self.acls.put(self._authorizer(acls))

    def _keep(self, data: bytes) -> None:
        """Writes a file that only this user of the machine may read."""
        making = self._data_dir / f"{NAME}.tmp"
        making.unlink(missing_ok=True)
        with open(os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(making, self._data_dir / NAME)
        directory = os.open(self._data_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _parsed(image: AccessImage) -> tuple[Users, tuple[Acl, ...]]:
    """The users and ACLs of an image, read by the rules of the files. Raises ValueError, which repeats no secret."""
    users = parse_users(msgspec.json.encode({"users": image.users, "quotas": image.quotas}))
    return users, acls_of(image.acls)
