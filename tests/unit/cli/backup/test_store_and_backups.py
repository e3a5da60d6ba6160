"""Manifest, catalog, verify and prune over a store in a directory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster_cli.backup.addresses import open_store
from muster_cli.backup.catalog import read_catalog
from muster_cli.backup.manifest import (
    Backup,
    Layout,
    ManifestError,
    PartitionCut,
    SegmentFile,
    decode_manifest,
    encode_manifest,
)
from muster_cli.backup.prune import DAY_MS, prune
from muster_cli.backup.store import DirectoryStore, MissingError, StoreError
from muster_cli.backup.verify import Verified, verify
from muster_cli.errors import CliError

NOW_MS = 1_800_000_000_000
CONTENTS = (b"first" * 100, b"second" * 50, b"third" * 10)


def quiet(_what: str, _done: int, _total: int) -> None:
    """Progress that nobody sees."""


def segment(content: bytes, base_offset: int = 0) -> SegmentFile:
    digest = hashlib.sha256(content).hexdigest()
    return SegmentFile(base_offset, len(content), base_offset + 10, digest, digest)


def backup_of(number: int, contents: tuple[bytes, ...], age_days: float = 0) -> Backup:
    cuts = tuple(
        PartitionCut(index, "a" * 32, 10, 3, ((3, 0),), (segment(content),)) for index, content in enumerate(contents)
    )
    taken_at_ms = NOW_MS - int(age_days * DAY_MS)
    return Backup(
        f"20270115T08000{number}Z-00000{number}", taken_at_ms, "1", "c", 1, Layout(0, len(cuts), 500_000, 0), cuts
    )


def put(store: DirectoryStore, backup: Backup, contents: tuple[bytes, ...]) -> None:
    for content in contents:
        store.write(segment(content).name, content)
    store.write(backup.name, encode_manifest(backup))


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "store")


def verified(store: DirectoryStore) -> Verified:
    catalog = read_catalog(store)
    return verify(store, catalog, catalog.backups, quiet)


def told(store: DirectoryStore) -> list[str]:
    return [str(each) for each in verified(store).problems]


def test_manifest_comes_back_as_it_was_and_no_changed_one_does() -> None:
    backup = backup_of(1, CONTENTS)
    data = encode_manifest(backup)
    assert decode_manifest(data) == backup
    for position in range(0, len(data) - 1, 7):
        flipped = bytearray(data)
        flipped[position] ^= 1
        with pytest.raises(ManifestError):
            decode_manifest(bytes(flipped))
    with pytest.raises(ManifestError, match="later version"):
        decode_manifest(encode_manifest(replace(backup, format=2)))


def test_files_of_a_directory_are_whole_or_not_there(store: DirectoryStore, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(b"x" * 3_000_000)
    store.write("segments/a", big)
    store.write("segments/a", b"short")
    assert (b"".join(store.read("segments/a")), store.files()["segments/a"].size) == (b"short", 5)
    with pytest.raises(MissingError, match="segments/b"):
        b"".join(store.read("segments/b"))
    with pytest.raises(StoreError, match="cannot write"):
        store.write("segments/a/b", b"below a file")
    store.delete("segments/a")
    store.delete("segments/a")
    assert store.files() == {}


def test_part_of_an_interrupted_write_is_no_file_and_goes_when_it_is_old(store: DirectoryStore, tmp_path: Path) -> None:
    store.write("segments/a", b"x")
    part = tmp_path / "store" / "segments" / "b.12345678.part"
    part.write_bytes(b"half")
    assert list(store.files()) == ["segments/a"]
    store.drop_unfinished(int(part.stat().st_mtime * 1000) - 10_000)
    assert part.exists()
    store.drop_unfinished(int(part.stat().st_mtime * 1000) + 10_000)
    assert not part.exists()
    assert list(store.files()) == ["segments/a"]


def test_address_of_another_scheme_is_refused() -> None:
    with pytest.raises(CliError, match="gs://bucket: stores are directories"):
        open_store("gs://bucket")


def test_whole_store_has_no_problem(store: DirectoryStore) -> None:
    put(store, backup_of(1, CONTENTS[:2]), CONTENTS[:2])
    put(store, backup_of(2, CONTENTS), CONTENTS)
    store.write(segment(b"left over").name, b"left over")
    found = verified(store)
    assert (found.backups, found.files, found.unnamed, found.problems) == (2, 3, 1, ())
    assert found.size == sum(map(len, CONTENTS))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("harm", "what"),
    [
        (flip, "its content has changed"),
        (Path.unlink, "missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "it has 499 bytes, not 500"),
    ],
)
def test_harm_to_a_segment_is_named_with_the_backups_that_need_it(
    store: DirectoryStore, tmp_path: Path, harm: Callable[[Path], object], what: str
) -> None:
    first, second = backup_of(1, CONTENTS[:2]), backup_of(2, CONTENTS)
    put(store, first, CONTENTS[:2])
    put(store, second, CONTENTS)
    harm(tmp_path / "store" / segment(CONTENTS[0]).name)
    (problem,) = told(store)
    assert problem.startswith(f"{segment(CONTENTS[0]).name}: {what}")
    assert problem.endswith(f"(needed by {first.id}, {second.id})")


@pytest.mark.parametrize("name", ["segments/copy", "segments/" + "0" * 63 + "g", "copy of a segment"])
def test_double_is_named_with_its_original(store: DirectoryStore, name: str) -> None:
    put(store, backup_of(1, CONTENTS), CONTENTS)
    store.write(name, CONTENTS[1])
    assert told(store) == [f"{name}: a double of {segment(CONTENTS[1]).name}"]


def test_file_of_unknown_origin_and_manifest_that_cannot_be_read_are_named(store: DirectoryStore) -> None:
    backup = backup_of(1, CONTENTS)
    put(store, backup, CONTENTS)
    store.write("segments/readme", b"?")
    store.write("backups/20270115T080009Z-000009.json", encode_manifest(backup))
    store.write("backups/20270115T080008Z-000008.json", b"{}")
    assert told(store) == [
        "backups/20270115T080008Z-000008.json: it is no manifest: Object missing required field `sha256`",
        f"backups/20270115T080009Z-000009.json: it is the manifest of {backup.id}",
        "segments/readme: of no backup: nothing says where it comes from",
    ]
    with pytest.raises(CliError, match="000009"):
        read_catalog(store).find("latest")
    assert read_catalog(store).find(backup.id) == backup


def test_manifest_that_has_a_partition_or_a_segment_twice_is_named(store: DirectoryStore) -> None:
    backup = backup_of(1, CONTENTS)
    twice = replace(backup.partitions[0], segments=backup.partitions[0].segments * 2)
    put(store, replace(backup, partitions=(twice, *backup.partitions[:2])), CONTENTS)
    assert [each.partition(": ")[2].partition(" (")[0] for each in told(store)] == [
        "it does not have each partition once",
        "__consumer_offsets-0 has a segment twice",
    ]


def age(tmp_path: Path, name: str, days: float) -> None:
    seconds = NOW_MS / 1000 - days * 86_400
    os.utime(tmp_path / "store" / name, (seconds, seconds))


def test_prune_keeps_the_newest_and_the_young_and_frees_segments_a_day_later(
    store: DirectoryStore, tmp_path: Path
) -> None:
    backups = [backup_of(number, (CONTENTS[number],), age_days=4 - number) for number in range(3)]
    for backup, content in zip(backups, CONTENTS, strict=True):
        put(store, backup, (content,))
        age(tmp_path, segment(content).name, 9)

    would = prune(store, read_catalog(store), 1, 2.5, NOW_MS, dry_run=True)
    assert (would.dropped, would.removed) == ((backups[0].id, backups[1].id), 0)
    assert len(read_catalog(store).backups) == 3
    done = prune(store, read_catalog(store), 1, 3.5, NOW_MS, dry_run=False)
    assert (done.dropped, done.kept, done.removed) == ((backups[0].id,), (backups[1].id, backups[2].id), 0)
    dropped = f"dropped/{backups[0].id}.json"
    age(tmp_path, dropped, 0.9)
    assert prune(store, read_catalog(store), 3, 0, NOW_MS, dry_run=False).removed == 0
    age(tmp_path, dropped, 1.1)
    gone = prune(store, read_catalog(store), 3, 0, NOW_MS, dry_run=False)
    assert (gone.removed, gone.freed) == (1, len(CONTENTS[0]))
    assert told(store) == []
    assert sorted(store.files()) == sorted(
        [*(each.name for each in backups[1:]), *(segment(content).name for content in CONTENTS[1:])]
    )


def test_prune_leaves_what_a_run_of_create_has_just_written(store: DirectoryStore, tmp_path: Path) -> None:
    put(store, backup_of(1, CONTENTS[:1]), CONTENTS[:1])
    store.write(segment(CONTENTS[1]).name, CONTENTS[1])
    age(tmp_path, segment(CONTENTS[1]).name, 0.5)
    assert prune(store, read_catalog(store), 1, 0, NOW_MS, dry_run=False).removed == 0
    age(tmp_path, segment(CONTENTS[1]).name, 1.5)
    assert prune(store, read_catalog(store), 1, 0, NOW_MS, dry_run=False).removed == 1


def test_prune_does_nothing_while_a_manifest_cannot_be_read(store: DirectoryStore) -> None:
    put(store, backup_of(1, CONTENTS), CONTENTS)
    put(store, backup_of(2, CONTENTS), CONTENTS)
    store.write("backups/20270115T080008Z-000008.json", b"{}")
    with pytest.raises(CliError, match="Nothing was pruned"):
        prune(store, read_catalog(store), 1, 0, NOW_MS, dry_run=False)
    assert len(read_catalog(store).backups) == 2
