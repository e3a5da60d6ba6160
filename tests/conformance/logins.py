"""The user with which the scripts of `scripts/authentication.py` log in, for both servers."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.support.kafka import KafkaClient, schema
from tests.support.scram import users_file

from muster_coordinator.security.scram import HASHES

MECHANISMS = "sasl.enabled.mechanisms"
SETTINGS = {MECHANISMS: ",".join(reversed(HASHES)), "connection.failed.authentication.delay.ms": "0"}
USER, PASSWORD = "alice", "pencil"
ITERATIONS, SALT = 4096, b"a salt of Kafka's"


def write(path: Path) -> None:
    """The file for Muster."""
    path.write_text(users_file({USER: PASSWORD}))


async def create(port: int) -> None:
    """Give it to Kafka, over its plain listener."""
    m = schema("alter_user_scram_credentials", 0)
    client = await KafkaClient.connect(port)
    try:
        for number, hash_name in enumerate(HASHES.values(), 1):  # Kafka takes one credential of a user at a time
            upsertion = m.ScramCredentialUpsertion(
                name=USER,
                mechanism=number,
                iterations=ITERATIONS,
                salt=SALT,
                salted_password=hashlib.pbkdf2_hmac(hash_name, PASSWORD.encode(), SALT, ITERATIONS),
            )
            answer = await client.call(m.AlterUserScramCredentialsRequest(deletions=(), upsertions=(upsertion,)))
            assert {result.error_code for result in answer.results} == {0}, answer
    finally:
        await client.close()
