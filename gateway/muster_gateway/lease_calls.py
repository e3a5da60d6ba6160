"""Asks the pods of Muster for the leases of `Moves`, again and again, over their APIs.

A pod answers for the partitions that it leads. One whose leader is not known is asked of all pods, so the next leader
is found without being looked for.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import aiohttp
import msgspec
import structlog

from muster_coordinator.podapi.fields import Problem
from muster_coordinator.podapi.leases import LeaseAsk, LeasesAnswer, LeasesRequest, PartitionLease
from muster_coordinator.requests.moving import Fence, LeaseAnswer, LeaseRequest, Route
from muster_coordinator.security.roles import Role, only
from muster_coordinator.security.tls import Tls, TlsFiles, client_context
from muster_gateway.caller import Address
from muster_gateway.moves import Moves

logger = structlog.get_logger(__name__)

CALL_S = 1.0
"""Longest wait for a pod's answer. It leaves out what it cannot answer within half of that."""
FIRST_INTERVAL_MS = 250
"""The time between two rounds of calls, until a pod has said how long a lease is."""
ROUNDS_OF_A_LEASE = 8
"""Rounds of calls within the time of a lease: so many may fail in a row, less one or two."""
FENCED_INTERVAL_MS = 25
"""The interval while a group is fenced: its move waits for the gateway's word, and its clients for the end of the
fence.
"""
SHORTEST_INTERVAL_MS = 20
RESOLVE_S = 2.0
"""Interval at which the names of pods are looked up."""


def api_tls(directory: str, cluster: str) -> Tls:
    """TLS for pods of the cluster, `NAMESPACE/NAME`, whose names the gateway does not know. Raises TlsError."""
    of_the_cluster = only(cluster, (Role.POD,))
    return Tls(
        TlsFiles.of(Path(directory)),
        lambda files: client_context(files, check=lambda shown, _: of_the_cluster(shown, "")),
    )


class CallFailedError(Exception):
    """A pod gave no answer that can be used; the message says why."""


class LeaseCalls:
    """`servers`: where the pods' APIs are now; a name stands for all of its addresses. `tls`: for them; None: they are
    plain."""

    def __init__(self, moves: Moves, servers: Callable[[], Iterable[Address]], tls: Tls | None) -> None:
        self._moves = moves
        self._servers = servers
        self._tls = tls
        self._scheme = "https" if tls is not None else "http"
        self._interval_s = FIRST_INTERVAL_MS / 1000
        self._leaders: dict[int, Address] = {}
        self._calls: dict[Address, asyncio.Task[None]] = {}
        self._failing: set[Address] = set()
        self._soon = asyncio.Event()
        self._complete: bool | None = None  # whether all leases are held, as last logged

    async def run(self) -> None:
        """Runs until it is cancelled."""
        # A connection is made anew for each round that finds none idle; they are kept, so mostly there is one.
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            pods: list[Address] = []
            resolve_at_s = 0.0
            try:
                while True:
                    now_s = asyncio.get_running_loop().time()
                    if now_s >= resolve_at_s:
                        pods, resolve_at_s = await self._resolved(pods), now_s + RESOLVE_S
                        if self._tls is not None:
                            self._tls.look()
                    self._round(session, pods)
                    await self._pause()
            finally:
                for call in self._calls.values():
                    call.cancel()

    async def _pause(self) -> None:
        try:
            interval_s = FENCED_INTERVAL_MS / 1000 if self._moves.is_fenced else self._interval_s
            async with asyncio.timeout(interval_s):
                await self._soon.wait()
        except TimeoutError:
            pass
        self._soon.clear()
        self._moves.look()  # leases end by time
        self._say()

    async def _resolved(self, known: list[Address]) -> list[Address]:
        """Addresses of the pods now; those that were known, while names cannot be looked up."""
        loop, found = asyncio.get_running_loop(), list[Address]()
        for host, port in self._servers():
            try:
                async with asyncio.timeout(RESOLVE_S):
                    answers = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except (OSError, TimeoutError):
                continue
            found += [(str(answer[4][0]), port) for answer in answers]
        return list(dict.fromkeys(found)) or known

    # -- calls --------------------------------------------------------------------------------------------------------

    def _round(self, session: aiohttp.ClientSession, pods: Iterable[Address]) -> None:
        """Ask each pod that has answered its last call, and may lead something."""
        count = self._moves.partitions
        for pod in pods:
            partitions = [number for number in range(count) if self._leaders.get(number, pod) == pod]
            if pod not in self._calls and (partitions or not count):
                call = asyncio.get_running_loop().create_task(self._call(session, pod, partitions))
                self._calls[pod] = call
                call.add_done_callback(partial(self._called, pod))

    def _called(self, pod: Address, _: asyncio.Task[None]) -> None:
        del self._calls[pod]

    async def _call(self, session: aiohttp.ClientSession, pod: Address, partitions: Sequence[int]) -> None:
        try:
            answer = await self._ask(session, pod, partitions)
        except CallFailedError as error:
            if pod not in self._failing:
                logger.warning("no_leases", pod=_text(pod), error=str(error))
            self._failing.add(pod)
            self._forget(pod, partitions)
            return
        if pod in self._failing:
            logger.info("leases_again", pod=_text(pod))
            self._failing.discard(pod)
        self._take(pod, partitions, answer)

    async def _ask(self, session: aiohttp.ClientSession, pod: Address, partitions: Iterable[int]) -> LeasesAnswer:
        """Raises CallFailedError."""
        moves = self._moves
        asks = tuple([_ask_of(partition, moves.ask(partition)) for partition in partitions])
        body = msgspec.json.encode(LeasesRequest(moves.gateway, moves.prefixes, asks))
        url = f"{self._scheme}://{_text(pod)}/v1/leases"
        secured = self._tls.context if self._tls is not None else True
        try:
            async with asyncio.timeout(CALL_S), session.post(url, data=body, ssl=secured) as response:
                content = await response.read()
            if response.status != 200:
                raise CallFailedError(_refusal(response.status, content))
            answer = msgspec.json.decode(content, type=LeasesAnswer)
        except TimeoutError:
            raise CallFailedError("no answer in time") from None
        except (aiohttp.ClientError, OSError, msgspec.MsgspecError) as error:
            raise CallFailedError(str(error) or type(error).__name__) from None
        if answer.partitions and not moves.learn_partitions(answer.partitions):
            wrong = f"{answer.partitions} partitions instead of {moves.partitions}: restart the gateway if that is true"
            raise CallFailedError(wrong)
        return answer

    def _take(self, pod: Address, asked: Sequence[int], answer: LeasesAnswer) -> None:
        self._moves.learn_movable(answer.movable)
        self._interval_s = max(answer.lease_ms // ROUNDS_OF_A_LEASE, SHORTEST_INTERVAL_MS) / 1000
        led, is_fenced_now = set[int](), False
        for each in answer.answers:
            if 0 <= each.partition < self._moves.partitions:
                led.add(each.partition)
                self._leaders[each.partition] = pod
                is_fenced_now |= self._moves.take(each.partition, _answer_of(each))
        self._forget(pod, [partition for partition in asked if partition not in led])
        if is_fenced_now or not asked:
            self._soon.set()  # the fence waits for the gateway's word; or now it is known what to ask for
        self._moves.look()
        self._say()

    def _forget(self, pod: Address, partitions: Iterable[int]) -> None:
        """The pod does not lead these, or does not answer."""
        for partition in partitions:
            if self._leaders.get(partition) == pod:
                del self._leaders[partition]

    def _say(self) -> None:
        moves = self._moves
        held = moves.held
        complete = 0 < moves.partitions == held
        if complete != self._complete:
            self._complete = complete
            tell = logger.info if complete else logger.warning
            tell("leases_complete" if complete else "leases_missing", held=held, partitions=moves.partitions)


def _ask_of(partition: int, request: LeaseRequest) -> LeaseAsk:
    return LeaseAsk(partition, request.number, request.leader_epoch, request.drained)


def _answer_of(lease: PartitionLease) -> LeaseAnswer:
    routes = tuple([Route(each.group_id, each.epoch, each.at_muster) for each in lease.routes])
    fences = tuple([Fence(each.group_id, each.number) for each in lease.fences])
    return LeaseAnswer(lease.number, lease.leader_epoch, lease.lease_ms, routes, fences)


def _text(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _refusal(status: int, content: bytes) -> str:
    try:
        problem = msgspec.json.decode(content, type=Problem)
    except msgspec.MsgspecError:
        return f"HTTP {status}"
    return f"HTTP {status} {problem.reason}: {problem.message}"
