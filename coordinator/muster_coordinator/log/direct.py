"""Durable writes past the page cache, from the front of a file to its end.

Why: another process's sync can write back what is in the page cache, which the kernel throttles (blk-wbt), and our own
sync then waits for that. When a container ends, the unmount of its overlay syncs the whole file system. Journal writes
of all other pods on the disk waited 20 to 45 ms for a page of theirs (ADR 15).

O_DIRECT takes whole blocks from memory that is aligned to them. The block in which the last write ended is kept here
and written again with the next one, with the same bytes in front: nothing that is durable changes, as it would not in
the page cache, which writes whole pages too.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Sequence

BLOCK_BYTES = 4096
"""A multiple of the logical block of every disk in use; of one that wants more, writes go through the page cache."""
BUFFER_BYTES = 256 << 10
"""The most that one system call writes."""


class DirectWriter:
    """Writes one descriptor, which no other code uses. Where the file system has no O_DIRECT, the same through the page
    cache. Not for several threads at a time.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._view = memoryview(mmap.mmap(-1, BUFFER_BYTES))  # begins at a page
        self._start = 0  # where the buffer's first byte is in the file, a multiple of BLOCK_BYTES
        self._kept = -1  # bytes from there on that the file has; -1: not known
        self._set_direct(True)

    def write(self, buffers: Sequence[bytes], position: int) -> int:
        """Returns how many bytes were written, possibly not all; these are on stable storage. The rest of their last
        block is zeros then. Raises OSError; any part of it may have been written."""
        if self._kept < 0 or position != self._start + self._kept:
            self._load(position)
        data, kept = b"".join(buffers), self._kept
        end = min(kept + len(data), BUFFER_BYTES)
        whole = -(-end // BLOCK_BYTES) * BLOCK_BYTES
        self._view[kept:end] = data[: end - kept]
        self._view[end:whole] = bytes(whole - end)
        self._kept = -1
        blocks = self._view[:whole]
        taken = self._through_cache_if_refused(
            lambda: os.pwritev(self._descriptor, (blocks,), self._start, os.RWF_DSYNC)
        )
        written = min(taken, end)
        if written <= kept:
            return 0
        front = written // BLOCK_BYTES * BLOCK_BYTES
        self._view[: written - front] = bytes(self._view[front:written])
        self._start += front
        self._kept = written - front
        return written - kept

    def _load(self, position: int) -> None:
        """The block in which `position` is. Only what stands in front of that is needed."""
        self._start = position // BLOCK_BYTES * BLOCK_BYTES
        block = self._view[:BLOCK_BYTES]
        block[:] = bytes(BLOCK_BYTES)
        if position > self._start:
            self._through_cache_if_refused(lambda: os.preadv(self._descriptor, (block,), self._start))
        self._kept = position - self._start

    def _through_cache_if_refused(self, call: Callable[[], int]) -> int:
        """Calls once more without O_DIRECT, if that is what the file system does not take."""
        try:
            return call()
        except OSError as exc:
            if exc.errno != errno.EINVAL:
                raise
            self._set_direct(False)
            return call()

    def _set_direct(self, value: bool) -> None:
        """A file system that does not have it is left alone."""
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL) & ~os.O_DIRECT
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags | (os.O_DIRECT if value else 0))
        except OSError as exc:
            if exc.errno != errno.EINVAL:
                raise
