"""The group requests of one client, carried out at Muster one after the other, as a broker takes the requests of a
connection.

While a group's partition has no leader, its request waits here, and is sent again to the next leader: a client does
not see a failover. A request that may have been carried out, and must not be twice, ends the client's connection
instead, as the death of a broker does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from muster_coordinator.errors import ErrorCode
from muster_gateway.caller import Address, Caller, ConnectionLostError
from muster_gateway.group_requests import is_repeatable, refused, was_moved
from muster_gateway.muster import Muster
from muster_gateway.slots import Slot, framed

AGAIN_S = 0.01
"""Pause before a request is sent again: an election takes some ten milliseconds."""
LEADER_CHECK_S = 0.5
"""How often it is looked, while an answer is missing, whether another pod leads the group's partition by now: a pod
that is frozen keeps its connections."""


class Request:
    """`pod`: the only one that can answer; None: the leader of the group's partition can."""

    __slots__ = ("frame", "group_id", "pod", "slot")

    def __init__(self, slot: Slot, frame: bytes, group_id: str, pod: int | None = None) -> None:
        self.slot = slot
        self.frame = frame
        self.group_id = group_id
        self.pod = pod


class GroupLane:
    """`answered(slot, answer)` is called for each request in its turn, `broken` when one cannot be answered."""

    def __init__(
        self,
        muster: Muster,
        address_of: Callable[[int], Address | None],
        park_s: float,
        limit: int,
        answered: Callable[[Slot, bytes], None],
        broken: Callable[[Exception], None],
    ) -> None:
        self._muster = muster
        self._address_of = address_of
        self._park_s = park_s
        self._limit = limit
        self._answered = answered
        self._broken = broken
        self._queue: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None
        self._callers: dict[int, Caller] = {}

    def submit(self, request: Request) -> None:
        self._queue.append(request)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """What waits is dropped."""
        self._queue.clear()
        if self._task is not None:
            self._task.cancel()
        for caller in self._callers.values():
            caller.close()
        self._callers.clear()

    async def _run(self) -> None:
        try:
            while self._queue:
                request = self._queue.popleft()
                self._answered(request.slot, framed(await self._carry_out(request)))
        except Exception as error:
            self._broken(error)
        finally:
            self._task = None

    async def _carry_out(self, request: Request) -> bytes:
        """The answer without its length. Raises ConnectionLostError for a request that cannot be sent again."""
        head, loop = request.slot.head, asyncio.get_running_loop()
        until: float | None = None
        while True:
            pod = request.pod if request.pod is not None else await self._muster.leader_of(request.group_id)
            answer = await self._try(request, pod) if pod is not None else None
            if answer is not None and not was_moved(head, answer):
                return answer
            if pod is not None:
                self._muster.forget(request.group_id, pod)
            now = loop.time()
            until = now + self._park_s if until is None else until
            if now >= until or request.pod is not None or (answer is not None and not self._repeatable(request)):
                return answer or refused(head, request.frame, ErrorCode.COORDINATOR_NOT_AVAILABLE)[4:]
            await asyncio.sleep(AGAIN_S)

    async def _try(self, request: Request, pod: int) -> bytes | None:
        """The pod's answer; None: it has not got the request, or may get it again."""
        try:
            caller = await self._caller(pod)
        except (OSError, TimeoutError):
            return None
        try:
            return await self._answer_of(request, pod, caller)
        except ConnectionLostError:
            if self._repeatable(request):
                return None
            raise

    async def _answer_of(self, request: Request, pod: int, caller: Caller) -> bytes:
        """Raises ConnectionLostError, also when another pod leads by now."""
        future = caller.call(framed(request.frame))
        while not future.done():
            await asyncio.wait((future,), timeout=LEADER_CHECK_S)
            if not future.done() and request.pod is None:
                leader = await self._muster.look_up(request.group_id)
                if leader not in (None, pod):
                    caller.close("another pod leads")
        return future.result()

    def _repeatable(self, request: Request) -> bool:
        return is_repeatable(request.slot.head, request.frame)

    async def _caller(self, pod: int) -> Caller:
        """Raises OSError, TimeoutError."""
        caller = self._callers.get(pod)
        if caller is None or caller.lost:
            address = self._address_of(pod)
            if address is None:
                raise OSError(f"pod {pod} is not known")
            caller = self._callers[pod] = await Caller.connect(address, self._limit)
        return caller
