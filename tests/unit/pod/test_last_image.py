"""The last image survives a restart, and never keeps a pod from starting."""

from __future__ import annotations

import errno
from pathlib import Path

import msgspec
import pytest
from tests.support.peers import image

from muster_coordinator.log.disk import OsDisk
from muster_coordinator.pod.last_image import NAME, LastImage
from muster_coordinator.podapi.image import PartitionLeader


async def test_last_of_many_images_is_found_by_the_next_run(tmp_path: Path) -> None:
    kept = LastImage(OsDisk(), tmp_path)
    assert kept.load() is None
    for version in range(1, 20):
        kept.keep(image({"a": "host-a:1", "b": f"host-b:{version}"}, version))
    await kept.close()
    found = LastImage(OsDisk(), tmp_path).load()
    assert found is not None
    assert [(p.pod, p.host, p.port) for p in found.peers] == [("a", "host-a", 1), ("b", "host-b", 19)]
    assert [p.pod for p in found.places] == ["a", "b"]


async def test_image_in_which_only_leaders_differ_is_not_written_again(tmp_path: Path) -> None:
    kept = LastImage(OsDisk(), tmp_path)
    first = image({"a": "host-a:1"})
    kept.keep(first)
    await kept.close()
    (tmp_path / NAME).unlink()
    kept.keep(msgspec.structs.replace(first, version=9, leaders=(PartitionLeader(0, 1, 5),)))
    await kept.close()
    assert not (tmp_path / NAME).exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"token": 1}', b"\x00" * 100])
def test_unreadable_file_counts_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    assert LastImage(OsDisk(), tmp_path).load() is None


class FullDisk(OsDisk):
    def __init__(self) -> None:
        super().__init__()
        self.full = True

    def rename(self, source: Path, target: Path) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "no space left")
        super().rename(source, target)


async def test_full_disk_keeps_the_image_before_and_the_next_one_is_written(tmp_path: Path) -> None:
    disk = FullDisk()
    kept = LastImage(disk, tmp_path)
    kept.keep(image({"a": "host-a:1"}))
    await kept.close()
    assert kept.load() is None
    disk.full = False
    kept.keep(image({"a": "host-a:2"}))
    await kept.close()
    found = kept.load()
    assert found is not None
    assert found.peers[0].port == 2
