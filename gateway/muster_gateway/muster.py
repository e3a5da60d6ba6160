"""Finds the pod of Muster that leads a group's partition."""

from __future__ import annotations

import asyncio
import random

import structlog

from muster_coordinator.outgoing.connector import Connector
from muster_coordinator.wire.codec import Writer
from muster_coordinator.wire.framing import encode_request_frame
from muster_coordinator.wire.k10_find_coordinator import API as FIND_API
from muster_gateway.caller import CONNECT_S, Address, Caller, ConnectionLostError, connect_s
from muster_gateway.counts import GroupCounts
from muster_gateway.errors import UpstreamError
from muster_gateway.leaders import Leaders
from muster_gateway.nodes import Nodes
from muster_gateway.rewriting import read_coordinators
from muster_gateway.upstream import AGAIN_S, CLIENT_ID, REFRESH_S, ask_brokers

logger = structlog.get_logger(__name__)

LOOK_UP_S = 0.5
"""Longest wait for a pod that is asked for a group's coordinator; it answers from memory, so a later one is stuck."""
_FIND_VERSION = 2


class Muster:
    """One connection to any pod; the others are tried when it fails. `run` keeps `nodes` up to date."""

    def __init__(self, connector: Connector, bootstrap: tuple[Address, ...], nodes: Nodes, limit: int) -> None:
        self._connector = connector
        self._bootstrap = bootstrap
        self._nodes = nodes
        self._limit = limit
        self._lock = asyncio.Lock()
        self._asked: Caller | None = None
        self._leaders = Leaders()
        self._correlation_id = 0
        self._pods_known = asyncio.Event()
        self.failing = False
        """True if no pod answered when one was asked last for the others."""
        self.counts = GroupCounts()

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await self.find_pods()
            await asyncio.sleep(REFRESH_S if self._pods_known.is_set() and not self.failing else AGAIN_S)

    async def pods_known(self, seconds: float) -> None:
        """Return when a pod is known, or after this time."""
        try:
            async with asyncio.timeout(seconds):
                await self._pods_known.wait()
        except TimeoutError:
            pass

    async def find_pods(self) -> None:
        """Ask once for the pods that there are. A failure is logged, the first of a row."""
        try:
            caller = await self._caller()
            await self._nodes.learn_pods((await ask_brokers(caller)).brokers)
            if self._nodes.pods:
                self._pods_known.set()
            else:
                self._pods_known.clear()
        except (OSError, TimeoutError, ConnectionLostError, UpstreamError) as error:
            if not self.failing:
                logger.warning("muster_not_reachable", error=str(error) or type(error).__name__)
            self.failing = True
        else:
            self.failing = False

    def remembered(self, group_id: str) -> int | None:
        """Node id of the pod that led the group's partition when somebody asked; None: nobody did."""
        return self._leaders.get(group_id)

    async def leader_of(self, group_id: str) -> int | None:
        """Node id of the pod, as it was known last; None: there is none now."""
        pod = self.remembered(group_id)
        return pod if pod is not None else await self.look_up(group_id)

    def forget(self, group_id: str, pod: int) -> None:
        """The pod does not lead the group's partition any more, or does not answer."""
        self._leaders.forget(group_id, pod)

    async def look_up(self, group_id: str) -> int | None:
        """The node that leads the group, asked for now; None: nobody says so."""
        try:
            # Less than what a connection may take, unless it is secured: then the first one takes its time.
            async with asyncio.timeout(max(LOOK_UP_S, connect_s(self._connector) - CONNECT_S)):
                caller = await self._caller()
        except (OSError, TimeoutError):
            return None
        writer = Writer(False)
        writer.string(group_id)
        writer.int8(0)
        self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        frame = encode_request_frame(FIND_API, _FIND_VERSION, self._correlation_id, CLIENT_ID, writer.so_far())
        try:
            async with asyncio.timeout(LOOK_UP_S):
                _, (found,) = read_coordinators(_FIND_VERSION, await caller.call(frame))
        except (ConnectionLostError, UpstreamError, TimeoutError) as error:
            caller.close(f"no answer: {error}")
            return None
        if found.error_code or found.node_id < 0:
            return None
        self._leaders.learn(group_id, found.node_id)
        return found.node_id

    async def connect(self, address: Address, as_user: str) -> Caller:
        """A connection of its own to the pod there, for a client that is this user ("": for nobody by name). Raises
        OSError, TimeoutError."""
        return await Caller.connect(self._connector, address, self._limit, as_user)

    async def _caller(self) -> Caller:
        """A connection to any pod. Raises OSError, TimeoutError."""
        async with self._lock:
            if self._asked is not None and not self._asked.lost:
                return self._asked
            if self._asked is not None:
                self._asked.close()
            pods = list(self._nodes.pods.values())
            random.shuffle(pods)
            last: Exception = OSError("no pod is known")
            for address in [*pods, *(each for each in self._bootstrap if each not in pods)]:
                try:
                    self._asked = await Caller.connect(self._connector, address, self._limit)
                    return self._asked
                except (OSError, TimeoutError) as error:
                    last = error
            raise last
