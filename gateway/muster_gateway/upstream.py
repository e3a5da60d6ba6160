"""The gateway's own questions to the Kafka cluster: which brokers there are, and what they announce."""

from __future__ import annotations

import asyncio
import random

import structlog

from muster_coordinator.errors import ErrorCode
from muster_coordinator.outgoing.connector import Connector
from muster_coordinator.outgoing.login import LoginError
from muster_coordinator.wire.codec import Writer
from muster_coordinator.wire.framing import encode_request_frame
from muster_coordinator.wire.k03_metadata import API as METADATA_API
from muster_coordinator.wire.k18_api_versions import API as API_VERSIONS_API
from muster_gateway import apis
from muster_gateway.caller import Address, Caller, ConnectionLostError
from muster_gateway.errors import UpstreamError
from muster_gateway.nodes import Nodes
from muster_gateway.rewriting import Announced, BrokersAnswer, read_api_versions, read_brokers

logger = structlog.get_logger(__name__)

CLIENT_ID = "muster-gateway"
REFRESH_S = 2.0
"""The interval of looks for brokers and pods, unless a client's Metadata shows them before."""
AGAIN_S = 0.2
"""Pause after brokers or pods could not be asked."""
ANSWER_S = 5.0
"""Longest wait for an answer to what the gateway itself asks: a broker that is stuck is given up for another."""

_METADATA_VERSION = 4  # of the oldest that Kafka 4 has; not flexible
_API_VERSIONS_VERSIONS = (4, 3)  # both flexible
_CORRELATION_BYTES = 4
_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


class Upstream:
    """`run` keeps `nodes` and `announced` up to date."""

    def __init__(self, connector: Connector, bootstrap: tuple[Address, ...], nodes: Nodes, limit: int) -> None:
        self.announced: Announced | None = None
        self.failing = False
        """True if no broker answered when one was asked last."""
        self._connector = connector
        self._bootstrap = bootstrap
        self._nodes = nodes
        self._limit = limit
        self._first = asyncio.Event()

    async def known(self) -> None:
        """Wait until the brokers were found once."""
        await self._first.wait()

    def addresses(self) -> list[Address]:
        """Brokers, in the order in which to try them: spread over all that are known, then those of the settings."""
        known = self._nodes.brokers
        random.shuffle(known)
        return known + [each for each in self._bootstrap if each not in known]

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            pause_s = AGAIN_S
            try:
                caller = await self._connect()
                try:
                    await self._follow(caller)
                finally:
                    caller.close()
            except (OSError, TimeoutError, ConnectionLostError, UpstreamError) as error:
                if not self.failing:
                    logger.warning("upstream_not_reachable", error=str(error) or type(error).__name__)
                self.failing = True
                # Brokers would take a login that they refuse five times a second for an attack.
                pause_s = REFRESH_S if isinstance(error, LoginError) else AGAIN_S
            await asyncio.sleep(pause_s)

    async def _connect(self) -> Caller:
        last: Exception = OSError("no broker is known")
        for address in self.addresses():
            try:
                return await Caller.connect(self._connector, address, self._limit)
            except (OSError, TimeoutError) as error:
                kind = LoginError if isinstance(error, LoginError) else OSError
                last = kind(f"{address[0]}:{address[1]}: {error or 'no connection in time'}")
        raise last

    async def _follow(self, caller: Caller) -> None:
        self.announced = await _ask_versions(caller)
        while not caller.lost:
            answer = await ask_brokers(caller)
            self.failing = False  # a broker that hangs takes connections
            if not self._nodes.learn_brokers(answer.brokers):
                await self._nodes.tell_brokers(answer.brokers)
            if answer.brokers:
                self._first.set()
            await asyncio.sleep(REFRESH_S)


async def ask(caller: Caller, frame: bytes) -> bytes:
    """Raises ConnectionLostError, also when no answer comes in time."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await caller.call(frame)
    except TimeoutError:
        caller.close("no answer in time")
        raise ConnectionLostError("no answer in time") from None


async def ask_brokers(caller: Caller) -> BrokersAnswer:
    """The nodes of the cluster, of Kafka or Muster. Raises ConnectionLostError, UpstreamError."""
    writer = Writer(False)
    writer.int32(0)  # no topics
    writer.boolean(False)
    frame = encode_request_frame(METADATA_API, _METADATA_VERSION, 2, CLIENT_ID, writer.so_far())
    return read_brokers(apis.METADATA, _METADATA_VERSION, await ask(caller, frame))


async def _ask_versions(caller: Caller) -> Announced:
    """Ask what a broker announces to clients of the newest version: to others it shows no feature whose lowest level
    is 0 (KIP-1022)."""
    for version in _API_VERSIONS_VERSIONS:
        writer = Writer(True)
        writer.string(CLIENT_ID)
        writer.string("1")
        request = encode_request_frame(API_VERSIONS_API, version, 1, CLIENT_ID, writer.done())
        frame = await ask(caller, request)
        if frame[_CORRELATION_BYTES : _CORRELATION_BYTES + 2] == _UNSUPPORTED_VERSION:
            continue  # answered in version 0, by an older broker
        announced = read_api_versions(version, frame)
        if announced.error_code:
            raise UpstreamError(f"ApiVersions: error {announced.error_code}")
        return announced
    raise UpstreamError(f"the broker has none of the versions {_API_VERSIONS_VERSIONS} of ApiVersions")
