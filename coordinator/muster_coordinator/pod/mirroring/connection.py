"""One connection to a broker of the upstream cluster; one request at a time."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import TypeVar, cast

from muster_coordinator.outgoing.connector import Connector
from muster_coordinator.wire import k01_fetch, k02_list_offsets, k03_metadata, k18_api_versions
from muster_coordinator.wire.api import Api
from muster_coordinator.wire.codec import Reader
from muster_coordinator.wire.errors import WireError
from muster_coordinator.wire.framing import encode_request_frame

CLIENT_ID = "muster-mirror"
ANSWER_BYTES_MAX = 16 << 20
"""A broker may send one batch that is larger than what was asked for, at most `message.max.bytes`."""

NEEDED = (
    (k01_fetch.API, k01_fetch.RECORDS_VERSION),
    (k02_list_offsets.API, k02_list_offsets.MIRROR_VERSION),
    (k03_metadata.API, k03_metadata.MIRROR_VERSION),
)

_T = TypeVar("_T")


class UpstreamError(Exception):
    """The broker cannot be asked; the message says which, and why."""


class _Made(asyncio.StreamReaderProtocol):
    """Remembers its transport."""

    transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport = cast(asyncio.WriteTransport, transport)


class UpstreamConnection:
    def __init__(self, connector: Connector, host: str, port: int, timeout_s: float) -> None:
        """`timeout_s`: a broker that gives no answer within it loses its connection."""
        self._connector = connector
        self._timeout_s = timeout_s
        self._good_until_s: float | None = None  # of the event loop's clock; None: as long as it lasts
        self._address = (host, port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._asking = asyncio.Lock()
        self._correlation_id = 0
        self._served: dict[int, tuple[int, int]] = {}

    async def ask(self, api: Api, version: int, body: bytes, decode: Callable[[Reader], _T]) -> _T:
        """Returns the decoded answer. Raises UpstreamError, and then the next call opens a new connection."""
        try:
            async with self._asking, asyncio.timeout(self._timeout_s):
                if self._is_over():
                    self.close()
                if self._streams is None:
                    await self._open()
                return await self._ask(api, version, body, decode)
        except (OSError, EOFError, TimeoutError, WireError, IndexError, ValueError, struct.error) as error:
            self.close()
            host, port = self._address
            raise UpstreamError(f"broker {host}:{port}: {error or type(error).__name__}") from error
        except BaseException:
            self.close()  # an answer may be on its way
            raise

    def serves(self, api: Api, version: int) -> bool:
        """True if the broker serves this version, as it said when it was connected to last; before that it is not
        known."""
        lowest, highest = self._served.get(api.key, (0, -1))
        return lowest <= version <= highest

    def _is_over(self) -> bool:
        """True if the broker is about to ask again who we are (KIP-368): a new connection says so as well."""
        return self._good_until_s is not None and asyncio.get_running_loop().time() >= self._good_until_s

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(loop=loop)
        made = _Made(reader, loop=loop)
        protocol, lifetime_s = await self._connector.connect(made, self._address)
        self._good_until_s = None if lifetime_s is None else loop.time() + lifetime_s
        assert protocol.transport is not None
        self._streams = reader, asyncio.StreamWriter(protocol.transport, protocol, reader, loop)
        versions = await self._ask(k18_api_versions.API, 0, b"", k18_api_versions.decode_response)
        self._served = {key: (lowest, highest) for key, lowest, highest in versions}
        for api, version in NEEDED:
            if not self.serves(api, version):
                raise WireError(f"it does not serve {api.name} {version}; a mirror needs Kafka 3.1 or later")

    async def _ask(self, api: Api, version: int, body: bytes, decode: Callable[[Reader], _T]) -> _T:
        assert self._streams is not None
        reader, writer = self._streams
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        writer.write(encode_request_frame(api, version, self._correlation_id, CLIENT_ID, body))
        length = int.from_bytes(await reader.readexactly(4), "big", signed=True)
        if not 4 <= length <= ANSWER_BYTES_MAX:
            raise WireError(f"an answer of {length} bytes")
        frame = await reader.readexactly(length)
        correlation_id = int.from_bytes(frame[:4], "big")
        if correlation_id != self._correlation_id:
            raise WireError(f"answer {correlation_id} to request {self._correlation_id}")
        answer = Reader(frame, 4, api.flexible(version))
        answer.tagged_fields()  # of the header
        return decode(answer)

    def close(self) -> None:
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()
