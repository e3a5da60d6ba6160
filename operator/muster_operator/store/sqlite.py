"""Store in one SQLite file: embedded mode.

One thread does all work on the file. Calls that wait for it at the same moment share one transaction, and so one fsync:
50 statuses that are written concurrently cost about as much as one. Other processes may read the file meanwhile (WAL).

Table `objects`: one row per object; `spec` and `status` as JSON, `version` from one rising counter is its
resourceVersion. Table `counters`: `version` and `starts` (the fencing token).
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import msgspec

from muster_operator.api.durations import format_time
from muster_operator.api.models import (
    ConsumerGroup,
    ConsumerGroupStatus,
    CoordinatorCluster,
    CoordinatorClusterStatus,
    MusterBackup,
    MusterBackupStatus,
    MusterUser,
    MusterUserStatus,
    ObjectMeta,
    OffsetsPartition,
    OffsetsPartitionSpec,
    OffsetsPartitionStatus,
    OffsetsTopic,
    OffsetsTopicStatus,
    Resource,
    TopicRef,
    partition_object_name,
)
from muster_operator.store.port import (
    ClusterKey,
    ClusterRecords,
    ConflictError,
    NotFoundError,
    Notify,
    StoreError,
    Unwatch,
)

_SCHEMA_VERSION = 1
"""PRAGMA user_version of the file: raised with every change of the schema or of how objects are encoded."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO counters VALUES ('version', 0), ('starts', 0);
CREATE TABLE IF NOT EXISTS objects (
    kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    parent TEXT NOT NULL,  -- the cluster of a topic or user, the topic of a partition
    uid TEXT NOT NULL, version INTEGER NOT NULL, generation INTEGER NOT NULL, created TEXT NOT NULL,
    spec BLOB NOT NULL, status BLOB NOT NULL,
    PRIMARY KEY (kind, namespace, name)
) WITHOUT ROWID;
"""
_encode = msgspec.json.Encoder(order="deterministic").encode
_COLUMNS = "namespace, name, uid, version, generation, created, spec, status"

OTHERS_S = 0.5
"""A change by another process is noticed within this time, in seconds."""

_T = TypeVar("_T")
_R = TypeVar("_R", bound=Resource)
_Keys = set[ClusterKey]


class SqliteStore:
    """`muster_operator.store.port.Store` over a file, with `apply` and `delete` for what a person would do."""

    def __init__(self, path: Path, wall: Callable[[], float] = time.time) -> None:
        """Opens or creates the file. `wall`: seconds since 1970, for creation times."""
        self._wall = wall
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="muster-store")
        self._waiting: list[_Call[Any]] = []
        self._turn: asyncio.Task[None] | None = None
        self._notify: list[Notify] = []
        self._token: int | None = None
        self._tellers: list[asyncio.Task[None]] = []
        try:
            self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute("PRAGMA synchronous=FULL")  # a recorded epoch must survive a power loss
            self._prepare(path)
        except sqlite3.Error as error:
            raise StoreError(f"{path}: {error}") from error

    def _prepare(self, path: Path) -> None:
        """Create the tables. Raises StoreError if a newer program has written the file."""
        (version,) = self._file.execute("PRAGMA user_version").fetchone()
        if version > _SCHEMA_VERSION:
            self._file.close()
            raise StoreError(
                f"{path}: it has schema version {version}, and this program knows {_SCHEMA_VERSION} and older ones:"
                " start the program that wrote it, or a newer one"
            )
        self._file.executescript(_SCHEMA)
        if version < _SCHEMA_VERSION:
            self._file.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")

    def close(self) -> None:
        """Close the file after the calls that are under way."""
        for teller in self._tellers:
            teller.cancel()
        self._thread.shutdown(wait=True)
        self._file.close()

    # What a person does with kubectl

    async def apply(self, resource: Resource) -> None:
        """Create the object, or set its spec; another spec is another generation. The status stays."""
        await self._call(lambda keys: self._apply(resource, keys), writes=True)

    async def delete(self, resource: Resource) -> None:
        """Delete the object, and with a topic its partitions. One that is gone already is fine."""
        await self._call(lambda keys: self._delete(resource, keys), writes=True)

    # The port

    def watch(self, notify: Notify) -> Unwatch:
        self._notify.append(notify)
        teller = asyncio.get_running_loop().create_task(self._tell(notify))
        self._tellers.append(teller)

        def unwatch() -> None:
            self._notify.remove(notify)
            teller.cancel()

        return unwatch

    async def _tell(self, notify: Notify) -> None:
        """Notify of every key at first, and again when another process has written, such as a command of a person."""
        version = -1
        while True:
            before = version
            try:
                version = await self._call(lambda keys: self._others_version())
                for key in await self.clusters() if version != before else ():
                    notify(key)
            except StoreError:
                version = before  # as when the file is locked for long: asked again
            await asyncio.sleep(OTHERS_S)

    def _others_version(self) -> int:
        """Another number after each commit of another connection."""
        return int(self._file.execute("PRAGMA data_version").fetchone()[0])

    async def fencing_token(self, key: ClusterKey) -> int:
        if self._token is None:
            self._token = await self._call(lambda keys: self._next("starts"), writes=True)
        return self._token

    async def clusters(self) -> tuple[ClusterKey, ...]:
        return await self._call(lambda keys: self._clusters())

    async def observe(self, key: ClusterKey) -> ClusterRecords:
        return await self._call(lambda keys: self._observe(key))

    async def create_partitions(self, topic: OffsetsTopic, indexes: Sequence[int]) -> None:
        meta = topic.metadata
        fresh = [
            OffsetsPartition(
                ObjectMeta(partition_object_name(meta.name, index), meta.namespace),
                OffsetsPartitionSpec(TopicRef(meta.name), index),
            )
            for index in indexes
        ]

        def create(keys: _Keys) -> None:
            for each in fresh:
                self._create(each, keys)

        await self._call(create, writes=True)

    async def record_leadership(self, seen: OffsetsTopic, leaderships: Mapping[str, str]) -> OffsetsTopic:
        return await self._swap_status(seen, msgspec.structs.replace(seen.status, leaderships=dict(leaderships)))

    async def write_partition_status(self, seen: OffsetsPartition, status: OffsetsPartitionStatus) -> None:
        await self._swap_status(seen, status)

    async def write_cluster_status(self, seen: CoordinatorCluster, status: CoordinatorClusterStatus) -> None:
        await self._call(lambda keys: self._write_status(seen, status, None, keys), writes=True)

    async def write_topic_status(self, seen: OffsetsTopic, status: OffsetsTopicStatus) -> None:
        await self._swap_status(seen, status)

    async def write_user_status(self, seen: MusterUser, status: MusterUserStatus) -> None:
        await self._swap_status(seen, status)

    async def write_group_status(self, seen: ConsumerGroup, status: ConsumerGroupStatus) -> None:
        await self._swap_status(seen, status)

    async def write_backup_status(self, seen: MusterBackup, status: MusterBackupStatus) -> None:
        await self._swap_status(seen, status)

    async def _swap_status(self, seen: _R, status: msgspec.Struct) -> _R:
        return await self._call(
            lambda keys: self._write_status(seen, status, seen.metadata.resource_version, keys), writes=True
        )

    # One thread, one transaction for all that wait

    async def _call(self, work: Callable[[_Keys], _T], *, writes: bool = False) -> _T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()
        self._waiting.append(_Call(work, writes, future))
        if self._turn is None:
            self._turn = loop.create_task(self._take_turns())
        return await future

    async def _take_turns(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                calls, self._waiting = self._waiting, []
                try:
                    changed = await loop.run_in_executor(self._thread, self._transact, calls)
                except RuntimeError as error:  # the thread is shut down
                    changed = set()
                    for call in calls:
                        call.error = StoreError(f"the store is closed: {error}")
                for call in calls:
                    call.resolve()
                for key, notify in itertools.product(sorted(changed), self._notify):
                    notify(key)
        finally:
            self._turn = None

    def _transact(self, calls: Sequence[_Call[Any]]) -> _Keys:
        """Runs on the thread. A call that fails takes back its own changes only; a failed commit fails them all."""
        changed: _Keys = set()
        try:
            # The write lock at once: a reader that comes to write later would lose to another process and fail.
            self._file.execute("BEGIN IMMEDIATE" if any(call.writes for call in calls) else "BEGIN")
            for call in calls:
                self._file.execute("SAVEPOINT call")
                keys: _Keys = set()
                try:
                    call.result = call.work(keys)
                    changed |= keys
                except (StoreError, msgspec.MsgspecError) as error:
                    call.error = error
                    self._file.execute("ROLLBACK TO call")
                self._file.execute("RELEASE call")
            self._file.execute("COMMIT")
        except sqlite3.Error as error:
            if self._file.in_transaction:
                self._file.execute("ROLLBACK")
            for call in calls:
                call.error = StoreError(f"SQLite: {error}")
            return set()
        return changed

    # On the thread, inside a transaction

    def _clusters(self) -> tuple[ClusterKey, ...]:
        rows = self._file.execute(
            "SELECT namespace, name FROM objects WHERE kind = 'coordinatorclusters'"
            " UNION SELECT namespace, parent FROM objects WHERE kind = 'offsetstopics'"
            " UNION SELECT namespace, '' FROM objects AS p WHERE kind = 'offsetspartitions' AND NOT EXISTS ("
            "   SELECT 1 FROM objects AS t WHERE t.kind = 'offsetstopics' AND t.namespace = p.namespace"
            "   AND t.name = p.parent)"
        )
        return tuple(sorted(ClusterKey(*row) for row in rows))

    def _observe(self, key: ClusterKey) -> ClusterRecords:
        namespace, name = key
        if not name:
            partitions = self._select(OffsetsPartition, "namespace = ?", namespace)
            topics = {topic.metadata.name for topic in self._select(OffsetsTopic, "namespace = ?", namespace)}
            orphans = [each for each in partitions if each.spec.topic_ref.name not in topics]
            return ClusterRecords(partitions=_in_order(orphans))
        clusters = self._select(CoordinatorCluster, "namespace = ? AND name = ?", namespace, name)
        found = self._select(OffsetsTopic, "namespace = ? AND parent = ?", namespace, name)
        own = sorted(found, key=lambda each: (each.metadata.creation_timestamp, each.metadata.name))
        partitions = [
            partition
            for topic in own
            for partition in _in_order(
                self._select(OffsetsPartition, "namespace = ? AND parent = ?", namespace, topic.metadata.name)
            )
        ]
        users = self._select(MusterUser, "namespace = ? AND parent = ?", namespace, name)
        groups = self._select(ConsumerGroup, "namespace = ? AND parent = ?", namespace, name)
        backups = self._select(MusterBackup, "namespace = ? AND parent = ?", namespace, name)
        return ClusterRecords(
            clusters[0] if clusters else None,
            tuple(own),
            tuple(partitions),
            tuple(users),
            tuple(groups),
            tuple(sorted(backups, key=lambda each: (each.metadata.creation_timestamp, each.metadata.name))),
        )

    def _select(self, kind: type[_R], where: str, *values: str) -> list[_R]:
        rows = self._file.execute(
            f"SELECT {_COLUMNS} FROM objects WHERE kind = ? AND {where} ORDER BY name", (kind.plural, *values)
        )
        return [_object(kind, row) for row in rows]

    def _apply(self, resource: Resource, keys: _Keys) -> None:
        meta = resource.metadata
        spec = _encode(resource.spec)
        where = (resource.plural, meta.namespace, meta.name)
        row = self._file.execute("SELECT spec FROM objects WHERE kind = ? AND namespace = ? AND name = ?", where)
        before = row.fetchone()
        if before is None:
            self._create(resource, keys)
        elif bytes(before[0]) != spec:
            keys |= self._keys(resource)
            self._file.execute(
                "UPDATE objects SET spec = ?, parent = ?, generation = generation + 1, version = ?"
                " WHERE kind = ? AND namespace = ? AND name = ?",
                (spec, _parent(resource), self._next("version"), *where),
            )
            keys |= self._keys(resource)

    def _create(self, resource: Resource, keys: _Keys) -> None:
        meta = resource.metadata
        done = self._file.execute(
            "INSERT OR IGNORE INTO objects VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?, ?)",
            (
                *(resource.plural, meta.namespace, meta.name, _parent(resource), str(uuid.uuid4())),
                *(self._next("version"), format_time(self._wall())),
                _encode(resource.spec),
                _encode(resource.status),
            ),
        )
        if done.rowcount:
            keys |= self._keys(resource)

    def _delete(self, resource: Resource, keys: _Keys) -> None:
        meta = resource.metadata
        keys |= self._keys(resource)
        self._file.execute(
            "DELETE FROM objects WHERE kind = ? AND namespace = ? AND name = ?",
            (resource.plural, meta.namespace, meta.name),
        )
        if isinstance(resource, OffsetsTopic):
            self._file.execute(
                "DELETE FROM objects WHERE kind = ? AND namespace = ? AND parent = ?",
                (OffsetsPartition.plural, meta.namespace, meta.name),
            )

    def _write_status(self, seen: _R, status: object, version: str | None, keys: _Keys) -> _R:
        """`version`: the resourceVersion that the object must still have, None for any."""
        meta = seen.metadata
        where = (seen.plural, meta.namespace, meta.name)
        row = self._file.execute(
            "SELECT version, uid FROM objects WHERE kind = ? AND namespace = ? AND name = ?", where
        ).fetchone()
        if row is None or (meta.uid and meta.uid != row[1]):
            raise NotFoundError(f"{seen.plural} {meta.namespace}/{meta.name} is gone")
        if version is not None and version != str(row[0]):
            raise ConflictError(f"{seen.plural} {meta.namespace}/{meta.name} is at {row[0]}, not {version}")
        self._file.execute(
            "UPDATE objects SET status = ?, version = ? WHERE kind = ? AND namespace = ? AND name = ?",
            (_encode(status), self._next("version"), *where),
        )
        keys |= self._keys(seen)
        return self._select(type(seen), "namespace = ? AND name = ?", meta.namespace, meta.name)[0]

    def _next(self, counter: str) -> int:
        row = self._file.execute(
            "UPDATE counters SET value = value + 1 WHERE name = ? RETURNING value", (counter,)
        ).fetchone()
        return int(row[0])

    def _keys(self, resource: Resource) -> _Keys:
        """The keys under which an object is observed."""
        namespace = resource.metadata.namespace
        if isinstance(resource, CoordinatorCluster):
            return {ClusterKey(namespace, resource.metadata.name)}
        if isinstance(resource, MusterUser | ConsumerGroup | MusterBackup):
            return {ClusterKey(namespace, resource.spec.cluster_ref.name)}
        if isinstance(resource, OffsetsTopic):
            return {ClusterKey(namespace, resource.spec.cluster_ref.name), ClusterKey(namespace, "")}
        topic = resource.spec.topic_ref.name
        topics = self._select(OffsetsTopic, "namespace = ? AND name = ?", namespace, topic)
        return {ClusterKey(namespace, each.spec.cluster_ref.name) for each in topics} or {ClusterKey(namespace, "")}


class _Call(Generic[_T]):
    """Work for the thread, and the future of its caller."""

    def __init__(self, work: Callable[[_Keys], _T], writes: bool, future: asyncio.Future[_T]) -> None:
        self.work = work
        self.writes = writes
        self.result: _T | None = None
        self.error: Exception | None = None
        self._future = future

    def resolve(self) -> None:
        if self._future.done():
            return  # the caller was cancelled
        if self.error is not None:
            self._future.set_exception(self.error)
        else:
            self._future.set_result(cast(_T, self.result))


def _parent(resource: Resource) -> str:
    if isinstance(resource, OffsetsTopic | MusterUser | ConsumerGroup | MusterBackup):
        return resource.spec.cluster_ref.name
    return resource.spec.topic_ref.name if isinstance(resource, OffsetsPartition) else ""


def _in_order(partitions: Iterable[OffsetsPartition]) -> tuple[OffsetsPartition, ...]:
    return tuple(sorted(partitions, key=lambda each: (each.spec.topic_ref.name, each.spec.index, each.metadata.name)))


def _object(kind: type[_R], row: tuple[Any, ...]) -> _R:
    namespace, name, uid, version, generation, created, spec, status = row
    meta = ObjectMeta(name, namespace, uid, str(version), generation, created)
    return msgspec.json.decode(b'{"metadata":%s,"spec":%s,"status":%s}' % (_encode(meta), spec, status), type=kind)
