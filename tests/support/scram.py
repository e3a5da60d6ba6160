"""SCRAM as a client speaks it (RFC 5802), written down by itself; users and logins of tests."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

from tests.support.kafka import KafkaClient, schema

from muster_coordinator.security.scram import HASHES, credential_of, write_credential


def client_first(user: str, nonce: str) -> bytes:
    name = user.replace("=", "=3D").replace(",", "=2C")
    return f"n,,n={name},r={nonce}".encode()


def client_final(
    hash_name: str, first: bytes, challenge: bytes, password: str, extensions: str = "", nonce: str = ""
) -> tuple[bytes, bytes]:
    """(the client's last token, the server's answer to it if both know the password). `nonce`: another than that of the
    challenge."""
    parts = dict(part.split("=", 1) for part in challenge.decode().split(","))
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    without = f"c=biws,r={nonce or parts['r']}{extensions}"
    bare = first.decode().split(",", 2)[2]
    signed = f"{bare},{challenge.decode()},{without}".encode()
    signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), signed, hash_name)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    server = hmac.digest(hmac.digest(salted, b"Server Key", hash_name), signed, hash_name)
    return f"{without},p={proof}".encode(), b"v=" + base64.b64encode(server)


def users_file(passwords: dict[str, str]) -> str:
    """The content of a file of users, each with both mechanisms."""
    users = {
        name: {
            mechanism: write_credential(credential_of(password.encode(), hash_name, b"salt of " + name.encode(), 4096))
            for mechanism, hash_name in HASHES.items()
        }
        for name, password in passwords.items()
    }
    return json.dumps({"users": users})


async def log_in(
    client: KafkaClient, user: str, password: str, mechanism: str = "SCRAM-SHA-512", version: int = 2
) -> Any:
    """Handshake and login; the last answer to SaslAuthenticate, or that to a handshake that was refused."""
    handshake = await client.call(schema("sasl_handshake", 1).SaslHandshakeRequest(mechanism=mechanism))
    if handshake.error_code:
        return handshake
    request = schema("sasl_authenticate", version).SaslAuthenticateRequest
    if mechanism == "PLAIN":
        return await client.call(request(auth_bytes=f"\0{user}\0{password}".encode()))
    first = client_first(user, "clients")
    challenge = await client.call(request(auth_bytes=first))
    if challenge.error_code:
        return challenge
    final, expected = client_final(HASHES[mechanism], first, challenge.auth_bytes, password)
    answer = await client.call(request(auth_bytes=final))
    assert answer.error_code or answer.auth_bytes == expected, "the server does not know the password"
    return answer
