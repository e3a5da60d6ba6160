"""Files of ACLs: read, refused with the place of the mistake, and read again when they change."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from muster_coordinator.security import watched_file
from muster_coordinator.security.acl_file import parse_acls
from muster_coordinator.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from muster_coordinator.security.watched_file import SecurityFileError, WatchedFile

ENTRY = {"principal": "User:alice", "operation": "READ", "resource": "GROUP", "name": "billing"}


def content(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"acls": entries}).encode()


def test_entry_with_and_without_defaults() -> None:
    more = {"pattern": "PREFIXED", "permission": "DENY", "host": "0:0:0:0:0:0:0:1", "operation": "ALL"}
    assert parse_acls(content(ENTRY, ENTRY | more)) == (
        Acl(ResourceType.GROUP, PatternType.LITERAL, "billing", "User:alice", "*", Operation.READ, Permission.ALLOW),
        Acl(ResourceType.GROUP, PatternType.PREFIXED, "billing", "User:alice", "::1", Operation.ALL, Permission.DENY),
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"operation": "REED"}, r"acls\[1\]\.operation 'REED': one of ALL, READ"),
        ({"operation": "WRITE"}, r"no such operation on a GROUP"),
        ({"resource": "USER"}, r"acls\[1\]\.resource 'USER': one of TOPIC"),
        ({"pattern": "MATCH"}, r"acls\[1\]\.pattern"),
        ({"permission": "MAYBE"}, r"acls\[1\]\.permission 'MAYBE': one of DENY, ALLOW"),
        ({"principal": "alice"}, r"acls\[1\]\.principal 'alice': write User:<name>"),
        ({"principal": "User:"}, r"write User:<name>"),
        ({"host": "localhost"}, r"acls\[1\]\.host 'localhost': write an IP address"),
        ({"name": ""}, r"acls\[1\]\.name is empty"),
        ({"resource": "CLUSTER", "operation": "ALTER"}, r"kafka-cluster"),
        ({"grant": True}, r"unknown field `grant`"),
        ({"name": 5}, r"acls\[1\]\.name"),
    ],
)
def test_mistake_is_named_with_its_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_acls(content(ENTRY, ENTRY | change))


@pytest.mark.parametrize("bad", [b"", b"{", b"[]", b'{"acls": 1}', b"\xff\xfe", b'{"acl": []}'])
def test_what_is_no_file_of_acls_is_refused(bad: bytes) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_acls(bad)


def parse(content: bytes) -> int:
    return int(content)


def write(path: Path, text: str) -> None:
    """As Kubernetes does: another file takes the place of this one."""
    new = path.with_name("new")
    new.write_text(text)
    os.replace(new, path)


def test_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "number"
    write(path, "1")
    watched = WatchedFile(path, parse)
    assert (watched.value, watched.look()) == (1, False)
    write(path, "2")
    assert (watched.look(), watched.value, watched.look()) == (True, 2, False)


def test_bad_change_leaves_what_was_and_the_next_good_one_counts(tmp_path: Path) -> None:
    path = tmp_path / "number"
    write(path, "1")
    watched = WatchedFile(path, parse)
    for bad in ("two", ""):
        write(path, bad)
        assert (watched.look(), watched.value) == (False, 1)
    path.unlink()
    assert (watched.look(), watched.value) == (False, 1)
    write(path, "3")
    assert (watched.look(), watched.value) == (True, 3)


def test_start_without_a_good_file_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "number"
    with pytest.raises(SecurityFileError, match=r"number: No such file"):
        WatchedFile(path, parse)
    write(path, "two")
    with pytest.raises(SecurityFileError, match=r"number: invalid literal"):
        WatchedFile(path, parse)
    monkeypatch.setattr(watched_file, "MAX_BYTES", 2)
    write(path, "222")
    with pytest.raises(SecurityFileError, match="more than 2 bytes"):
        WatchedFile(path, parse)
