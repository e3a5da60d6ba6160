"""OAUTHBEARER: which tokens are taken, what a refused client is told, and how long a login counts."""

from __future__ import annotations

import time
from typing import Any

from tests.conformance.registry import script
from tests.conformance.session import CLOSED, Session
from tests.conformance.token_logins import SETTINGS as SETTINGS
from tests.conformance.token_logins import provider


async def handshake(s: Session, version: int = 1) -> None:
    await s.ask("sasl_handshake", version, mechanism="OAUTHBEARER")


async def send(s: Session, value: bytes, version: int = 2) -> Any:
    """The rest of the session's time differs by nature: within how many seconds it ends is recorded."""
    answer = await s.quietly("sasl_authenticate", version, auth_bytes=value)
    if answer == CLOSED:
        s.note(f"sasl_authenticate v{version}", CLOSED)
        return answer
    s.note(f"sasl_authenticate v{version}", (answer.error_code, answer.error_message, answer.auth_bytes))
    if version >= 1:
        lifetime_s = answer.session_lifetime.total_seconds()
        s.note("the session's end", 0 if lifetime_s == 0 else -(-lifetime_s // 20) * 20)
    return answer


def message(token: str, authorization_id: str = "", more: str = "") -> bytes:
    authzid = f"a={authorization_id}" if authorization_id else ""
    return f"n,{authzid},\x01auth=Bearer {token}\x01{more}\x01".encode()


async def log_in(s: Session, token: str, version: int = 2) -> None:
    """To the end, as clients do: who is told that its token is not good says so with one more byte."""
    await handshake(s)
    answer = await send(s, message(token), version)
    if answer != CLOSED and answer.auth_bytes:
        await send(s, b"\x01", version)
    await s.ask("heartbeat", 4, group_id=s.group, generation_id=1, member_id="m")


@script(versions=(0, 1, 2))
async def token_that_is_good(s: Session, version: int) -> None:
    await log_in(s, provider().token(lifetime_s=590), version)


@script(versions=(0, 1, 2))
async def token_that_has_ended(s: Session, version: int) -> None:
    await log_in(s, provider().token(lifetime_s=-60), version)


CLAIMS: dict[str, dict[str, Any]] = {
    "ends_in_the_skew": {"exp": -20, "iat": -100},
    "ended_before_the_skew": {"exp": -40, "iat": -100},
    "counts_later": {"nbf": 100},
    "counts_in_the_skew": {"nbf": 20},
    "issued_in_the_future": {"iat": 100},
    "ends_before_it_was_issued": {"iat": 1000},
    "without_an_end": {"exp": None},
    "without_an_issue": {"iat": None},
    "without_a_user": {"sub": None},
    "of_an_empty_user": {"sub": ""},
    "of_a_blank_user": {"sub": "  "},
    "of_a_user_in_blanks": {"sub": " alice "},
    "of_a_number": {"sub": 7},
    "without_an_audience": {"aud": None},
    "of_the_other_audience": {"aud": "other"},
    "of_several_audiences": {"aud": ["x", "muster"]},
    "of_another_audience": {"aud": "x"},
    "of_no_audience": {"aud": []},
    "without_an_issuer": {"iss": None},
    "of_another_issuer": {"iss": "https://elsewhere.test"},
    "of_several_issuers": {"iss": ["https://idp.test"]},
    "with_a_scope": {"scope": "a b"},
    "with_scopes": {"scope": ["a", "b"]},
    "that_ends_with_a_word": {"exp": "later"},
    "that_ends_with_a_number_in_a_text": {"exp": "9999999999"},
    "that_ends_with_a_fraction": {"exp": 590.5},
}


@script(cases=CLAIMS)
async def token_with_claims(s: Session, case: dict[str, Any]) -> None:
    """Times are seconds from now on."""
    now = int(time.time())
    claims = {k: now + v if k in ("exp", "iat", "nbf") and isinstance(v, int | float) else v for k, v in case.items()}
    await log_in(s, provider().token(**({"exp": now + 590} | claims)))


KEYS = {
    "elliptic": ("elliptic", "ES256"),
    "pinned": ("pinned", "RS512"),
    "stranger_of_a_known_name": ("known", "PS256"),
    "unknown": ("unknown", "RS256"),
    "without_a_name": (None, "RS256"),
    "for_encryption": ("for-encryption", "RS256"),
}


@script(cases=KEYS)
async def token_of_a_key(s: Session, case: tuple[str | None, str]) -> None:
    """Those that both servers know are in `token_logins.write`."""
    await log_in(s, provider(*case).token(lifetime_s=590))


@script(cases={name: name for name in ("RS384", "PS256", "PS512")})
async def token_of_another_algorithm_of_the_key(s: Session, case: str) -> None:
    import jwt  # only where these scripts run

    now = int(time.time())
    claims = {"sub": "alice", "iat": now, "exp": now + 590, "aud": "muster", "iss": "https://idp.test"}
    for key_id in ("known", "pinned"):
        key = provider("pinned", "RS512") if key_id == "pinned" else provider()
        await log_in(s, jwt.encode(claims, key.key, case, headers={"kid": key_id}))


@script(cases={name: name for name in ("none", "unsigned", "changed", "text", "two_parts", "empty_parts")})
async def token_that_is_forged(s: Session, case: str) -> None:
    import jwt

    good = provider().token(lifetime_s=590)
    head, body, signature = good.split(".")
    await log_in(
        s,
        {
            "none": jwt.encode({"sub": "alice"}, None, "none"),
            "unsigned": f"{head}.{body}.",
            "changed": f"{head}.{body}.{signature[:-8]}AAAAAAAA",
            "text": "text",
            "two_parts": f"{head}.{body}",
            "empty_parts": "..",
        }[case],
    )


MESSAGES = {
    "empty": b"",
    "of_one_byte": b"\x01",
    "without_pairs": b"n,,\x01\x01",
    "with_channel_binding": b"y,,\x01auth=Bearer TOKEN\x01\x01",
    "without_an_end": b"n,,\x01auth=Bearer TOKEN\x01",
    "of_another_scheme": b"n,,\x01auth=Basic TOKEN\x01\x01",
    "without_a_scheme": b"n,,\x01auth=TOKEN\x01\x01",
    "in_other_letters": b"n,,\x01auth=bEARER   TOKEN\x01\x01",
    "with_an_extension": b"n,,\x01trace=1\x01auth=Bearer TOKEN\x01\x01",
    "with_its_user": b"n,a=alice,\x01auth=Bearer TOKEN\x01\x01",
    "with_another_user": b"n,a=bob,\x01auth=Bearer TOKEN\x01\x01",
    "of_other_bytes": b"\xff\xfe\x00\x01",
    "of_plain": b"\0alice\0pencil",
}


@script(cases=MESSAGES)
async def first_message_of_a_token(s: Session, case: bytes) -> None:
    await handshake(s)
    await send(s, case.replace(b"TOKEN", provider().token(lifetime_s=590).encode()))
    await s.ask("heartbeat", 4, group_id=s.group, generation_id=1, member_id="m")


@script()
async def another_byte_behind_a_refused_token(s: Session) -> None:
    await handshake(s)
    await send(s, message(provider().token(lifetime_s=-60)))
    await send(s, b"\x02")


@script()
async def client_says_again_who_it_is_with_another_token(s: Session) -> None:
    await handshake(s)
    await send(s, message(provider().token(lifetime_s=590)))
    await handshake(s)
    await send(s, message(provider().token(lifetime_s=290)))
    await s.ask("heartbeat", 4, group_id=s.group, generation_id=1, member_id="m")


@script()
async def client_says_again_who_it_is_as_another(s: Session) -> None:
    await handshake(s)
    await send(s, message(provider().token(lifetime_s=590)))
    await handshake(s)
    await send(s, message(provider().token("bob", lifetime_s=590)))
    await s.ask("heartbeat", 4, group_id=s.group, generation_id=1, member_id="m")


@script()
async def client_says_again_who_it_is_with_a_bad_token(s: Session) -> None:
    await handshake(s)
    await send(s, message(provider().token(lifetime_s=590)))
    await handshake(s)
    await send(s, message(provider().token(lifetime_s=-60)))
    await send(s, b"\x01")
    await s.ask("heartbeat", 4, group_id=s.group, generation_id=1, member_id="m")


@script(versions=(0, 1))
async def handshake_of_another_mechanism_than_tokens(s: Session, version: int) -> None:
    await s.ask("sasl_handshake", version, mechanism="PLAIN")


@script()
async def good_token_behind_a_refused_one(s: Session) -> None:
    await handshake(s)
    await send(s, message(provider().token(lifetime_s=-60)))
    await send(s, message(provider().token(lifetime_s=590)))
