"""The objects of a Kubernetes API server, with its rules: one revision for all, compare-and-swap by resourceVersion,
generations, status subresources, uids, server-side apply by one manager, a history for watches, backups.

Sans-IO: an answer is a status code and a body. Objects are never changed in place, so a backup is a copy of the index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from muster_operator.kube.objects_seen import RESOURCES

__all__ = ["Answer", "ApiObjects", "Backup", "Change", "Json", "Target", "labels_match"]

Json = dict[str, Any]
Name = tuple[str, str, str]
"""Plural, namespace, name."""

WITH_STATUS = frozenset({*(each.plural for each in RESOURCES), "pods"})
"""Kinds whose status is written through `/status` alone."""


@dataclass(frozen=True)
class Answer:
    code: int
    body: Json


@dataclass(frozen=True)
class Change:
    """One event of a watch."""

    revision: int
    event: str  # ADDED, MODIFIED, DELETED
    name: Name
    raw: Json


@dataclass(frozen=True)
class Backup:
    """What etcd held at a revision."""

    revision: int
    objects: dict[Name, Json]


@dataclass(frozen=True)
class Target:
    """What a path names. `name` "": the collection. `namespace` "": all, or the kind has none."""

    plural: str
    namespace: str
    name: str
    subresource: str

    @classmethod
    def of(cls, path: str) -> Target:
        parts = path.partition("?")[0].strip("/").split("/")
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource = (*rest, "", "")[:3]
        return cls(plural, namespace, name, subresource)


class ApiObjects:
    """`changed` hears of each change. `time` gives creationTimestamps."""

    def __init__(self, time: Callable[[], str], changed: Callable[[Change], None]) -> None:
        self.revision = 0
        self.history: list[Change] = []
        self.compacted = 0
        """Watches cannot begin below this revision."""
        self._time = time
        self._changed = changed
        self._objects: dict[Name, Json] = {}
        self._uids = 0

    # -- what is there ------------------------------------------------------------------------------------------------

    def get(self, plural: str, namespace: str, name: str) -> Json | None:
        return self._objects.get((plural, namespace, name))

    def all(self, plural: str, namespace: str = "", selector: str = "") -> list[Json]:
        """In the order of names, as etcd has them. `namespace` "": of all."""
        return [
            raw
            for (kind, scope, _), raw in sorted(self._objects.items(), key=lambda item: item[0])
            if kind == plural and namespace in ("", scope) and labels_match(raw, selector)
        ]

    def since(self, revision: int) -> Iterator[Change] | None:
        """The changes after this revision; None: they are not known any more (410 Gone)."""
        if revision < self.compacted or revision > self.revision:
            return None
        return (change for change in self.history if change.revision > revision)

    # -- requests -----------------------------------------------------------------------------------------------------

    def handle(self, method: str, path: str, query: dict[str, str], body: Json | None) -> Answer:
        """As the API server answers when it is well."""
        target = Target.of(path)
        if method == "GET" or (method == "PATCH" and "dryRun" in query and not body):
            return self._read(target, query.get("labelSelector", ""))
        if method == "DELETE":
            return self._delete(target, body or {})
        assert body is not None, f"{method} {path} has no body"
        if method == "POST":
            return self._create(target, body)
        if method == "PUT":
            return self._put(target, body)
        assert method == "PATCH", method
        return self._apply(target, body) if "metadata" in body else self._merge(target, query, body)

    def _read(self, target: Target, selector: str) -> Answer:
        if not target.name:
            items = self.all(target.plural, target.namespace, selector)
            return Answer(200, {"metadata": {"resourceVersion": str(self.revision)}, "items": items})
        raw = self.get(target.plural, target.namespace, target.name)
        return _not_found(target) if raw is None else Answer(200, raw)

    def _create(self, target: Target, body: Json) -> Answer:
        self._uids += 1
        given = body["metadata"]
        name = given.get("name") or f"{given['generateName']}{self._uids}"
        if self.get(target.plural, target.namespace, name) is not None:
            return _problem(409, "AlreadyExists", f"{target.plural} {name} already exists")
        metadata = {
            **{key: value for key, value in given.items() if key != "generateName"},
            "name": name,
            "uid": f"uid-{self._uids}",
            "generation": 1,
            "creationTimestamp": self._time(),
        }
        if target.namespace:
            metadata["namespace"] = target.namespace
        raw = {**body, "metadata": metadata}
        if target.plural in WITH_STATUS:
            raw.pop("status", None)
        return Answer(201, self._store((target.plural, target.namespace, name), raw))

    def _put(self, target: Target, body: Json) -> Answer:
        """Replace, if uid and resourceVersion are those of the object, as far as the body has them."""
        known = self.get(target.plural, target.namespace, target.name)
        if known is None:
            return _not_found(target)
        refused = _precondition(target, known, body["metadata"])
        if refused is not None:
            return refused
        if target.subresource == "status":
            return self._set_status(target, known, body.get("status", {}))
        return self._set_spec(target, known, body)

    def _apply(self, target: Target, body: Json) -> Answer:
        known = self.get(target.plural, target.namespace, target.name)
        if known is None:
            return self._create(target, body) if not target.subresource else _not_found(target)
        refused = _precondition(target, known, body["metadata"])
        if refused is not None:
            return refused
        if target.subresource == "status":
            return self._set_status(target, known, body.get("status", {}))
        return self._set_spec(target, known, body)

    def _merge(self, target: Target, query: dict[str, str], body: Json) -> Answer:
        """A merge patch, which in our programs has no metadata."""
        known = self.get(target.plural, target.namespace, target.name)
        if known is None:
            return _not_found(target)
        changed = _merged(known, body)
        return Answer(200, changed) if "dryRun" in query else self._set_spec(target, known, changed)

    def _set_status(self, target: Target, known: Json, status: Json) -> Answer:
        """With the one rule of our definitions that a status can break."""
        before = known.get("status", {})
        if target.plural == "offsetspartitions" and status.get("epoch", -1) < before.get("epoch", -1):
            return _problem(422, "Invalid", "status.epoch never falls: clients and pods refuse a lower leader epoch")
        return Answer(200, self._store(_name_of(target), {**known, "status": status}))

    def _set_spec(self, target: Target, known: Json, body: Json) -> Answer:
        """All but status, uid and time of creation; the generation rises with the spec."""
        metadata = {**known["metadata"], **{key: body["metadata"][key] for key in _MUTABLE if key in body["metadata"]}}
        changed = {**known, **{key: value for key, value in body.items() if key not in ("metadata", "status")}}
        if target.plural not in WITH_STATUS and "status" in body:
            changed["status"] = body["status"]
        if changed.get("spec") != known.get("spec"):
            metadata["generation"] = known["metadata"]["generation"] + 1
        return Answer(200, self._store(_name_of(target), {**changed, "metadata": metadata}))

    def _delete(self, target: Target, body: Json) -> Answer:
        known = self.get(target.plural, target.namespace, target.name)
        if known is None:
            return _not_found(target)
        uid = body.get("preconditions", {}).get("uid", known["metadata"]["uid"])
        if uid != known["metadata"]["uid"]:
            return _problem(409, "Conflict", f"the uid is {known['metadata']['uid']}, not {uid}")
        self.remove(_name_of(target))
        return Answer(200, {"kind": "Status", "status": "Success"})

    # -- changes ------------------------------------------------------------------------------------------------------

    def _store(self, name: Name, raw: Json) -> Json:
        """The object as it is now. A write that changes nothing takes no revision."""
        known = self._objects.get(name)
        if known is not None and known == raw:
            return known
        self.revision += 1
        stored = {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(self.revision)}}
        self._objects[name] = stored
        self._tell("ADDED" if known is None else "MODIFIED", name, stored)
        return stored

    def remove(self, name: Name) -> None:
        self.revision += 1
        known = self._objects.pop(name)
        metadata = {**known["metadata"], "resourceVersion": str(self.revision)}
        self._tell("DELETED", name, {**known, "metadata": metadata})

    def _tell(self, event: str, name: Name, raw: Json) -> None:
        change = Change(self.revision, event, name, raw)
        self.history.append(change)
        self._changed(change)

    def lose_status(self, plural: str, namespace: str, name: str) -> None:
        """As a restore by a tool that leaves statuses out, or a person's edit."""
        known = self.get(plural, namespace, name)
        if known is not None:
            self._store((plural, namespace, name), {key: value for key, value in known.items() if key != "status"})

    def compact(self) -> None:
        """Forget the history: the next watch from an old revision is gone."""
        self.compacted = self.revision
        self.history.clear()

    def backup(self) -> Backup:
        return Backup(self.revision, dict(self._objects))

    def restore(self, backup: Backup, *, bump: bool) -> None:
        """etcd from a backup. `bump`: as `etcdutl snapshot restore --bump-revision --mark-compacted`, so that revisions
        go on; without it they begin again at the backup's, and objects may get versions that others have had.
        """
        self._objects = dict(backup.objects)
        self.revision = self.revision + 1_000 if bump else backup.revision
        self.history.clear()
        self.compacted = self.revision if bump else backup.revision


_MUTABLE = ("labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp")


def labels_match(raw: Json, selector: str) -> bool:
    """`selector`: labels that the object must have, or label=value, with commas in between; "" takes all."""
    if not selector:
        return True
    if "," in selector:
        return all(labels_match(raw, each) for each in selector.split(","))
    label, _, value = selector.partition("=")
    found = raw["metadata"].get("labels", {}).get(label)
    return found is not None and value in ("", found)


def _merged(known: Json, patch: Json) -> Json:
    """Apply a JSON merge patch (RFC 7386)."""
    result = {key: value for key, value in known.items() if key not in patch or patch[key] is not None}
    for key, value in patch.items():
        if isinstance(value, dict):
            result[key] = _merged(known.get(key) or {}, value)
        elif value is not None:
            result[key] = value
    return result


def _name_of(target: Target) -> Name:
    return target.plural, target.namespace, target.name


def _precondition(target: Target, known: Json, given: Json) -> Answer | None:
    for field in ("uid", "resourceVersion"):
        if given.get(field, known["metadata"][field]) != known["metadata"][field]:
            text = f"{target.plural} {target.name}: {field} is {known['metadata'][field]}, not {given[field]}"
            return _problem(409, "Conflict", text)
    return None


def _not_found(target: Target) -> Answer:
    return _problem(404, "NotFound", f'{target.plural} "{target.name}" not found')


def _problem(code: int, reason: str, message: str) -> Answer:
    return Answer(code, {"kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": message})
