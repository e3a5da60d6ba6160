"""SASL: the order of requests, mechanisms, what a refused client is told, and what is answered to one that is known."""

from __future__ import annotations

import itertools
from typing import Any

from tests.conformance.logins import PASSWORD, USER
from tests.conformance.logins import SETTINGS as SETTINGS
from tests.conformance.registry import script
from tests.conformance.session import CLOSED, Session
from tests.support.scram import client_final, client_first

from muster_coordinator.security.scram import HASHES

SCRAM = "SCRAM-SHA-512"
VERSIONS = {"client_software_name": "test", "client_software_version": "1"}


async def versions(s: Session, version: int = 3) -> None:
    """The list of APIs is no matter of this area."""
    answer = await s.quietly("api_versions", version, **(VERSIONS if version >= 3 else {}))
    s.note(f"api_versions v{version}", CLOSED if answer == CLOSED else answer.error_code)


async def handshake(s: Session, version: int = 1, mechanism: str = SCRAM) -> None:
    await s.ask("sasl_handshake", version, mechanism=mechanism)


async def heartbeat(s: Session) -> None:
    await s.ask("heartbeat", 4, group_id=s.group, generation_id=1, member_id="m")


async def token(s: Session, value: bytes, version: int = 2) -> Any:
    """What is answered holds random bytes: its code and text are recorded."""
    answer = await s.quietly("sasl_authenticate", version, auth_bytes=value)
    told = answer if answer == CLOSED else (answer.error_code, answer.error_message)
    s.note(f"sasl_authenticate v{version}", told)
    return answer


async def log_in(s: Session, user: str, password: str, mechanism: str = SCRAM, version: int = 2) -> None:
    first = client_first(user, "clients")
    challenge = await token(s, first, version)
    if challenge != CLOSED and not challenge.error_code:
        final, expected = client_final(HASHES[mechanism], first, challenge.auth_bytes, password)
        answer = await token(s, final, version)
        if answer != CLOSED and not answer.error_code:
            s.note("the server proves itself", answer.auth_bytes == expected)
            s.note("the session's end", getattr(answer, "session_lifetime", None))


@script(cases={f"{mechanism}_v{v}": (mechanism, v) for mechanism, v in itertools.product(HASHES, (0, 1, 2))})
async def login_with_the_right_password(s: Session, case: tuple[str, int]) -> None:
    mechanism, version = case
    await versions(s)
    await handshake(s, 1, mechanism)
    await log_in(s, USER, PASSWORD, mechanism, version)
    await heartbeat(s)
    await handshake(s)
    await s.ask("sasl_authenticate", version, auth_bytes=b"n,,n=alice,r=clients")
    await versions(s)


@script(cases={f"{mechanism}_v{v}": (mechanism, v) for mechanism, v in itertools.product(HASHES, (0, 1, 2))})
async def login_with_a_wrong_password(s: Session, case: tuple[str, int]) -> None:
    mechanism, version = case
    await handshake(s, 1, mechanism)
    await log_in(s, USER, PASSWORD + "x", mechanism, version)
    await handshake(s, 1, mechanism)
    await log_in(s, "nobody", PASSWORD, mechanism, version)


@script(cases={f"{name or 'empty'}_v{v}": (name, v) for name, v in itertools.product(["PLAIN", "GSSAPI", ""], (0, 1))})
async def handshake_of_a_mechanism_that_is_not_enabled(s: Session, case: tuple[str, int]) -> None:
    await handshake(s, case[1], case[0])
    await versions(s)


@script(versions=(0, 1))
async def handshake_tells_the_mechanisms(s: Session, version: int) -> None:
    await handshake(s, version)


@script(
    cases={
        "heartbeat": ["heartbeat"],
        "token": ["token"],
        "versions_twice": ["versions", "versions"],
        "versions_and_heartbeat": ["versions", "heartbeat"],
        "versions_and_token": ["versions", "token"],
        "versions_behind_the_handshake": ["handshake", "versions"],
        "two_handshakes": ["handshake", "handshake"],
        "heartbeat_behind_the_handshake": ["handshake", "heartbeat"],
        "all_in_order": ["versions", "handshake", "token"],
    }
)
async def requests_in_another_order(s: Session, case: list[str]) -> None:
    for each in case:
        if each == "heartbeat":
            await heartbeat(s)
        elif each == "token":
            await token(s, b"n,,n=alice,r=clients")
        elif each == "handshake":
            await handshake(s)
        else:
            await versions(s)


@script(versions=range(5))
async def versions_before_the_login(s: Session, version: int) -> None:
    await versions(s, version)
    await handshake(s)
    await log_in(s, USER, PASSWORD)


@script(cases={"named_badly": {"client_software_name": "", "client_software_version": "1"}})
async def versions_of_a_client(s: Session, case: dict[str, Any]) -> None:
    answer = await s.quietly("api_versions", 3, **case)
    s.note("api_versions v3", CLOSED if answer == CLOSED else answer.error_code)
    await versions(s)
    await handshake(s)


FIRST = {
    "empty": b"",
    "without_a_nonce": b"n,,n=alice",
    "with_channel_binding": b"p=tls-unique,,n=alice,r=clients",
    "that_could_bind": b"y,,n=alice,r=clients",
    "without_a_name": b"n,,n=,r=clients",
    "with_a_bad_escape": b"n,,n=al=ice,r=clients",
    "with_an_authorization_id": b"n,a=alice,n=alice,r=clients",
    "with_another_authorization_id": b"n,a=bob,n=alice,r=clients",
    "with_an_extension": b"n,,n=alice,r=clients,x=1",
    "with_a_token": b"n,,n=alice,r=clients,tokenauth=true",
    "of_a_mandatory_extension": b"n,,m=x,n=alice,r=clients",
    "of_other_bytes": b"\xff\xfe\x00\x01",
    "of_plain": b"\0alice\0pencil",
}


@script(cases=FIRST)
async def first_message(s: Session, case: bytes) -> None:
    await handshake(s)
    await token(s, case)


@script(
    cases={
        "empty": b"",
        "without_a_proof": b"c=biws,r=NONCE",
        "of_another_nonce": b"c=biws,r=clientsx,p=AAAA",
        "of_a_short_proof": b"c=biws,r=NONCE,p=AAAA",
        "of_no_base64": b"c=biws,r=NONCE,p=*",
        "of_zeros": b"c=biws,r=NONCE,p=" + b"A" * 86 + b"==",
    }
)
async def final_message(s: Session, case: bytes) -> None:
    await handshake(s)
    challenge = await token(s, b"n,,n=alice,r=clients")
    nonce = bytes(challenge.auth_bytes).split(b",")[0].removeprefix(b"r=")
    await token(s, case.replace(b"NONCE", nonce))
