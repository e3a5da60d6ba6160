"""The last metadata image, kept in the data directory. After a restart without an operator, pods find one another with
it, and clients find the pods.

The file is `<data>/last-image.json`, and each image replaces it as a whole. The leaders in it are out of date and not
used.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import structlog

from muster_coordinator.log.disk import Disk, read_whole_file, replace_file
from muster_coordinator.podapi.image import MetadataImage

logger = structlog.get_logger(__name__)

NAME = "last-image.json"


class LastImage:
    """`keep` on the event loop only; it writes in a thread, the newest image at the end."""

    def __init__(self, disk: Disk, data_dir: Path) -> None:
        self._disk = disk
        self._data_dir = data_dir
        self._kept: MetadataImage | None = None  # without what changes all the time
        self._next: MetadataImage | None = None
        self._writing: asyncio.Task[None] | None = None

    def load(self) -> MetadataImage | None:
        """Returns None if there is none that can be read: the operator's next one takes its place."""
        path = self._data_dir / NAME
        try:
            return msgspec.json.decode(read_whole_file(self._disk, path), type=MetadataImage)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            logger.warning("last_image_ignored", path=str(path), error=str(error))
            return None

    def keep(self, image: MetadataImage) -> None:
        """Have `image` written, unless only leaders differ from what was kept last."""
        self._next = msgspec.structs.replace(image, leaders=(), version=0)
        if self._writing is None and self._next != self._kept:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def close(self) -> None:
        """Wait for what is being written."""
        if self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        while self._next is not None and self._next != self._kept:
            image = self._next
            try:
                await asyncio.to_thread(self._replace, msgspec.json.encode(image))
            except OSError as error:  # as when the disk is full: the one before stays
                logger.warning("last_image_not_kept", error=str(error))
                break
            self._kept = image
        self._writing = None

    def _replace(self, data: bytes) -> None:
        replace_file(self._disk, self._data_dir / NAME, data)
        self._disk.fsync_dir(self._data_dir)
