"""`muster local user`: the file that pods read, without the password in it."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muster_cli.local.command import local
from muster_cli.local.options import parse_settings, sasl_settings
from muster_coordinator.security.plain import PlainServer
from muster_coordinator.security.quotas import NO_QUOTAS, Quotas
from muster_coordinator.security.sasl import SaslError
from muster_coordinator.security.users import parse_users


def user(*arguments: str, password: str = "") -> Result:
    return CliRunner().invoke(local, ["user", *arguments], input=f"{password}\n" if password else None)


def logs_in(path: Path, name: str, password: str) -> bool:
    try:
        users = parse_users(path.read_bytes())
        PlainServer(users.any, lambda name: users.work_for(0)).step(f"\0{name}\0{password}".encode())()
    except SaslError:
        return False
    return True


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users.json"


def test_users_are_added_changed_and_removed(path: Path) -> None:
    for name, password in (("alice", "pencil"), ("bob", "builder"), ("alice", "crayon")):
        done = user(str(path), name, password=password)
        assert done.exit_code == 0, done.output
        assert password not in done.output + path.read_text()
    assert [logs_in(path, "alice", password) for password in ("crayon", "pencil")] == [True, False]
    assert logs_in(path, "bob", "builder")
    assert parse_users(path.read_bytes()).scram("bob", "SCRAM-SHA-256") is not None
    assert user(str(path), "bob", "--remove").exit_code == 0
    assert not logs_in(path, "bob", "builder")
    assert logs_in(path, "alice", "crayon")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_quotas_of_others_stay_when_users_come_and_go(path: Path) -> None:
    for name in ("alice", "bob"):
        user(str(path), name, password="pencil")
    file = json.loads(path.read_text())
    path.write_text(json.dumps(file | {"quotas": {"alice": {"requestRate": 100}, "bob": {"connections": 2}}}))
    user(str(path), "carol", password="crayon")
    user(str(path), "bob", "--remove")
    users = parse_users(path.read_bytes())
    assert (users.quotas("alice"), users.quotas("bob")) == (Quotas(request_rate=100), NO_QUOTAS)
    assert logs_in(path, "carol", "crayon")


def test_what_cannot_be_done_is_said(path: Path) -> None:
    gone = user(str(path), "bob", "--remove")
    assert (gone.exit_code, "No such file" in gone.output) == (1, True)
    empty = user(str(path), "alice", password="")
    assert (empty.exit_code, "the password is empty" in empty.output) == (1, True)
    user(str(path), "alice", password="pencil")
    nobody = user(str(path), "bob", "--remove")
    assert (nobody.exit_code, "has no user 'bob'" in nobody.output) == (1, True)
    path.write_text('{"users": {"alice": {}}}')
    broken = user(str(path), "bob", password="builder")
    assert (broken.exit_code, "'alice' has no credentials" in broken.output) == (1, True)


def test_sasl_stands_for_two_settings(path: Path) -> None:
    user(str(path), "alice", password="pencil")
    parsed = parse_settings(sasl_settings(path))
    assert parsed == {"sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512", "muster.users.file": str(path)}
    assert sasl_settings(None) == []
