"""The operator's memory of objects of one kind, fed by lists, watch events and the answers to its own writes.

These arrive in any order, so an object is replaced only by a newer one. Resource versions of one kind are integers that
grow with every write (Kubernetes documents them as comparable); a deletion has one too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from muster_operator.kube.client import Json

T = TypeVar("T")

Name = tuple[str, str]
"""Namespace and name."""


class Cache(Generic[T]):
    """Objects by name, and by one index."""

    def __init__(self, index: Callable[[T], Hashable]) -> None:
        self._index = index
        self._objects: dict[Name, tuple[int, T]] = {}
        self._indexed: dict[Hashable, dict[Name, T]] = {}
        # Of deleted objects: a late answer to a write must not bring them back. Forgotten with the next full list.
        self._deleted: dict[Name, int] = {}
        self._listed = -1

    def get(self, name: Name) -> T | None:
        """The object, or None."""
        found = self._objects.get(name)
        return None if found is None else found[1]

    def version(self, name: Name) -> int:
        """Resource version of the object; -1 when there is none."""
        found = self._objects.get(name)
        return -1 if found is None else found[0]

    def names(self) -> Iterable[Name]:
        """The names of all objects."""
        return self._objects.keys()

    def values(self) -> Iterable[T]:
        """Every object."""
        return [value for _, value in self._objects.values()]

    def indexed(self, key: Hashable) -> Iterable[T]:
        """The objects with this index key."""
        return list(self._indexed.get(key, {}).values())

    def put(self, name: Name, resource_version: str, value: T) -> bool:
        """Take an object unless a newer one, or its deletion, is known. True if it was taken."""
        version = int(resource_version)
        known = self._objects.get(name)
        if (known is not None and known[0] >= version) or self._deleted.get(name, -1) >= version:
            return False
        self._drop(name)
        self._objects[name] = (version, value)
        self._indexed.setdefault(self._index(value), {})[name] = value
        return True

    def remove(self, name: Name, resource_version: str) -> bool:
        """Take a deletion unless a newer object is known. True if an object went."""
        version = int(resource_version)
        known = self._objects.get(name)
        if known is not None and known[0] > version:
            return False
        self._deleted[name] = max(version, self._deleted.get(name, -1))
        return self._drop(name)

    def replace(self, listed: dict[Name, tuple[str, T]], resource_version: str) -> None:
        """Take a full list as of a resource version. It is right about everything that is not newer than it, also where
        a version that was known is higher: then an older store was restored. If the list itself is older than the last
        one, the versions of before say nothing any more.
        """
        version = int(resource_version)
        went_back, self._listed = version < self._listed, version
        self._deleted = {
            name: deleted for name, deleted in self._deleted.items() if deleted > version and not went_back
        }
        for name, (known, _) in list(self._objects.items()):
            if known <= version or went_back:
                self._drop(name)
        for name, (each, value) in listed.items():
            self.put(name, each, value)

    def _drop(self, name: Name) -> bool:
        known = self._objects.pop(name, None)
        if known is None:
            return False
        key = self._index(known[1])
        group = self._indexed[key]
        del group[name]
        if not group:
            del self._indexed[key]
        return True


def name_of(raw: Json) -> Name:
    return raw["metadata"]["namespace"], raw["metadata"]["name"]


def take(cache: Cache[Json], event: str | None, raw: Json) -> bool:
    """Put an object as the API server has it, or its deletion, into the cache; whether that is news."""
    version = raw["metadata"]["resourceVersion"]
    return cache.remove(name_of(raw), version) if event == "DELETED" else cache.put(name_of(raw), version, raw)


def take_list(cache: Cache[Json], listed: Json) -> None:
    """Put a full list into the cache."""
    found = {name_of(raw): (raw["metadata"]["resourceVersion"], raw) for raw in listed["items"]}
    cache.replace(found, listed["metadata"]["resourceVersion"])
