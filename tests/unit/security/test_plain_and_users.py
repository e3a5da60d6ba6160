"""SASL/PLAIN over hashed passwords, and the file of users."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster_coordinator.security import plain
from muster_coordinator.security.plain import PlainServer
from muster_coordinator.security.quotas import NO_QUOTAS, Quotas
from muster_coordinator.security.sasl import SaslError
from muster_coordinator.security.scram import HASHES, ScramCredential, credential_of, write_credential
from muster_coordinator.security.users import Users, parse_mechanisms, parse_users

SALT = b"0123456789abcdef"
TEXTS = {mechanism: write_credential(credential_of(b"pencil", name, SALT, 4096)) for mechanism, name in HASHES.items()}


def content(users: Any) -> bytes:
    return json.dumps({"users": users}).encode()


USERS = parse_users(content({"alice": TEXTS, "bob": {"SCRAM-SHA-256": TEXTS["SCRAM-SHA-256"]}}))


def login(token: bytes, users: Users = USERS) -> tuple[str | None, str | None]:
    """(user, what a refused client is told)."""
    server = PlainServer(users.any, lambda name: users.work_for(len(name)))
    try:
        assert server.step(token)() == b""
    except SaslError as error:
        assert server.user is None
        return None, error.told
    return server.user, None


WRONG = "Authentication failed: Invalid username or password"


@pytest.mark.parametrize(
    ("token", "user", "told"),
    [
        (b"\0alice\0pencil", "alice", None),
        (b"alice\0alice\0pencil", "alice", None),
        (b"\0bob\0pencil", "bob", None),
        (b"\0alice\0pencils", None, WRONG),
        (b"\0nobody\0pencil", None, WRONG),
        (b"\0Alice\0pencil", None, WRONG),
        (b"bob\0alice\0pencil", None, "Authentication failed: Client requested an authorization id that is different"),
        (b"\0\0pencil", None, "Authentication failed: username not specified"),
        (b"\0alice\0", None, "Authentication failed: password not specified"),
        (b"", None, None),
        (b"alice\0pencil", None, None),
        (b"\0alice\0pencil\0", None, None),
        (b"\0\xff\0pencil", None, None),
    ],
)
def test_login(token: bytes, user: str | None, told: str | None) -> None:
    found, said = login(token)
    assert found == user
    assert (said is None) if told is None else (said or "").startswith(told)


def test_name_of_nobody_costs_the_same_as_one_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def cost(users: Users, name: str, drawn: int = 0) -> tuple[str, int]:
        hashed: list[tuple[str, int]] = []

        def count(password: bytes, hash_name: str, salt: bytes, iterations: int) -> ScramCredential:
            hashed.append((hash_name, iterations))
            return credential_of(password, hash_name, salt, iterations)

        monkeypatch.setattr(plain, "credential_of", count)
        with pytest.raises(SaslError, match="unknown user or wrong password"):
            PlainServer(users.any, lambda name: users.work_for(drawn)).step(f"\0{name}\0pen".encode())()
        [work] = hashed
        return work

    assert cost(USERS, "alice") == ("sha256", 4096)
    only_alice = parse_users(content({"alice": TEXTS}))
    assert cost(only_alice, "nobody", 12345) == cost(only_alice, "alice")
    costly = write_credential(credential_of(b"pencil", "sha512", SALT, 16_384))
    both = parse_users(content({"alice": TEXTS, "bob": {"SCRAM-SHA-512": costly}}))
    assert {cost(both, "nobody", drawn) for drawn in range(4)} == {cost(both, "alice"), cost(both, "bob")}
    assert cost(Users(), "nobody") == ("sha512", 8192)


def test_user_that_is_gone_is_unknown() -> None:
    assert "alice" in USERS
    gone = parse_users(content({"bob": TEXTS}))
    assert "alice" not in gone
    assert gone.scram("alice", "SCRAM-SHA-512") is None
    assert login(b"\0alice\0pencil", gone) == (None, WRONG)


def test_user_has_the_mechanisms_of_the_file_only() -> None:
    assert USERS.scram("bob", "SCRAM-SHA-512") is None
    assert USERS.scram("bob", "SCRAM-SHA-256") is not None


SECRET = TEXTS["SCRAM-SHA-256"]


@pytest.mark.parametrize(
    ("users", "message"),
    [
        ({"alice": {}}, "'alice' has no credentials"),
        ({"": TEXTS}, "without a name"),
        ({"alice": {"PLAIN": "pencil"}}, "'PLAIN' is none of SCRAM-SHA-256"),
        ({"alice": {"SCRAM-SHA-256": "pencil"}}, r"'alice', SCRAM-SHA-256: write salt=\.\.\."),
        ({"alice": {"SCRAM-SHA-512": SECRET}}, "two keys of 64 bytes"),
        ({"alice": {"SCRAM-SHA-256": SECRET.replace("4096", "4095")}}, "iterations must be 4096 to 16384"),
        ({"alice": {"SCRAM-SHA-256": SECRET.replace("4096", "many")}}, "iterations a number"),
        ({"alice": {"SCRAM-SHA-256": SECRET.replace("salt=", "salt=!")}}, "base64"),
        ({"alice": {"SCRAM-SHA-256": 5}}, "Expected `str`"),
        ({"alice": "pencil"}, "Expected `object`"),
        ([], "Expected `object`"),
    ],
)
def test_mistake_is_named_and_no_secret_is_repeated(users: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        parse_users(content(users))
    said = f"{caught.value!r}"
    assert "pencil" not in said
    assert SECRET.partition("stored_key=")[2][:20] not in said
    assert repr(USERS) == "<Users 2>"


@pytest.mark.parametrize("bad", [b"", b"{", b'{"users": 1}', b'{"user": {}}', b"\xff"])
def test_what_is_no_file_of_users_is_refused(bad: bytes) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_users(bad)


def test_mechanisms() -> None:
    assert parse_mechanisms("SCRAM-SHA-512, PLAIN") == ("SCRAM-SHA-512", "PLAIN")
    assert parse_mechanisms("") == ()
    for bad in ("GSSAPI", "PLAIN,PLAIN", "plain"):
        with pytest.raises(ValueError, match=r"none of|twice"):
            parse_mechanisms(bad)


@pytest.mark.parametrize("wrong", ['{"connections": 0}', '{"requestRate": 1.5}', '{"rate": 7}', '{"requestRate": "x"}'])
def test_quota_that_is_none_is_refused_with_its_place(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"\$\.quotas"):
        parse_users(f'{{"users": {{}}, "quotas": {{"alice": {wrong}}}}}'.encode())


def test_quotas_are_those_of_the_user_and_none_where_there_are_none() -> None:
    users = parse_users(b'{"users": {}, "quotas": {"CN=a": {"connections": 5}}}')
    assert (users.quotas("CN=a"), users.quotas("CN=b")) == (Quotas(5), NO_QUOTAS)
