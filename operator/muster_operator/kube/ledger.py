"""The ledger of a topic: which epoch was issued to which pod, of all its partitions in one small object.

Before a pod is called its epoch is recorded (replication specification, "The operator"). A write of a custom resource
costs the API server four milliseconds of processor time, and a pod that dies has led many partitions: written one by
one, their statuses were most of a failover on a small machine. So what elections wait for is one compare-and-swap of
one ConfigMap, whatever the number of partitions, and the statuses follow (ADR 11).

Its resourceVersion orders all operators: who writes with an old one has lost, reads anew, and loses those records that
were overtaken. Nothing but the operator reads or writes it; without it, what the statuses say holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from muster_operator.api.models import OffsetsTopic
from muster_operator.kube.client import Json, KubeClient
from muster_operator.kube.objects import PART_OF, PARTITION_LABEL, owned_by
from muster_operator.store.port import ConflictError, NotFoundError

__all__ = ["Issued", "Ledgers"]

NAME = "muster-issued-{uid}"
"""By the topic's uid: a topic of the same name that is created later has another ledger."""
KEY = "epochs.json"
ABOUT = "Epochs that the operator has issued, and to which pods; OffsetsPartition.status follows. Not to be edited."
TRIES = 3


class Issued(NamedTuple):
    """An epoch of one partition, and the pod that it was issued to ("": it was found on a pod that does not lead)."""

    epoch: int
    pod: str


@dataclass(slots=True)
class _Request:
    index: int
    seen: Issued
    issued: Issued
    done: asyncio.Future[None]

    def end(self, error: Exception | None = None) -> None:
        if self.done.done():
            return  # whoever asked is gone
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


@dataclass(slots=True)
class _Ledger:
    topic: OffsetsTopic
    version: str | None = None
    """None: it does not exist."""
    known: bool = True
    """False after a conflict. A write whose end nobody knows is a conflict of the next one, if it was done."""
    entries: dict[int, Issued] = field(default_factory=dict)
    waiting: list[_Request] = field(default_factory=list)
    writer: asyncio.Task[None] | None = None


class Ledgers:
    """Of all topics, by their uids. `changed` is told of a topic whose ledger somebody else has written."""

    def __init__(self, client: KubeClient, changed: Callable[[OffsetsTopic], None]) -> None:
        self._client = client
        self._changed = changed
        self._ledgers: dict[str, _Ledger] = {}

    def entries(self, topic: OffsetsTopic) -> Mapping[int, Issued]:
        """By partition, as they were last read or written."""
        ledger = self._ledgers.get(topic.metadata.uid)
        return {} if ledger is None else ledger.entries

    async def load(self, topics: Sequence[OffsetsTopic]) -> None:
        """Read those of these topics; others are forgotten. Raises StoreError."""
        self._ledgers = {topic.metadata.uid: _Ledger(topic) for topic in topics}
        await asyncio.gather(*(self._read(ledger) for ledger in self._ledgers.values()))

    async def issue(self, topic: OffsetsTopic, index: int, seen: Issued, issued: Issued) -> None:
        """Compare-and-swap the entry of a partition; on return it is durable. What is asked for at the same time is
        written together. Raises ConflictError when the entry says that another one was issued since `seen`.
        """
        ledger = self._ledgers.setdefault(topic.metadata.uid, _Ledger(topic))
        request = _Request(index, seen, issued, asyncio.get_running_loop().create_future())
        ledger.waiting.append(request)
        if ledger.writer is None or ledger.writer.done():
            ledger.writer = asyncio.create_task(self._write(ledger))
        await request.done

    async def _write(self, ledger: _Ledger) -> None:
        while ledger.waiting:
            batch, ledger.waiting = ledger.waiting, []
            try:
                await self._write_batch(ledger, batch)
            except Exception as error:  # a bug, too, is told to those who wait
                for request in batch:
                    request.end(error)

    async def _write_batch(self, ledger: _Ledger, batch: Sequence[_Request]) -> None:
        for _ in range(TRIES):
            if not ledger.known:
                await self._read(ledger)
                self._changed(ledger.topic)
            entries = dict(ledger.entries)
            batch = [request for request in batch if _take(entries, request)]
            if not batch:
                return
            try:
                ledger.version = await self._put(ledger, entries)
            except (ConflictError, NotFoundError):
                ledger.known = False
                continue
            ledger.entries = entries
            for request in batch:
                request.end()
            return
        raise ConflictError(f"the ledger of topic {ledger.topic.metadata.name} changes all the time")

    async def _read(self, ledger: _Ledger) -> None:
        try:
            raw = await self._client.get(f"{_collection(ledger.topic)}/{_name(ledger.topic)}")
        except NotFoundError:
            ledger.version, ledger.entries = None, {}
        else:
            ledger.version, ledger.entries = raw["metadata"]["resourceVersion"], _decode(raw)
        ledger.known = True

    async def _put(self, ledger: _Ledger, entries: Mapping[int, Issued]) -> str:
        path, body = _collection(ledger.topic), _body(ledger.topic, entries)
        if ledger.version is None:
            answer = await self._client.create(path, body)
        else:
            body["metadata"]["resourceVersion"] = ledger.version
            answer = await self._client.replace(f"{path}/{_name(ledger.topic)}", body)
        return str(answer["metadata"]["resourceVersion"])


def _take(entries: dict[int, Issued], request: _Request) -> bool:
    """An entry below what was seen is older than the partition's status."""
    entry = entries.get(request.index)
    if entry is not None and entry.epoch >= request.seen.epoch and entry != request.seen:
        text = f"partition {request.index}: epoch {entry.epoch} was issued to pod {entry.pod or '(none)'} meanwhile"
        request.end(ConflictError(text))
        return False
    entries[request.index] = request.issued
    return True


def _collection(topic: OffsetsTopic) -> str:
    return f"/api/v1/namespaces/{topic.metadata.namespace}/configmaps"


def _name(topic: OffsetsTopic) -> str:
    return NAME.format(uid=topic.metadata.uid)


def _body(topic: OffsetsTopic, entries: Mapping[int, Issued]) -> Json:
    """Owned by the topic, so that it is deleted with it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": _name(topic),
            "namespace": topic.metadata.namespace,
            "labels": {PARTITION_LABEL: topic.metadata.name, **PART_OF},
            "annotations": {"kubernetes.io/description": ABOUT},
            "ownerReferences": [owned_by(topic)],
        },
        "data": {KEY: msgspec.json.encode({str(index): entry for index, entry in sorted(entries.items())}).decode()},
    }


def _decode(raw: Json) -> dict[int, Issued]:
    """One that nobody understands counts as none: the statuses hold, and no pod takes an epoch twice."""
    try:
        text = (raw.get("data") or {}).get(KEY, "{}")
        return {int(index): entry for index, entry in msgspec.json.decode(text, type=dict[str, Issued]).items()}
    except (msgspec.MsgspecError, ValueError):
        return {}
