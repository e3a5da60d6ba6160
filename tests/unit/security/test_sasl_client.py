"""The client's side of SASL against the server's, the examples of the RFCs, and servers that answer wrongly."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from muster_coordinator.security.names import claimed_name
from muster_coordinator.security.oauth import OAuthBearerServer, Token, TokenError
from muster_coordinator.security.plain import PlainServer
from muster_coordinator.security.sasl import Mechanism, SaslError
from muster_coordinator.security.sasl_client import Account, KeyCache, SaslClient, sasl_client
from muster_coordinator.security.scram import HASHES, ScramServer, credential_of

SALT = b"0123456789abcdef"
NAME, PASSWORD = "a,user=1", "pencil"
KNOWN = {mechanism: credential_of(PASSWORD.encode(), name, SALT, 4096) for mechanism, name in HASHES.items()}


def talk(client: SaslClient, server: Mechanism) -> int:
    """Both sides until the client is done; how many tokens it has sent. Raises SaslError."""
    token: bytes | None = client.first()
    sent = 0
    while token is not None:
        sent += 1
        answer = server.step(token)
        token = client.step(answer if isinstance(answer, bytes) else answer())
    return sent


def scram_server(mechanism: str) -> ScramServer:
    return ScramServer(HASHES[mechanism], lambda name: KNOWN[mechanism] if name == NAME else None, "servers")


def client(mechanism: str, password: str = PASSWORD, cache: KeyCache | None = None) -> SaslClient:
    return sasl_client(mechanism, Account(NAME, password), "clients", cache or KeyCache())


@pytest.mark.parametrize("mechanism", HASHES)
def test_scram_logs_in_a_name_with_comma_and_equals_sign(mechanism: str) -> None:
    server = scram_server(mechanism)
    assert talk(client(mechanism), server) == 2
    assert server.user == NAME


@pytest.mark.parametrize("mechanism", HASHES)
def test_wrong_password_is_refused_by_the_server(mechanism: str) -> None:
    with pytest.raises(SaslError, match="wrong password"):
        talk(client(mechanism, "pen"), scram_server(mechanism))


def nobodys_work(name: str) -> tuple[str, int]:
    return "sha512", 4096


def test_plain_logs_in() -> None:
    server = PlainServer(lambda name: ("sha512", KNOWN["SCRAM-SHA-512"]) if name == NAME else None, nobodys_work)
    assert talk(client("PLAIN"), server) == 1
    assert server.user == NAME


def test_token_logs_in_and_one_that_is_refused_says_why() -> None:
    def verify(token: str) -> Token:
        if token != "good":
            raise TokenError("no such token")
        return Token("alice", 1)

    server = OAuthBearerServer(verify)
    talk(sasl_client("OAUTHBEARER", Account(token="good"), "", KeyCache()), server)
    assert server.user == "alice"
    with pytest.raises(SaslError, match="invalid_token"):
        talk(sasl_client("OAUTHBEARER", Account(token="bad"), "", KeyCache()), OAuthBearerServer(verify))


@pytest.mark.parametrize("mechanism", ["PLAIN", *HASHES])
def test_gateway_logs_in_on_behalf_of_another_user_only_where_it_may(mechanism: str) -> None:
    def server(*gateways: str) -> Mechanism:
        known = KNOWN["SCRAM-SHA-512" if mechanism == "PLAIN" else mechanism]
        if mechanism == "PLAIN":
            return PlainServer(lambda _: ("sha512", known), nobodys_work, lambda user: user in gateways)
        return ScramServer(HASHES[mechanism], lambda _: known, "servers", lambda user: user in gateways)

    def acting(password: str = PASSWORD) -> SaslClient:
        return sasl_client(mechanism, Account(NAME, password), "clients", KeyCache(), "bob,=")

    lets = server(NAME)
    talk(acting(), lets)
    assert (lets.user, lets.by) == ("bob,=", NAME)
    for refuses in (server(), server("bob,=")):
        with pytest.raises(SaslError, match="another authorization id"):
            talk(acting(), refuses)
        assert refuses.user is None
    with pytest.raises(SaslError, match="wrong password"):
        talk(acting("pen"), server(NAME))
    himself = server(NAME)
    talk(client(mechanism), himself)
    assert (himself.user, himself.by) == (NAME, "")


@pytest.mark.parametrize("mechanism", ["PLAIN", *HASHES])
def test_name_that_a_first_token_claims_is_read(mechanism: str) -> None:
    assert claimed_name(mechanism, client(mechanism).first()) == NAME
    assert claimed_name(mechanism, b"biws") == ""


@pytest.mark.parametrize(
    ("mechanism", "token"),
    [
        ("SCRAM-SHA-256", b"n,,n=token,r=x,tokenauth=true"),
        ("SCRAM-SHA-256", b"n,,n=token,r=x,tokenauth=TRUE"),  # Boolean.parseBoolean takes it
        ("SCRAM-SHA-512", b"n,,n=token,r=x,a=b,tokenauth=True"),
        ("SCRAM-SHA-512", b"n,a=admin,n=alice,r=x"),
        ("SCRAM-SHA-512", b"n,,n=alic\xc3\xa9,r=x"),
        ("PLAIN", b"admin\0alice\0secret"),
        ("PLAIN", b"\0adm\xffin\0secret"),
        ("PLAIN", b"\0alice\0secret\0admin"),
        ("OAUTHBEARER", b"n,a=admin,\x01auth=Bearer e30.eyJzdWIiOiJjYXJvbCJ9.s\x01\x01"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer e30.eyJzdWIiOiJjYXJvbCJ9.s\x01auth=Bearer opaque\x01\x01"),
        ("GSSAPI", b"\0alice\0secret"),
        ("", b"\0alice\0secret"),
    ],
)
def test_first_token_that_does_not_say_one_name_for_all_who_read_it_names_nobody(mechanism: str, token: bytes) -> None:
    assert claimed_name(mechanism, token) == ""


@pytest.mark.parametrize(
    "claims",
    [
        b'{"sub": "admin", "sub": "mallory"}',
        b'{"sub": "admin\xc2\xa0"}',
        b'{"sub": "a\\u0000b"}',
        b'{"sub": "\\ud800"}',
    ],
)
def test_claims_that_do_not_say_one_name_for_all_who_read_them_name_nobody(claims: bytes) -> None:
    token = f"e30.{base64.urlsafe_b64encode(claims).rstrip(b'=').decode()}.sig"
    assert claimed_name("OAUTHBEARER", sasl_client("OAUTHBEARER", Account(token=token), "", KeyCache()).first()) == ""


CLAIMS = base64.urlsafe_b64encode(b'{"sub": "carol", "who": ["x"], "preferred": "dan "}').rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("token", "claim", "name"),
    [
        (f"e30.{CLAIMS}.sig", "sub", "carol"),
        (f"e30.{CLAIMS}.sig", "preferred", "dan"),
        (f"e30.{CLAIMS}.sig", "who", ""),
        (f"e30.{CLAIMS}.sig", "none", ""),
        (f"{CLAIMS}", "sub", ""),
        ("e30.!!!.sig", "sub", ""),
        ("e30.W10.sig", "sub", ""),
    ],
)
def test_name_of_a_token_is_the_claim_that_is_asked_for(token: str, claim: str, name: str) -> None:
    first = sasl_client("OAUTHBEARER", Account(token=token), "", KeyCache()).first()
    assert claimed_name("OAUTHBEARER", first, claim) == name


def test_example_of_rfc_7677() -> None:
    example = sasl_client("SCRAM-SHA-256", Account("user", "pencil"), "rOprNGfwEbeRWgbNEkqO", KeyCache())
    assert example.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    final = example.step(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert final == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    assert example.step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


def challenge(nonce: str = "clientsservers", salt: bytes = SALT, iterations: int = 4096) -> bytes:
    return f"r={nonce},s={base64.b64encode(salt).decode()},i={iterations}".encode()


@pytest.mark.parametrize(
    "answer",
    [
        challenge(nonce="another"),
        challenge(nonce="clients"),
        challenge(iterations=1),
        challenge(iterations=999_999_999),
        b"",
        b"\xff" * 100,
        b"r=clientsservers,s=&,i=4096",
        b"r=clientsservers,s=a,i=4096",
        challenge() + b",m=must",
    ],
)
def test_server_that_answers_wrongly_is_refused_before_a_key_is_made(answer: bytes) -> None:
    made: list[bytes] = []

    class Watched(KeyCache):
        def keys(self, *of: object) -> object:  # type: ignore[override]
            made.append(b"")
            raise AssertionError

    login = client("SCRAM-SHA-512", cache=Watched())
    login.first()
    with pytest.raises(SaslError):
        login.step(answer)
    assert made == []


def test_server_that_does_not_know_the_password_is_refused() -> None:
    login = client("SCRAM-SHA-512")
    login.first()
    login.step(challenge())
    with pytest.raises(SaslError, match="does not know"):
        login.step(b"v=" + base64.b64encode(bytes(64)))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    from muster_coordinator.security import sasl_client as module

    calls: list[object] = []
    real = module.keys_of

    def keys_of(*of: object) -> object:
        calls.append(of)
        return real(*of)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "keys_of", keys_of)
    return lambda: len(calls)


def test_keys_are_made_once_for_a_password_and_a_salt(counted: Callable[[], int]) -> None:
    cache = KeyCache()
    for _ in range(3):
        talk(client("SCRAM-SHA-512", cache=cache), scram_server("SCRAM-SHA-512"))
    assert counted() == 1
    with pytest.raises(SaslError):
        talk(client("SCRAM-SHA-512", "another", cache), scram_server("SCRAM-SHA-512"))
    assert counted() == 2


def test_secrets_are_in_no_representation() -> None:
    shown = repr(Account("user", "pencil", "ticket"))
    assert "pencil" not in shown
    assert "ticket" not in shown
