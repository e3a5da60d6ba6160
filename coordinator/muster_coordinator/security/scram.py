"""SCRAM-SHA-256 and SCRAM-SHA-512, the server's side (RFC 5802, RFC 7677), as Kafka has it. Pure.

Source: org.apache.kafka.common.security.scram.internals (ScramSaslServer, ScramMessages, ScramFormatter). As there, a
name is ASCII, a password is not normalised, and there is no channel binding.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from muster_coordinator.security.sasl import MayActFor, SaslError, nobody_acts

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Mechanism -> name of its hash."""
MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16_384
"""The bounds of Kafka (ScramMechanism)."""
DEFAULT_ITERATIONS = 8192

_BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_CLIENT_FIRST = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,(?P<bare>(?:m={_VALUE},)?n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})"
    rf"(?P<extensions>{_EXTENSIONS}))"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<without_proof>c={_BASE64},r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The credential that a server keeps in place of a password."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int = MIN_ITERATIONS


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """The keys that follow from a password. `client` proves that it is known."""

    client: bytes = field(repr=False)
    stored: bytes = field(repr=False)
    server: bytes = field(repr=False)


def keys_of(password: bytes, hash_name: str, salt: bytes, iterations: int) -> ScramKeys:
    """Takes milliseconds of processor time."""
    salted = hashlib.pbkdf2_hmac(hash_name, password, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    return ScramKeys(client_key, stored_key, hmac.digest(salted, b"Server Key", hash_name))


def credential_of(password: bytes, hash_name: str, salt: bytes, iterations: int) -> ScramCredential:
    """Takes milliseconds of processor time."""
    keys = keys_of(password, hash_name, salt, iterations)
    return ScramCredential(salt, keys.stored, keys.server, iterations)


class ScramServer:
    """Implements `sasl.Mechanism`. `credential`: of a user, None if there is none. `nonce`: the server's part, random,
    of printable ASCII without a comma."""

    def __init__(
        self,
        hash_name: str,
        credential: Callable[[str], ScramCredential | None],
        nonce: str,
        may_act: MayActFor = nobody_acts,
    ) -> None:
        self.by = ""
        self._may_act = may_act
        self._for = ""
        self._hash = hash_name
        self._credential_of = credential
        self._server_nonce = nonce
        self._name = ""
        self._known: ScramCredential | None = None
        self._nonce = ""
        self._first_messages = ""
        self._user: str | None = None

    @property
    def user(self) -> str | None:
        return self._user

    @property
    def ends_ms(self) -> None:
        return None

    def step(self, token: bytes) -> bytes:
        if self._user is not None:
            raise SaslError("a token after the last one")
        return self._first(token) if self._known is None else self._final(token, self._known)

    def _first(self, token: bytes) -> bytes:
        message = _CLIENT_FIRST.fullmatch(_text(token))
        if message is None:
            raise SaslError("the first message is not of SCRAM")
        name = _plain_name(message["name"])
        known = None if "tokenauth=true" in message["extensions"] else self._credential_of(name)
        if known is None:
            raise SaslError("no such credentials")
        self._for = _plain_name(message["authzid"] or message["name"])
        if self._for != name and not self._may_act(name):
            raise SaslError("another authorization id", OTHER_AUTHORIZATION_ID)
        self._name, self._known = name, known
        self._nonce = message["nonce"] + self._server_nonce
        answer = f"r={self._nonce},s={base64.b64encode(known.salt).decode()},i={known.iterations}"
        self._first_messages = f"{message['bare']},{answer}"
        return answer.encode()

    def _final(self, token: bytes, known: ScramCredential) -> bytes:
        message = _CLIENT_FINAL.fullmatch(_text(token))
        if message is None:
            raise SaslError("the final message is not of SCRAM")
        if not hmac.compare_digest(message["nonce"], self._nonce):
            raise SaslError("another nonce")
        signed = f"{self._first_messages},{message['without_proof']}".encode()
        signature = hmac.digest(known.stored_key, signed, self._hash)
        proof = base64.b64decode(message["proof"])
        if len(proof) != len(signature):
            raise SaslError("a proof of another length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), known.stored_key):
            raise SaslError("wrong password")
        self._user, self.by = self._for, self._name if self._for != self._name else ""
        return b"v=" + base64.b64encode(hmac.digest(known.server_key, signed, self._hash))


def claimed_by_scram(token: bytes) -> str:
    """The user that a client's first message names; "" for a delegation token, whose name is no user's (Kafka takes its
    `tokenauth=TRUE` as well), for a login on behalf of somebody else, and for other messages."""
    message = _CLIENT_FIRST.fullmatch(token.decode("ascii", errors="replace"))
    if message is None or "tokenauth=" in message["extensions"].lower():
        return ""
    return _plain_name(message["name"]) if message["authzid"] in (None, message["name"]) else ""


OTHER_AUTHORIZATION_ID = "Authentication failed: Client requested an authorization id that is different from username"


def write_credential(credential: ScramCredential) -> str:
    """The credential in the form in which Kafka writes it (ScramCredentialUtils)."""
    salt, stored, server = (
        base64.b64encode(each).decode() for each in (credential.salt, credential.stored_key, credential.server_key)
    )
    return f"salt={salt},stored_key={stored},server_key={server},iterations={credential.iterations}"


def read_credential(text: str, hash_name: str) -> ScramCredential:
    """The inverse. Raises ValueError, whose message says what is missing and repeats nothing."""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    if parts.keys() != {"salt", "stored_key", "server_key", "iterations"}:
        raise ValueError("write salt=...,stored_key=...,server_key=...,iterations=...")
    try:
        salt, stored, server = (
            base64.b64decode(parts[each], validate=True) for each in ("salt", "stored_key", "server_key")
        )
        iterations = int(parts["iterations"])
    except (binascii.Error, ValueError):
        raise ValueError("salt and keys are base64, iterations a number") from None
    size = hashlib.new(hash_name).digest_size
    if not salt or len(stored) != size or len(server) != size:
        raise ValueError(f"a salt and two keys of {size} bytes are needed")
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ValueError(f"iterations must be {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    return ScramCredential(salt, stored, server, iterations)


def _text(token: bytes) -> str:
    try:
        return token.decode("ascii")
    except UnicodeDecodeError:
        raise SaslError("a message that is not ASCII") from None


def _plain_name(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
