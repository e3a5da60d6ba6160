"""The Secrets that the operator has made: one that is deleted or changed is noticed, and made again.

Nothing watches them. A right to list, watch or get Secrets cannot be narrowed to ours in a role, because their names
come with clusters, and its owner reads the Secrets of everybody. So each is looked at again and again by the right
to patch it, which a policy narrows to ours (ADR 42): its metadata is asked for, and the resourceVersion tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from muster_operator.kube.applying import is_as_applied
from muster_operator.kube.cache import Name, name_of
from muster_operator.kube.client import Json, KubeClient, is_refused
from muster_operator.kube.record_secrets import secrets_path
from muster_operator.store.port import ClusterKey, NotFoundError, StoreError

log = structlog.get_logger(__name__)

MOST_LOOKS_A_SECOND = 50
"""A bound on what the API server is asked. With more than 250 of them it takes longer until all were looked at."""


UNKNOWN = "unknown"
"""A value that is no resourceVersion."""


@dataclass(slots=True)
class _Left:
    """A Secret as it was left. `manifest` {}: a record, of which nobody but its keeper knows what is to be in it.

    `versions`: the resourceVersion that each cluster has found in order. A cluster reads in a record what is its own,
    and does not see that somebody has changed what is another's.
    """

    manifest: Json = field(default_factory=dict)
    versions: dict[ClusterKey, str] = field(default_factory=dict)


class MadeSecrets:
    """`pause` is awaited with the seconds between two looks."""

    def __init__(self, client: KubeClient, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._client = client
        self._pause = pause
        self._left: dict[Name, _Left] = {}

    async def keep(self, key: ClusterKey, manifest: Json) -> None:
        """Have this Secret, for this cluster; nothing is written if it is as it was left. Raises StoreError."""
        name = name_of(manifest)
        path, left = f"{secrets_path(name[0])}/{name[1]}", self._left.get(name)
        version = left.versions.get(key, UNKNOWN) if left is not None and left.manifest == manifest else UNKNOWN
        self._put(key, name, UNKNOWN, manifest)  # looked for until this has succeeded
        live = await self._look(path)
        if live is None or (_version_of(live) != version and not is_as_applied(live, manifest)):
            live = await self._client.apply(path, manifest)
            log.info("secret_applied", namespace=name[0], name=name[1])
        self._put(key, name, _version_of(live), manifest)

    def note(self, key: ClusterKey, record: Json, replaced: Json | None = None) -> None:
        """A record that this cluster needs is as it was read just now, or as it was written in place of `replaced`: who
        had found that in order has no need to look.
        """
        name, version = name_of(record), _version_of(record)
        if replaced is not None and name in self._left:
            versions = self._left[name].versions
            versions.update({each: version for each, found in versions.items() if found == _version_of(replaced)})
        self._put(key, name, version)

    def _put(self, key: ClusterKey, name: Name, version: str, manifest: Json | None = None) -> None:
        versions = self._left[name].versions if name in self._left else {}
        self._left[name] = _Left(manifest or {}, {**versions, key: version})

    def forget(self, key: ClusterKey, keep: frozenset[str] = frozenset()) -> None:
        """The cluster needs none of the Secrets that were noted for it but those of these names."""
        for name, left in [*self._left.items()]:
            if name[1] not in keep:
                left.versions.pop(key, None)
                if not left.versions:
                    del self._left[name]

    async def drifted(self, is_there: Callable[[ClusterKey], bool]) -> set[ClusterKey]:
        """The clusters, of those that are there, of which a Secret is not as it was left. What cannot be asked now is
        asked the next time.
        """
        found = set[ClusterKey]()
        for name, left in [*self._left.items()]:
            if not any(is_there(key) for key in left.versions):
                continue
            try:
                version = await self._version(name)
            except StoreError as error:
                log.warning("secrets_not_looked_at", name=name[1], error=str(error))
                break
            if self._left.get(name) is left:  # else it was written meanwhile
                stale = {key for key, seen in left.versions.items() if seen != version and is_there(key)}
                if stale:
                    log.info("secret_changed_by_others", namespace=name[0], name=name[1], deleted=not version)
                found |= stale
            await self._pause(1 / MOST_LOOKS_A_SECOND)
        return found

    async def _version(self, name: Name) -> str:
        """Its resourceVersion; "": it is gone, or it is ours no longer. Raises StoreError."""
        try:
            live = await self._look(f"{secrets_path(name[0])}/{name[1]}", metadata_only=True)
        except StoreError as error:
            if not is_refused(error):
                raise
            return ""
        return "" if live is None else _version_of(live)

    async def _look(self, path: str, *, metadata_only: bool = False) -> Json | None:
        try:
            return await self._client.look(path, metadata_only=metadata_only)
        except NotFoundError:
            return None


def _version_of(secret: Json) -> str:
    return str(secret["metadata"]["resourceVersion"])
