"""Clients of simple groups: each group has one writer, which counts up, and readers. Requests go to any pod that might
lead; what is not answered in time is given up, and its connection closed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.cluster import Partition
from tests.simulation.history import History, Start
from tests.simulation.request import Request
from tests.simulation.store import Recorded

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests import groups as m

__all__ = ["TOPIC", "Caller", "Client", "commit_request", "fetched_version"]

PATIENCE_MS = 900
WRITER_PATIENCE_MS = 1_300
"""The patience of a writer of offsets is longer than a request waits anywhere, so one that is given up is never carried
out behind the next one. A pod keeps a request for a second while its replica is being elected (`early_requests`), by a
clock that may be a fifth too slow."""
DESCRIBE_VERSION = 6
TOPIC = "t"


class Caller:
    """One request after the other."""

    def __init__(self, partition: Partition, store: Recorded) -> None:
        self.partition = partition
        self.world = partition.world
        self._store = store
        self._request: Request | None = None

    def call(self, message: Any, then: Callable[[Any], None], patience_ms: int = PATIENCE_MS) -> None:
        """``then`` gets the response; None: nobody answered, or nobody leads there."""
        world = self.world

        def answered(response: Any) -> None:
            world.at(world.random.randint(0, world.options.delay_ms_max), lambda: finish(response))

        def finish(response: Any) -> None:
            if not request.cancelled:
                request.cancelled = True
                fences.answers(response, closed_from)
                then(response)

        fences = self.partition.fences
        closed_from = fences.closed_from
        request = Request(message, answered)
        replicas = self.partition.replicas
        target = self._store.record.leader
        leading = [one.pod.name for one in replicas.values() if one.core is not None and one.core.leading_epoch >= 0]
        if leading and world.random.random() < 0.8:
            target = world.random.choice(leading)
        world.at(world.random.randint(0, world.options.delay_ms_max), lambda: replicas[target].request(request))
        world.at(patience_ms, lambda: finish(None))


class Client:
    """A reader never writes. ``answered`` counts what was done."""

    def __init__(self, name: str, caller: Caller, history: History, index: int, *, writes: bool) -> None:
        self.name = name
        self.answered = 0
        self._caller = caller
        self._world = caller.world
        self._history = history
        self._group = history.name
        self._producer = index
        self._writes = writes
        self._next()

    def _next(self) -> None:
        world = self._world
        world.at(1 + int(world.random.expovariate(1 / world.options.op_every_ms)), self._operate)

    def _operate(self) -> None:
        random, options = self._world.random, self._world.options
        if not self._writes or random.random() >= options.writes:
            self._read()
        elif random.random() < options.deletes:
            self._delete()
        elif random.random() < options.transactions:
            self._write_in_transaction()
        else:
            self._write()

    def _call(self, message: Any, then: Callable[[Any], None]) -> None:
        self._caller.call(message, then, WRITER_PATIENCE_MS)

    def _try_version(self) -> tuple[int, Start]:
        version = self._history.tried + 1
        self._history.tries(version)
        return version, self._history.start()

    def _done(self) -> None:
        self.answered += 1
        self._next()

    def _read(self) -> None:
        history, start = self._history, self._history.start()

        def answered(response: m.OffsetFetchResponse | m.DescribedGroup | m.ListGroupsResponse | None) -> None:
            match response:
                case None:
                    self._next()
                    return
                case m.OffsetFetchResponse():
                    history.read(fetched_version(response), start)
                case m.DescribedGroup():
                    history.described(response.error_code == ErrorCode.NONE, start)
                case m.ListGroupsResponse():
                    history.described(self._group in {one.group_id for one in response.groups}, start)
            self._done()

        how = self._world.random.random()
        if how < 0.7:
            self._call(fetch_request(self._group), answered)
        elif how < 0.85:
            self._call(m.DescribeGroupRequest(self._group, DESCRIBE_VERSION), answered)
        else:
            self._call(m.ListGroupsRequest(), answered)

    def _write(self) -> None:
        version, start = self._try_version()

        def answered(response: m.OffsetCommitResponse | None) -> None:
            if response is None:
                self._next()
                return
            assert response.topics == ((TOPIC, ((0, 0),)),), response
            self._history.acknowledged(version, start)
            self._done()

        self._call(commit_request(self._group, 0, version), answered)

    def _delete(self) -> None:
        """The offset alone, or with the group. A group that is not there has none."""
        version, start = self._try_version()
        whole = self._world.random.random() < 0.5
        if whole:
            self._history.tries_to_leave(version)
        else:
            self._history.tries(-version)

        def answered(response: m.OffsetDeleteResponse | m.DeleteGroupResponse | None) -> None:
            if response is None:
                self._next()
                return
            assert response.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND), response
            self._history.acknowledged(version, start)
            self._done()

        if whole:
            self._call(m.DeleteGroupRequest(self._group), answered)
        else:
            self._call(m.OffsetDeleteRequest(self._group, ((TOPIC, (0,)),)), answered)

    def _write_in_transaction(self) -> None:
        """Acknowledged once the marker is: a COMMIT, or an ABORT, after which nothing is known to be written."""
        version, start = self._history.tried + 1, self._history.start()
        self._history.prepares(version)
        commits = self._world.random.random() < 0.8
        marker = m.WriteTxnMarkerRequest(self._producer, 0, commits, 0)

        def marked(response: m.WriteTxnMarkerResponse | None) -> None:
            if response is None:
                self._next()
                return
            assert response.error_code == ErrorCode.NONE, response
            self._history.ended(commits=commits)
            if commits:
                self._history.acknowledged(version, start)
            self._done()

        def written(response: m.TxnOffsetCommitResponse | None) -> None:
            if response is None:
                self._next()
                return
            assert response.topics == ((TOPIC, ((0, 0),)),), response
            self._history.ends(commits=commits)
            self._call(marker, marked)

        topics = ((TOPIC, ((0, version, -1, None),)),)
        self._call(
            m.TxnOffsetCommitRequest(f"x{self._producer}", self._group, self._producer, 0, -1, "", None, topics, 3),
            written,
        )


def commit_request(
    group: str, partition: int, version: int, generation: int = -1, member: str = ""
) -> m.OffsetCommitRequest:
    topics = ((TOPIC, ((partition, version, -1, None),)),)
    return m.OffsetCommitRequest(group, generation, member, None, -1, topics, 8)


def fetch_request(group: str, partition: int = 0) -> m.OffsetFetchRequest:
    return m.OffsetFetchRequest(group, None, -1, ((TOPIC, (partition,)),), False)


def fetched_version(response: m.OffsetFetchResponse) -> int:
    """0: there is none."""
    assert response.error_code == ErrorCode.NONE, response
    ((_, ((_, offset, _, _, code),)),) = response.topics
    assert code == ErrorCode.NONE, response
    return max(offset, 0)
