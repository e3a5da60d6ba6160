"""The keys that sign tokens of OAUTHBEARER, from where the identity provider publishes them, read again and again.

Source: org.apache.kafka.common.security.oauthbearer.internals.secured.RefreshingHttpsJwks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp
import structlog

from muster_coordinator.security.jwks import NO_KEYS, KeySet
from muster_coordinator.security.watched_file import MAX_BYTES

logger = structlog.get_logger(__name__)


class PublishedKeys:
    """`value` is what was read last: while the provider cannot be reached, those keys count on."""

    def __init__(self, url: str, parse: Callable[[bytes], KeySet], refresh_s: float, pause_s: float) -> None:
        """`refresh_s`: how old they become. `pause_s`: between two attempts, and the longest attempt."""
        self.value = NO_KEYS
        self._url = url
        self._parse = parse
        self._refresh_s = refresh_s
        self._pause_s = pause_s
        self._wanted = asyncio.Event()
        self._tried = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<PublishedKeys {self._url}>"

    def want(self) -> None:
        """There may be newer ones: a token names a key that is unknown."""
        self._wanted.set()

    async def start(self) -> None:
        """Returns after the first attempt: without keys nobody could log in."""
        self._reading = asyncio.create_task(self._keep_reading())
        await self._tried.wait()

    async def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def _keep_reading(self) -> None:
        timeout = aiohttp.ClientTimeout(total=self._pause_s)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                self._wanted.clear()
                good = await self._read(session)
                self._tried.set()
                await asyncio.sleep(self._pause_s)
                if good:
                    try:
                        await asyncio.wait_for(self._wanted.wait(), self._refresh_s)
                    except TimeoutError:
                        pass

    async def _read(self, session: aiohttp.ClientSession) -> bool:
        try:
            self.value = self._parse(await self._content(session))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            logger.error("token_keys_refused", url=self._url, error=str(error) or type(error).__name__)
            return False
        logger.info("token_keys_read", url=self._url)
        return True

    async def _content(self, session: aiohttp.ClientSession) -> bytes:
        content = bytearray()
        async with session.get(self._url, raise_for_status=True, allow_redirects=False) as response:
            async for chunk in response.content.iter_any():
                content += chunk
                if len(content) > MAX_BYTES:
                    raise ValueError(f"more than {MAX_BYTES} bytes")
        return bytes(content)
