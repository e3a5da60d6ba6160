"""The group requests of one client, carried out at Muster one after the other, as a broker takes the requests of a
connection.

While a group's partition has no leader, its request waits here, and is sent again to the next leader: a client does
not see a failover. The client of a group that has gone back to Kafka is told to find its coordinator again. A request
that may have been carried out, and must not be twice, ends the client's connection instead, as the death of a broker
does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from muster_coordinator.errors import ErrorCode
from muster_gateway.caller import Address, Caller, ConnectionLostError
from muster_gateway.errors import UpstreamError
from muster_gateway.group_requests import is_repeatable, refused, was_moved
from muster_gateway.muster import Muster
from muster_gateway.slots import Slot, framed

AGAIN_S = 0.01
"""Pause before a request is sent again: an election takes some ten milliseconds."""
LEADER_CHECK_S = 0.5
"""The interval of looks while an answer is missing, whether another pod leads the group's partition: a frozen pod keeps
its connections."""


class Request:
    """`pod`: the only one that can answer; None: the leader of the group's partition can."""

    __slots__ = ("frame", "group_id", "pod", "slot")

    def __init__(self, slot: Slot, frame: bytes, group_id: str, pod: int | None = None) -> None:
        self.slot = slot
        self.frame = frame
        self.group_id = group_id
        self.pod = pod


class Sent:
    """A request that a pod has got, and its answer to come."""

    __slots__ = ("caller", "future", "pod")

    def __init__(self, pod: int, caller: Caller, frame: bytes) -> None:
        self.pod = pod
        self.caller = caller
        self.future = caller.call(framed(frame))


class GroupLane:
    """`is_here`: whether Muster serves a group, as far as the gateway has heard. `user`: for whom pods are asked; "":
    for nobody by name. `answered(slot, answer)` is called for each request in its turn, with the answer without its
    length; it may raise UpstreamError. `broken` is called when one cannot be answered.

    A request to a leader that is known and connected takes no task; whatever else happens to it, one does.
    """

    def __init__(
        self,
        muster: Muster,
        address_of: Callable[[int], Address | None],
        is_here: Callable[[str], bool],
        park_s: float,
        user: str,
        answered: Callable[[Slot, bytes], None],
        broken: Callable[[Exception], None],
    ) -> None:
        self._muster = muster
        self._address_of = address_of
        self._is_here = is_here
        self._park_s = park_s
        self._user = user
        self._answered = answered
        self._broken = broken
        self._queue: deque[Request] = deque()
        self._current: Request | None = None
        self._task: asyncio.Task[None] | None = None
        self._callers: dict[int, Caller] = {}

    def submit(self, request: Request) -> None:
        self._queue.append(request)
        if self._current is None:
            self._next()

    def close(self) -> None:
        """Drops the requests that wait."""
        self._queue.clear()
        self._current = None
        if self._task is not None:
            self._task.cancel()
        for caller in self._callers.values():
            caller.close()
        self._callers.clear()

    # -- the common case --------------------------------------------------------------------------------------------

    def _next(self) -> None:
        if not self._queue:
            return
        request = self._current = self._queue.popleft()
        sent = self._send_at_once(request)
        if sent is None:
            self._start(request, None)
            return
        watch = asyncio.get_running_loop().call_later(LEADER_CHECK_S, self._start, request, sent)
        sent.future.add_done_callback(lambda _: self._done(request, sent, watch))

    def _send_at_once(self, request: Request) -> Sent | None:
        pod = request.pod if request.pod is not None else self._muster.remembered(request.group_id)
        caller = self._callers.get(pod) if pod is not None else None
        return Sent(pod, caller, request.frame) if pod is not None and caller is not None and not caller.lost else None

    def _done(self, request: Request, sent: Sent, watch: asyncio.TimerHandle) -> None:
        watch.cancel()
        if self._current is not request or self._task is not None:
            return
        if sent.future.exception() is not None:
            self._start(request, sent)
            return
        answer = sent.future.result()
        try:
            moved = was_moved(request.slot.head, answer)
        except UpstreamError as error:
            self._broken(error)
            return
        if moved:
            self._start(request, sent)
        else:
            self._finish(request, answer)

    def _finish(self, request: Request, answer: bytes) -> None:
        self._current = None
        self._muster.counts.answered += 1
        try:
            self._answered(request.slot, answer)
        except UpstreamError as error:
            self._broken(error)
            return
        if self._current is None:
            self._next()

    # -- all others -------------------------------------------------------------------------------------------------

    def _start(self, request: Request, sent: Sent | None) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(request, sent))

    async def _run(self, request: Request, sent: Sent | None) -> None:
        try:
            answer = await self._carry_out(request, sent)
        except Exception as error:
            self._task = None
            self._muster.counts.given_up += 1
            self._broken(error)
        else:
            self._task = None
            self._finish(request, answer)

    async def _carry_out(self, request: Request, sent: Sent | None) -> bytes:
        """The answer without its length. Raises ConnectionLostError for a request that cannot be sent again."""
        answer, moved = await self._tried(request, sent)
        if answer is not None and not moved:
            return answer
        counts = self._muster.counts
        counts.delayed += 1
        counts.waiting += 1
        try:
            return await self._wait_for_leader(request, answer)
        finally:
            counts.waiting -= 1

    async def _wait_for_leader(self, request: Request, answer: bytes | None) -> bytes:
        """`answer`: what the last pod has answered that had the request. Raises ConnectionLostError."""
        head, loop = request.slot.head, asyncio.get_running_loop()
        until = loop.time() + self._park_s
        while True:
            if request.pod is None and not self._is_here(request.group_id):
                return refused(head, request.frame, ErrorCode.NOT_COORDINATOR)[4:]
            repeatable = answer is None or is_repeatable(head, request.frame)
            if loop.time() >= until or request.pod is not None or not repeatable:
                self._muster.counts.given_up += 1
                return answer or refused(head, request.frame, ErrorCode.COORDINATOR_NOT_AVAILABLE)[4:]
            await asyncio.sleep(AGAIN_S)
            answer, moved = await self._tried(request, None)
            if answer is not None and not moved:
                return answer

    async def _tried(self, request: Request, sent: Sent | None) -> tuple[bytes | None, bool]:
        """(what the leader has answered, whether it says that another one leads); `sent`: it has the request already.
        None: there is none that could. Raises ConnectionLostError for a request that cannot be sent again."""
        if sent is None:
            sent = await self._send(request)
        if sent is None:
            return None, False
        answer = await self._answer_of(request, sent)
        moved = answer is not None and was_moved(request.slot.head, answer)
        if answer is None or moved:
            self._muster.forget(request.group_id, sent.pod)
        return answer, moved

    async def _send(self, request: Request) -> Sent | None:
        """None: there is no leader that can be reached."""
        pod = request.pod if request.pod is not None else await self._muster.leader_of(request.group_id)
        if pod is None:
            return None
        try:
            caller = await self._caller(pod)
        except (OSError, TimeoutError):
            self._muster.forget(request.group_id, pod)
            return None
        return Sent(pod, caller, request.frame)

    async def _answer_of(self, request: Request, sent: Sent) -> bytes | None:
        """None: the pod has not got the request, or it may be sent again. Raises ConnectionLostError for another one
        that is lost, also when another pod leads by now."""
        while not sent.future.done():
            await asyncio.wait((sent.future,), timeout=LEADER_CHECK_S)
            if not sent.future.done() and request.pod is None:
                leader = await self._muster.look_up(request.group_id)
                if leader not in (None, sent.pod):
                    sent.caller.close("another pod leads")
        try:
            return sent.future.result()
        except ConnectionLostError:
            if is_repeatable(request.slot.head, request.frame):
                return None
            raise

    async def _caller(self, pod: int) -> Caller:
        """Raises OSError, TimeoutError."""
        caller = self._callers.get(pod)
        if caller is None or caller.lost:
            address = self._address_of(pod)
            if address is None:
                raise OSError(f"pod {pod} is not known")
            if caller is not None:
                caller.close()
            caller = self._callers[pod] = await self._muster.connect(address, self._user)
        return caller
