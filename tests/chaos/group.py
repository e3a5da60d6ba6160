"""One committing group: a connection to its coordinator, one commit under way, the next one when it is due."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol, cast

from tests.chaos.history import OFFSETS_PER_GROUP, Abandoned, Fetch, GroupHistory
from tests.chaos.requests import CommitFrame, commit_error, fetch_frame, fetched

FETCH_EVERY = 50
"""Behind each so many-th commit the offset is read back."""
CONNECT_TIMEOUT_S = 0.5


class Directory(Protocol):
    """What a group needs of the load: pods by index, and someone who looks for coordinators."""

    def pod_index(self, address: str) -> int: ...

    def lost(self, group: Group) -> None:
        """The group needs a coordinator."""

    def refused(self, address: str) -> None:
        """No connection to it can be made now."""


class Connection(asyncio.Protocol):
    """Cuts the stream into frames. `transport`: None before it stands, and when it has ended."""

    def __init__(self, frame: Callable[[Connection, bytes], None], closed: Callable[[Connection], None]) -> None:
        self._frame = frame
        self._closed = closed
        self._received = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own classes derive from nothing

    def data_received(self, data: bytes) -> None:
        received = self._received + data if self._received else data
        while len(received) >= 4 and len(received) >= 4 + (size := int.from_bytes(received[:4], "big")):
            self._frame(self, received[4 : 4 + size])
            received = received[4 + size :]
        self._received = received

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._closed(self)


READ = -1


class Request(NamedTuple):
    """`offset`: the one to be committed, or READ. `sent`: seconds of the monotonic clock."""

    correlation: int
    offset: int
    sent: float


class Group:
    """Commits rising offsets until `stop`. After a refusal or a closed connection it asks its directory for the
    coordinator; while an answer is overdue it does so too, and still takes the answer if it comes first."""

    def __init__(self, number: int, name: str, interval_s: float, directory: Directory) -> None:
        first = number * OFFSETS_PER_GROUP
        self.history = GroupHistory(name=name, first_offset=first, last_sent=first - 1)
        self.name = name
        self.is_lost = True
        self.pod = -1
        self.stopped = False
        self._interval_s = interval_s
        self._directory = directory
        self._commit = CommitFrame(name)
        self._fetch = fetch_frame(name)
        self._connection: Connection | None = None
        self._correlation = 0
        self._under_way: list[Request] = []  # answered in this order: a commit, or a fetch and then perhaps a commit
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None  # for the next commit
        self._connecting = False

    @property
    def busy(self) -> bool:
        """A request is under way."""
        return bool(self._under_way)

    @property
    def acknowledged(self) -> int:
        return len(self.history.offsets)

    @property
    def _is_committing(self) -> bool:
        return self.busy and self._under_way[-1].offset != READ

    def overdue(self, now: float, timeout_s: float) -> bool:
        return self.busy and now - self._under_way[0].sent > timeout_s

    async def connect(self, address: str) -> None:
        """Go on at that pod, unless that is where the answer is overdue."""
        pod = self._directory.pod_index(address)
        if self._connecting or not self.is_lost or (self.busy and pod == self.pod):
            return
        if self._connection is not None and pod == self.pod:  # it refused before; now it may take it
            self.is_lost = False
            self._send()
            return
        self._connecting = True
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            made = loop.create_connection(lambda: Connection(self._answered, self._closed), host, int(port))
            _, connection = await asyncio.wait_for(made, CONNECT_TIMEOUT_S)
        except (OSError, TimeoutError):
            self._directory.refused(address)
            return
        finally:
            self._connecting = False
        if connection.transport is None:  # the pod was dying: it took the connection, and ended it at once
            self._directory.refused(address)
            return
        if not self.is_lost or self.stopped:  # the overdue answer came first
            self._drop(connection)
            return
        self._abandon()
        self._drop(self._connection)
        self._connection, self.pod = connection, pod
        self.is_lost = False
        self.history.coordinators.append((time.monotonic(), pod))
        self._send()

    def stop(self) -> None:
        """Send nothing more; the answer under way is still taken."""
        self.stopped = True

    def close(self) -> None:
        self._abandon()
        self._drop(self._connection)
        self._connection = None

    def _commit_when_due(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(max(self._due - time.monotonic(), 0.0), self._send)

    def _send(self) -> None:
        """The next commit, also while a fetch is under way: a group that waited for it would make gaps of its own."""
        connection = self._connection
        if self.stopped or self.is_lost or self._is_committing or connection is None or connection.transport is None:
            return
        self.history.last_sent += 1
        request = self._begin(self.history.last_sent)
        connection.transport.write(self._commit.of(request.offset, request.correlation))

    def _read_back(self) -> None:
        connection = self._connection
        if self.stopped or connection is None or connection.transport is None:
            return
        connection.transport.write(self._fetch.numbered(self._begin(READ).correlation))

    def _begin(self, offset: int) -> Request:
        self._correlation += 1
        request = Request(self._correlation, offset, time.monotonic())
        self._under_way.append(request)
        return request

    def _answered(self, connection: Connection, frame: bytes) -> None:
        if connection is not self._connection or not self._under_way:
            return
        request = self._under_way.pop(0)
        if int.from_bytes(frame[:4], "big") != request.correlation & 0x7FFFFFFF:
            raise ValueError(f"{self.name}: answer to another request: {frame.hex()}")
        error = self._fetched(request, frame) if request.offset == READ else self._committed(request, frame)
        if error:
            self.history.refusals[error] = self.history.refusals.get(error, 0) + 1
            self._lose()
            return
        self.is_lost = False  # it may have been overdue
        if not self._is_committing:
            self._commit_when_due()

    def _fetched(self, request: Request, frame: bytes) -> int:
        """The error code."""
        offset, error = fetched(frame)
        if not error:
            last_sent = self.history.last_sent
            self.history.fetches.append(Fetch(request.sent, time.monotonic(), offset, self.pod, last_sent))
        return error

    def _committed(self, request: Request, frame: bytes) -> int:
        """The error code."""
        error = commit_error(frame)
        if not error:
            now, history = time.monotonic(), self.history
            history.offsets.append(request.offset)
            history.sent.append(request.sent)
            history.acked.append(now)
            history.pods.append(self.pod)
            self._due = max(self._due + self._interval_s, now)
            if self.acknowledged % FETCH_EVERY == 0:
                self._read_back()
        return error

    def _closed(self, connection: Connection) -> None:
        if connection is self._connection:
            self._under_way.clear()  # carried out before this moment, or never
            self._connection = None
            self._lose()

    def _lose(self) -> None:
        if not self.stopped:
            self.is_lost = True
            self._directory.lost(self)

    def _abandon(self) -> None:
        now = time.monotonic()
        self.history.abandoned += [
            Abandoned(each.offset, self.pod, now) for each in self._under_way if each.offset != READ
        ]
        self._under_way.clear()

    def _drop(self, connection: Connection | None) -> None:
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
