"""Tokens of OAUTHBEARER: which are taken, which keys count, and what a client is told."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("jwt")

import jwt
from tests.support.tokens import AUDIENCE, ISSUER, Provider, first_message, key_set

from muster_coordinator.security.jwks import NO_KEYS, parse_keys
from muster_coordinator.security.oauth import INVALID_TOKEN, OAuthBearerServer, Token, TokenError
from muster_coordinator.security.sasl import LaterError, SaslError
from muster_coordinator.security.tokens import TokenRules, TokenVerifier

RULES = TokenRules((AUDIENCE, "other"), ISSUER, 30)
PROVIDER = Provider()
STRANGER = Provider()


def verify(token: str, rules: TokenRules = RULES, *keys: dict[str, Any]) -> Token:
    known = parse_keys(key_set(*(keys or (PROVIDER.public(),))))
    return TokenVerifier(rules, lambda: known, lambda: None).verify(token)


def test_good_token_names_its_user_and_its_end() -> None:
    end = time.time() + 600
    for audience in (AUDIENCE, ["x", "other"]):
        found = verify(PROVIDER.token("alice", exp=end, aud=audience))
        assert found == Token("alice", int(end * 1000))
    assert verify(PROVIDER.token(login="bob "), TokenRules((AUDIENCE,), name_claim="login")).user == "bob"


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256"])
def test_each_algorithm_of_a_public_key_counts_with_a_key_id_and_without(algorithm: str) -> None:
    for key_id in ("k", None):
        provider = Provider(key_id, algorithm)
        assert verify(provider.token(), RULES, STRANGER.public(), provider.public()).user == "alice"
        assert verify(provider.token(), RULES, provider.public(alg=algorithm, use="sig")).user == "alice"
        with pytest.raises(TokenError, match="no key of the key set"):
            verify(provider.token(), RULES, STRANGER.public(alg="RS256" if algorithm != "RS256" else "PS256"))


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": time.time() - 31}, "ExpiredSignatureError"),
        ({"nbf": time.time() + 36000}, "ImmatureSignatureError"),
        ({"exp": None}, "MissingRequiredClaimError"),
        ({"iat": None}, "MissingRequiredClaimError"),
        ({"iat": time.time() + 36000}, "ends before it was issued"),
        ({"exp": "soon"}, "DecodeError"),
        ({"aud": None}, "MissingRequiredClaimError"),
        ({"aud": "elsewhere"}, "InvalidAudienceError"),
        ({"iss": "https://elsewhere.test"}, "InvalidIssuerError"),
        ({"iss": None}, "MissingRequiredClaimError"),
        ({"sub": None}, "the claim 'sub' names nobody"),
        ({"sub": "  "}, "the claim 'sub' names nobody"),
    ],
)
def test_token_that_says_something_else_is_refused(claims: dict[str, Any], reason: str) -> None:
    with pytest.raises(TokenError, match=reason):
        verify(PROVIDER.token(**claims))


def test_clock_of_the_provider_may_be_off() -> None:
    assert verify(PROVIDER.token(exp=time.time() - 25, iat=time.time() - 60))
    assert verify(PROVIDER.token(nbf=time.time() + 25))
    assert verify(PROVIDER.token(iat=time.time() + 60)), "as in Kafka"
    with pytest.raises(TokenError, match="Expired"):
        verify(PROVIDER.token(exp=time.time() - 25), TokenRules((AUDIENCE,), ISSUER, 5))


def test_without_expectations_any_issuer_is_taken_but_no_audience() -> None:
    assert verify(PROVIDER.token(aud=None, iss="x"), TokenRules())
    with pytest.raises(TokenError, match="InvalidAudienceError"):
        verify(PROVIDER.token(), TokenRules())


def test_token_of_a_stranger_or_without_a_signature_is_refused() -> None:
    with pytest.raises(TokenError, match="another key has signed it"):
        verify(STRANGER.token())
    head, body, signature = PROVIDER.token().split(".")
    nobody = jwt.encode({"sub": "alice"}, None, "none")
    for token in (
        nobody,
        f"{nobody.split('.')[0]}.{body}.",
        f"{head}.{body}.",
        f"{head}.{body}.{signature[:-8]}AAAAAAAA",
    ):
        with pytest.raises(TokenError):
            verify(token)


def test_public_key_is_no_secret_to_sign_with() -> None:
    """HS256 with the key set's own text as the secret: an old attack on libraries that take what the header says."""
    public = json.dumps(PROVIDER.public())
    forged = jwt.encode({"sub": "alice", "exp": time.time() + 60, "iat": time.time()}, public * 2, "HS256")
    with pytest.raises(TokenError, match="no key of the key set"):
        verify(forged)


def test_error_repeats_nothing_of_the_token() -> None:
    for token in ("secret", "secret.secret.secret", STRANGER.token("secret"), PROVIDER.token("secret", aud="secret")):
        with pytest.raises(TokenError) as caught:
            verify(token)
        assert "secret" not in str(caught.value)


def test_unknown_key_is_asked_for_and_without_any_key_nobody_is_refused() -> None:
    wanted: list[str] = []
    known = parse_keys(key_set(PROVIDER.public()))
    verifier = TokenVerifier(RULES, lambda: known, lambda: wanted.append("more"))
    with pytest.raises(TokenError):
        verifier.verify(Provider("k2").token())
    assert wanted == ["more"]
    with pytest.raises(LaterError):
        TokenVerifier(RULES, lambda: NO_KEYS, lambda: None).verify(PROVIDER.token())


@pytest.mark.parametrize(
    "keys",
    [
        [],
        [{"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"}],
        [{"kty": "RSA", "n": "AQAB", "e": "!"}],
        [{"kty": "new"}],
        [PROVIDER.public(use="enc")],
        [PROVIDER.public(alg="HS256")],
    ],
)
def test_set_without_a_key_for_signatures_is_refused(keys: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match="none is public"):
        parse_keys(key_set(*keys))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"keys": 1}', b'{"keys": [1]}', b"\xff"])
def test_bytes_that_are_no_set_are_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON|truncated|Expected|required|utf-8"):
        parse_keys(content)


# -- the mechanism ----------------------------------------------------------------------------------------------------


def accept(text: str) -> Token:
    if text != "good":
        raise TokenError("bad")
    return Token("alice", 5000)


def test_token_lets_its_user_in_until_it_ends() -> None:
    for message in (first_message("good"), first_message("good", "alice"), b"n,,\x01a=b\x01auth=bEARER   good\x01\x01"):
        server = OAuthBearerServer(accept)
        assert (server.user, server.ends_ms) == (None, None)
        assert server.step(message) == b""
        assert (server.user, server.ends_ms) == ("alice", 5000)
        with pytest.raises(SaslError):
            server.step(message)


def test_bad_token_is_answered_first_and_fails_by_what_comes_then() -> None:
    for then, told in ((b"\x01", INVALID_TOKEN), (first_message("good"), None), (b"", None)):
        server = OAuthBearerServer(accept)
        assert server.step(first_message("bad")) == b'{"status":"invalid_token"}'
        with pytest.raises(SaslError) as caught:
            server.step(then)
        assert (caught.value.told, server.user) == (told, None)


def test_other_authorization_id_is_refused() -> None:
    with pytest.raises(SaslError) as caught:
        OAuthBearerServer(accept).step(first_message("good", "bob"))
    assert caught.value.told == (
        "Authentication failed: Client requested an authorization id (bob) that is different from the token's "
        "principal name (alice)"
    )


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"y,,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Bearer good\x01",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=good\x01\x01",
        b"n,,\x01auth=Bearer go od\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,a=b=c,\x01auth=Bearer good\x01\x01",
        b"\0alice\0pencil",
    ],
)
def test_message_of_another_form_is_refused(message: bytes) -> None:
    server = OAuthBearerServer(accept)
    with pytest.raises(SaslError) as caught:
        server.step(message)
    assert (caught.value.told, server.user) == (None, None)


@given(st.binary(max_size=200) | st.text(max_size=80).map(lambda text: first_message(text)))
def test_whatever_comes_is_refused_or_an_answer(message: bytes) -> None:
    server = OAuthBearerServer(accept)
    try:
        server.step(message)
    except SaslError:
        pass
    assert server.user is None or b"good" in message
