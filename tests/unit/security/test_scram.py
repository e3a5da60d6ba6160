"""SCRAM against the examples of the RFCs, and everything that a client can get wrong."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.scram import client_final, client_first

from muster_coordinator.security.sasl import SaslError
from muster_coordinator.security.scram import (
    HASHES,
    ScramCredential,
    ScramServer,
    credential_of,
    read_credential,
    write_credential,
)

RFC = {
    # RFC 5802, section 5, and RFC 7677, section 3: hash, salt, client's nonce, server's nonce, proof, signature
    "5802": (
        "sha1",
        "QSXCR+Q6sek8bf92",
        "fyko+d2lbbFgONRv9qkxdawL",
        "3rfcNHYJY1ZVvWVs7j",
        "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        "rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    "7677": (
        "sha256",
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        "rOprNGfwEbeRWgbNEkqO",
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
}


@pytest.mark.parametrize("rfc", RFC)
def test_example_of_the_rfc(rfc: str) -> None:
    hash_name, salt, client, server, proof, signature = RFC[rfc]
    known = credential_of(b"pencil", hash_name, base64.b64decode(salt), 4096)
    login = ScramServer(hash_name, lambda name: known if name == "user" else None, server)
    assert login.step(f"n,,n=user,r={client}".encode()) == f"r={client}{server},s={salt},i=4096".encode()
    assert login.user is None
    assert login.step(f"c=biws,r={client}{server},p={proof}".encode()) == f"v={signature}".encode()
    assert login.user == "user"


SALT = b"0123456789abcdef"
KNOWN = {mechanism: credential_of(b"pencil", name, SALT, 4096) for mechanism, name in HASHES.items()}


def login(mechanism: str = "SCRAM-SHA-512", user: str = "user") -> ScramServer:
    return ScramServer(HASHES[mechanism], lambda name: KNOWN[mechanism] if name == user else None, "servers")


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize("user", ["user", "a,b=c", "x" * 500])
def test_right_password_is_let_in_and_the_server_proves_itself(mechanism: str, user: str) -> None:
    server = login(mechanism, user)
    first = client_first(user, "clients")
    challenge = server.step(first)
    final, expected = client_final(HASHES[mechanism], first, challenge, "pencil")
    assert server.step(final) == expected
    assert server.user == user
    with pytest.raises(SaslError):
        server.step(final)


def refused(server: ScramServer, *tokens: bytes) -> SaslError:
    try:
        for token in tokens:
            server.step(token)
    except SaslError as error:
        assert server.user is None
        return error
    raise AssertionError("it was let in")


FIRST = b"n,,n=user,r=clients"


def final(password: str = "pencil", mechanism: str = "SCRAM-SHA-512") -> bytes:
    challenge = login(mechanism).step(FIRST)
    return client_final(HASHES[mechanism], FIRST, challenge, password)[0]


def test_wrong_password_and_unknown_user_are_told_nothing() -> None:
    assert refused(login(), FIRST, final("pencil ")).told is None
    assert refused(login(), b"n,,n=nobody,r=clients").told is None
    assert refused(login(), b"n,,n=User,r=clients").told is None


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"y,,n=user,r=clients",
        b"p=tls-unique,,n=user,r=clients",
        b"n,,n=,r=clients",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=clients",
        b"n,,n=us=2cer,r=clients",
        b"n,,n=user,r=cli ents",
        b"n,,n=user,r=clients,tokenauth",
        b"n,,n=user,r=clients,tokenauth=true",
        b"n,,n=user,r=clients\n",
        "n,,n=üser,r=clients".encode(),
        b"\xff\xfe\x00",
        b"n,,n=user",
        b"c=biws,r=clientsservers,p=AAAA",
    ],
)
def test_first_message_of_another_form_is_refused(first: bytes) -> None:
    assert refused(login(), first).told is None


def test_authorization_id_must_be_the_name() -> None:
    assert login().step(b"n,a=user,n=user,r=clients").startswith(b"r=clientsservers,")
    told = refused(login(), b"n,a=other,n=user,r=clients").told
    assert told is not None
    assert told.startswith("Authentication failed: Client requested an authorization id")


def test_extensions_of_both_messages_are_signed_and_ignored() -> None:
    first = FIRST + b",ext=1"
    server = login()
    token, signature = client_final("sha512", first, server.step(first), "pencil", extensions=",more=2")
    assert server.step(token) == signature


@pytest.mark.parametrize(
    ("part", "other"),
    [
        (b"r=clientsservers", b"r=clients"),
        (b"r=clientsservers", b"r=clientsserverz"),
        (b"c=biws", b"c=eSws"),
        (b"c=biws", b"c=!"),
        (b",p=", b",x=1,p="),
        (b",p=", b",p=A"),
        (b",p=", b",q="),
    ],
)
def test_final_message_that_was_changed_is_refused(part: bytes, other: bytes) -> None:
    token = final()
    assert part in token
    assert refused(login(), FIRST, token.replace(part, other)).told is None


@pytest.mark.parametrize("proof", [b"", b"AAAA", base64.b64encode(bytes(64)), base64.b64encode(bytes(32)), b"*"])
def test_proof_that_is_none_is_refused(proof: bytes) -> None:
    assert refused(login(), FIRST, b"c=biws,r=clientsservers,p=" + proof).told is None


def test_final_message_must_repeat_the_nonce_even_if_its_proof_is_right() -> None:
    server = login()
    token, _ = client_final("sha512", FIRST, server.step(FIRST), "pencil", nonce="clients")
    with pytest.raises(SaslError):
        server.step(token)


def test_proof_of_another_login_is_worth_nothing() -> None:
    """The server's part of the nonce differs."""
    other = ScramServer("sha512", lambda name: KNOWN["SCRAM-SHA-512"], "others")
    refused(other, FIRST, final().replace(b"clientsservers", b"clientsothers"))


def test_proof_of_who_has_stolen_the_stored_key_only_is_refused() -> None:
    """The stored key opens nothing: a proof needs what it is the hash of."""
    server = login()
    challenge = server.step(FIRST)
    known = KNOWN["SCRAM-SHA-512"]
    without = "c=biws,r=clientsservers"
    signed = f"{FIRST.decode()[3:]},{challenge.decode()},{without}".encode()
    forged = hmac.digest(known.stored_key, signed, "sha512")
    with pytest.raises(SaslError):
        server.step(f"{without},p={base64.b64encode(forged).decode()}".encode())


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=3))
def test_no_bytes_do_anything_but_be_refused(tokens: list[bytes]) -> None:
    refused(login(), *tokens, b"")


@given(st.binary(min_size=1, max_size=30), st.integers(4096, 16384), st.sampled_from(["sha256", "sha512"]))
def test_credential_is_read_as_it_was_written(salt: bytes, iterations: int, hash_name: str) -> None:
    size = hashlib.new(hash_name).digest_size
    credential = ScramCredential(salt, bytes(size), bytes(range(size)), iterations)
    assert read_credential(write_credential(credential), hash_name) == credential


def test_credential_shows_nothing_of_itself() -> None:
    assert repr(KNOWN["SCRAM-SHA-256"]) == "ScramCredential(iterations=4096)"
