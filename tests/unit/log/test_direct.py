"""Writes past the page cache: the same bytes in the file, whatever the sizes, and without O_DIRECT too."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from muster_coordinator.log import direct as module
from muster_coordinator.log.direct import BLOCK_BYTES, BUFFER_BYTES
from muster_coordinator.log.disk import OsDisk, read_whole_file, write_fully_durably

SIZE = 3 * BUFFER_BYTES
OLD = b"\xff"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Filled with what an earlier use left."""
    path = tmp_path / "file"
    path.write_bytes(OLD * SIZE)
    return path


def is_direct(descriptor: int) -> bool:
    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)


def write_all(path: Path, pieces: Sequence[bytes], start: int = 0, reopen_every: int = 1 << 30) -> int:
    """Returns where the last piece ends."""
    disk = OsDisk()
    descriptor = disk.open(path, direct=True)
    position = start
    for number, piece in enumerate(pieces, start=1):
        write_fully_durably(disk, descriptor, piece, position)
        position += len(piece)
        if number % reopen_every == 0:
            disk.close(descriptor)
            descriptor = disk.open(path, direct=True)
    disk.close(descriptor)
    return position


def check(path: Path, expected: bytes, start: int = 0) -> None:
    """`expected` from `start` on, zeros to the end of the block, and then what was there before."""
    content, end = read_whole_file(OsDisk(), path), start + len(expected)
    whole = -(-end // BLOCK_BYTES) * BLOCK_BYTES
    assert content[:start] == OLD * start
    assert content[start:end] == expected
    assert content[end:whole] == bytes(whole - end)
    assert content[whole:] == OLD * max(SIZE - whole, 0)


@pytest.mark.parametrize("reopen_every", [1, 3, 1 << 30])
@pytest.mark.parametrize("seed", range(4))
def test_pieces_of_any_size_stand_one_behind_the_other(file: Path, seed: int, reopen_every: int) -> None:
    random = Random(seed)
    sizes = [random.choice([1, 17, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES]) for _ in range(40)]
    pieces = [random.randbytes(random.randint(1, size)) for size in sizes]
    write_all(file, pieces, reopen_every=reopen_every)
    check(file, b"".join(pieces))


@pytest.mark.parametrize("size", [BUFFER_BYTES - 1, BUFFER_BYTES, BUFFER_BYTES + 1, 2 * BUFFER_BYTES + 7])
def test_piece_larger_than_the_buffer_is_written_in_parts(file: Path, size: int) -> None:
    pieces = [b"before", Random(size).randbytes(size), b"behind"]
    write_all(file, pieces)
    check(file, b"".join(pieces))


def test_what_stands_in_front_of_the_first_write_stays(file: Path) -> None:
    write_all(file, [b"first", b"second"], start=BLOCK_BYTES + 5)
    check(file, b"firstsecond", start=BLOCK_BYTES + 5)


def test_write_elsewhere_goes_where_it_should(file: Path) -> None:
    """As the last frame of a journal, which is written again when a pod starts."""
    disk = OsDisk()
    descriptor = disk.open(file, direct=True)
    write_fully_durably(disk, descriptor, b"a" * 5000, 0)
    write_fully_durably(disk, descriptor, b"b" * 10, 4990)
    write_fully_durably(disk, descriptor, b"c" * 10, 5000)
    disk.close(descriptor)
    check(file, b"a" * 4990 + b"b" * 10 + b"c" * 10)


def test_file_grows_by_whole_blocks(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    write_all(path, [b"x" * 100])
    assert read_whole_file(OsDisk(), path) == b"x" * 100 + bytes(BLOCK_BYTES - 100)


@pytest.mark.parametrize("refused", ["the flag", "the read", "the write"])
def test_file_system_without_it_is_written_through_the_page_cache(
    file: Path, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(real: Any, descriptor: int, *args: Any) -> Any:
        if is_direct(descriptor):
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(descriptor, *args)

    def set_flag(descriptor: int, command: int, flags: int = 0) -> Any:
        if command == fcntl.F_SETFL and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real_fcntl(descriptor, command, flags)

    real_fcntl, real_preadv, real_pwritev = fcntl.fcntl, os.preadv, os.pwritev
    if refused == "the flag":
        monkeypatch.setattr(module.fcntl, "fcntl", set_flag)
    elif refused == "the read":
        monkeypatch.setattr(module.os, "preadv", lambda *args: refuse(real_preadv, *args))
    else:
        monkeypatch.setattr(module.os, "pwritev", lambda *args: refuse(real_pwritev, *args))
    pieces = [b"one", b"two" * 3000, b"three"]
    write_all(file, pieces)
    check(file, b"".join(pieces))


def test_error_of_the_disk_is_raised_and_the_file_can_be_written_again(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk()
    descriptor = disk.open(file, direct=True)
    write_fully_durably(disk, descriptor, b"a" * 5000, 0)

    def fail(*args: Any) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(module.os, "pwritev", fail)
        with pytest.raises(OSError, match="Input/output"):
            write_fully_durably(disk, descriptor, b"b" * 5000, 5000)
    write_fully_durably(disk, descriptor, b"c" * 10, 5000)
    disk.close(descriptor)
    check(file, b"a" * 5000 + b"c" * 10)


def test_short_write_is_carried_on(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev

    def short(descriptor: int, buffers: Sequence[memoryview], position: int, flags: int) -> int:
        return real(descriptor, (buffers[0][:BLOCK_BYTES],), position, flags)

    monkeypatch.setattr(module.os, "pwritev", short)
    pieces = [b"1" * 3000, b"2" * 3 * BLOCK_BYTES, b"3" * 100]
    write_all(file, pieces)
    check(file, b"".join(pieces))


def test_page_cache_keeps_nothing_that_is_not_on_the_disk(file: Path) -> None:
    """Somebody else's descriptor sees it at once, as a reader at the next start would."""
    disk = OsDisk()
    descriptor, other = disk.open(file, direct=True), os.open(file, os.O_RDONLY)
    try:
        for number in range(20):
            os.pread(other, 4, number * 4)  # the page is in the cache
            write_fully_durably(disk, descriptor, b"%04d" % number, number * 4)
            assert os.pread(other, 4, number * 4) == b"%04d" % number
    finally:
        os.close(other)
        disk.close(descriptor)
