"""Logins that pass to a broker, in every order of frames: nobody acts at Muster as somebody whom the broker does not
know on that connection."""

from __future__ import annotations

import asyncio
import base64
import struct
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.wire import k17_sasl_handshake, k36_sasl_authenticate
from muster_coordinator.wire.codec import Writer
from muster_gateway import apis
from muster_gateway.at_muster import AtMuster
from muster_gateway.group_lane import Request
from muster_gateway.login_record import LoginRecord
from muster_gateway.requests import RequestHead
from muster_gateway.settings import parse_settings
from muster_gateway.slots import Slot

PLAIN, SCRAM, OAUTHBEARER, GSSAPI = "PLAIN", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"
ILLEGAL_STATE, UNSUPPORTED_MECHANISM, FAILED = 34, 33, 58
USERS = {"alice", "mallory", "admin"}
OWNERS = {"t-1": "alice", "t-2": "mallory", "admin": "mallory"}
"""Delegation tokens by id. One has a user's name: the worst that could be."""


def jwt(claims: bytes) -> str:
    return f"e30.{base64.urlsafe_b64encode(claims).rstrip(b'=').decode()}.x"


GIVEN_OUT = {jwt(b'{"sub": "alice"}'): "alice", jwt(b'{"sub": "mallory"}'): "mallory", "opaque": "mallory"}
"""Tokens of the provider, and to whom it has given them."""


def bearer(token: str) -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


Acts = tuple[str, Any]
HANDSHAKES: list[Acts] = [("handshake", each) for each in (PLAIN, SCRAM, OAUTHBEARER, GSSAPI, "plain", "OTHER")]
TOKENS: list[Acts] = [
    ("token", token)
    for token in (
        b"\0alice\0right",
        b"alice\0alice\0right",
        b"\0mallory\0right",
        b"\0admin\0wrong",
        b"admin\0mallory\0right",
        b"n,,n=alice,r=x",
        b"n,,n=mallory,r=x",
        b"n,,n=admin,r=x",
        b"n,a=admin,n=mallory,r=x",
        b"n,,n=t-1,r=x,tokenauth=true",
        b"n,,n=t-2,r=x,tokenauth=TRUE",
        b"n,,n=admin,r=x,tokenauth=True",
        b"c=biws,r=xs,p=right",
        b"c=biws,r=xs,p=wrong",
        *(bearer(each) for each in (*GIVEN_OUT, jwt(b'{"sub": "admin"}'))),
        b"\x01",
        b"",
        b"ticket of mallory",
    )
]
FRAMES = st.sampled_from([*HANDSHAKES, *TOKENS, ("group", None)])
LOGINS = st.sampled_from(
    [
        [("handshake", PLAIN), ("token", b"\0mallory\0right")],
        [("handshake", PLAIN), ("token", b"\0alice\0right")],
        [("handshake", SCRAM), ("token", b"n,,n=mallory,r=x"), ("token", b"c=biws,r=xs,p=right")],
        [("handshake", SCRAM), ("token", b"n,,n=admin,r=x,tokenauth=True"), ("token", b"c=biws,r=xs,p=right")],
        [("handshake", OAUTHBEARER), ("token", bearer("opaque"))],
        [("handshake", GSSAPI), ("token", b"ticket of mallory"), ("token", b"")],
    ]
)
ORDERS = st.lists(LOGINS | FRAMES.map(lambda frame: [frame]), max_size=8).map(
    lambda parts: [frame for part in parts for frame in part]
)


class Broker:
    """As Kafka's SaslServerAuthenticator and KafkaApis behave. `hangs_up`: it ends connections whose logins fail, as
    Kafka does; `again`: whether a login after the first one counts now (Kafka: a second after the last)."""

    def __init__(self, hangs_up: bool, again: bool) -> None:
        self.user: str | None = None
        self.gone = False
        self._hangs_up = hangs_up
        self._again = again
        self._mechanism = ""
        self._candidate: str | None = None
        self._refused = False

    def handshake(self, mechanism: str) -> int:
        if self._mechanism:
            return self._fails(ILLEGAL_STATE)
        if self.user is not None and not self._again:
            return ILLEGAL_STATE
        if mechanism not in (PLAIN, SCRAM, OAUTHBEARER, GSSAPI):
            return self._fails(UNSUPPORTED_MECHANISM)
        self._mechanism, self._candidate, self._refused = mechanism, None, False
        return 0

    def token(self, token: bytes) -> tuple[int, bytes]:
        if not self._mechanism:
            return (ILLEGAL_STATE if self.user is not None else self._fails(ILLEGAL_STATE)), b""
        step: Callable[[bytes], bytes | None] = {
            PLAIN: self._plain,
            SCRAM: self._scram,
            OAUTHBEARER: self._bearer,
            GSSAPI: self._ticket,
        }[self._mechanism]
        answer = step(token)
        return (0, answer) if answer is not None else (self._fails(FAILED), b"")

    def knows(self) -> bool:
        if self._mechanism or self.user is None:
            self.gone = True
        return not self.gone

    def _fails(self, code: int) -> int:
        self._mechanism, self.gone = "", self._hangs_up
        return code

    def _lets_in(self, user: str | None, answer: bytes) -> bytes | None:
        if user is None or self.user not in (None, user):
            return None
        self.user, self._mechanism = user, ""
        return answer

    def _plain(self, token: bytes) -> bytes | None:
        parts = token.decode().split("\0")
        if len(parts) != 3 or parts[0] not in ("", parts[1]) or parts[1] not in USERS or parts[2] != "right":
            return None
        return self._lets_in(parts[1], b"")

    def _scram(self, token: bytes) -> bytes | None:
        if self._candidate is not None:
            return self._lets_in(self._candidate if token.endswith(b"p=right") else None, b"v=c2lnbmVk")
        pairs = dict(each.split("=", 1) for each in token.decode().split(",") if "=" in each)
        name = pairs.get("n", "")
        if not token.startswith(b"n,") or pairs.get("a", name) != name:
            return None
        by_token = pairs.get("tokenauth", "").lower() == "true"
        self._candidate = OWNERS.get(name) if by_token else name if name in USERS else None
        return b"r=xs,s=c2FsdA==,i=4096" if self._candidate is not None else None

    def _bearer(self, token: bytes) -> bytes | None:
        if self._refused or not token.startswith(b"n,"):
            return None
        user = GIVEN_OUT.get(token.decode().partition("Bearer ")[2].strip("\x01"))
        if user is not None:
            return self._lets_in(user, b"")
        self._refused = True
        return b'{"status":"invalid_token"}'

    def _ticket(self, token: bytes) -> bytes | None:
        if self._candidate is not None:
            return self._lets_in(self._candidate, b"")
        self._candidate = "mallory" if token == b"ticket of mallory" else None
        return b"more" if self._candidate is not None else None


class Connection:
    """A client's connection with its broker: frames go there at once, answers come when `answer` is called."""

    def __init__(self, broker: Broker, version: int, cut: bool) -> None:
        self.acted: list[tuple[str, str | None]] = []
        """For whom a group was asked for, and whom the broker knew then."""
        self.ended = ""
        self._broker = broker
        self._version = version
        self._cut = cut
        self._unanswered: deque[Callable[[], None]] = deque()
        settings = parse_settings(
            {
                "upstream.bootstrap.servers": "127.0.0.1:9092",
                "upstream.security.protocol": "SASL_PLAINTEXT",
                "upstream.sasl.mechanism": SCRAM,
                "upstream.sasl.dir": "/a",
                "muster.security.protocol": "SASL_PLAINTEXT",
                "muster.sasl.mechanism": SCRAM,
                "muster.sasl.dir": "/a",
                "muster.act.for.clients": "1",
            }
        )
        self._at_muster = AtMuster(
            settings,
            cast(Any, None),
            lambda pod: None,
            lambda group: True,
            user=lambda: "gateway",
            ask=self._ask,
            answered=lambda slot, answer: None,
            fail=self._fail,
        )

    def lane(self, _muster: Any, _address_of: Any, _is_here: Any, _park_s: float, user: str, **_: Any) -> Any:
        """In place of GroupLane."""
        return SimpleNamespace(submit=lambda request: self.acted.append((user, self._broker.user)))

    def handshake(self, mechanism: str) -> None:
        body = k17_sasl_handshake.encode_request(mechanism)

        def answer() -> bytes:
            response = Writer(False)
            response.int16(self._broker.handshake(mechanism))
            response.array((), response.string)
            return response.done()

        self._login(RequestHead(apis.RULES[apis.SASL_HANDSHAKE], 1, 1), body, answer)

    def token(self, token: bytes) -> None:
        head = RequestHead(apis.RULES[apis.SASL_AUTHENTICATE], self._version, 1)
        body = Writer(head.flexible)
        body.byte_string(token)

        def answer() -> bytes:
            code, content = self._broker.token(token)
            response = Writer(head.flexible)
            response.int16(code)
            response.nullable_string("no" if code else None)
            response.byte_string(content)
            if self._version >= 1:
                response.int64(0)
            return ((b"\0" if head.flexible else b"") + response.done())[: 1 if self._cut else None]

        self._login(head, body.done(), answer)

    def group(self, _: None = None) -> None:
        head = RequestHead(apis.RULES[apis.HEARTBEAT], 0, 1)
        if not self.ended:
            self._at_muster.submit(Request(Slot(head), b"", "m-1"))

    def answer(self) -> None:
        """To what the broker has got first."""
        if self._unanswered and not self.ended and not self._broker.gone:
            self._unanswered.popleft()()

    def _login(self, head: RequestHead, body: bytes, answer: Callable[[], bytes]) -> None:
        if self.ended:
            return
        header = struct.pack(">hhih", head.rule.key, head.version, 1, -1) + (b"\0" if head.flexible else b"")
        learn = self._at_muster.read_login(head, header + body)
        assert learn is not None
        self._unanswered.append(lambda: learn(struct.pack(">i", 1) + answer()))

    def _ask(self, slot: Slot, probe: bytes) -> None:
        def answered() -> None:
            if self._broker.knows():
                assert slot.edit is not None
                slot.edit(slot, struct.pack(">ib", 1, 0) + struct.pack(">ih", 0, 0))

        self._unanswered.append(answered)

    def _fail(self, reason: str, error: Exception) -> None:
        self.ended = reason


def run(broker: Broker, version: int, frames: list[Acts], lags: list[int], cut: bool = False) -> Connection:
    """`lags`: how many answers come after each frame; all in the end. `cut`: answers to tokens end too early."""

    async def talk() -> Connection:
        connection = Connection(broker, version, cut)
        with patch("muster_gateway.at_muster.GroupLane", connection.lane):
            for number, (what, content) in enumerate(frames):
                getattr(connection, what)(content)
                for _ in range(lags[number % len(lags)]):
                    connection.answer()
            connection.group()
            for _ in range(3 * len(frames) + 3):
                connection.answer()
        return connection

    return asyncio.run(talk())


@given(
    frames=ORDERS,
    lags=st.lists(st.integers(0, 3), min_size=1, max_size=5),
    hangs_up=st.booleans(),
    again=st.booleans(),
    version=st.integers(0, k36_sasl_authenticate.API.max_version),
)
def test_nobody_acts_for_another_user_than_the_broker_knows_whatever_the_order_of_frames(
    frames: list[Acts], lags: list[int], hangs_up: bool, again: bool, version: int
) -> None:
    connection = run(Broker(hangs_up, again), version, frames, lags)
    for acts_for, known in connection.acted:
        assert known is not None
        assert acts_for in (known, "ANONYMOUS")


BY_SCRAM = [("handshake", SCRAM), ("token", b"n,,n=alice,r=x"), ("token", b"c=biws,r=xs,p=right")]
BY_TOKEN = [("handshake", SCRAM), ("token", b"n,,n=t-1,r=x,tokenauth=true"), ("token", b"c=biws,r=xs,p=right")]
BY_PLAIN = [("handshake", PLAIN), ("token", b"\0alice\0right")]
BY_BEARER = [("handshake", OAUTHBEARER), ("token", bearer(next(iter(GIVEN_OUT))))]
BY_TICKET = [("handshake", GSSAPI), ("token", b"ticket of mallory"), ("token", b"")]
STRAY = [("token", b"\0admin\0x")]


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize(
    ("frames", "acts_for"),
    [
        (BY_SCRAM, "alice"),
        (BY_PLAIN, "alice"),
        (BY_BEARER, "alice"),
        (BY_TOKEN, "ANONYMOUS"),
        (BY_TICKET, "ANONYMOUS"),
        (BY_SCRAM + BY_SCRAM, "alice"),
        (BY_PLAIN + BY_BEARER + BY_SCRAM, "alice"),
        (BY_TOKEN + STRAY, "ANONYMOUS"),
        (BY_TICKET + STRAY, "ANONYMOUS"),
        (BY_SCRAM + STRAY, "alice"),
        ([*BY_SCRAM, ("handshake", "OTHER")], "alice"),
        ([*BY_TOKEN, ("handshake", "OTHER"), *STRAY], "ANONYMOUS"),
    ],
)
def test_client_acts_for_whom_its_last_login_names(frames: list[Acts], acts_for: str, lag: int) -> None:
    connection = run(Broker(False, True), 2, frames, [lag])
    assert (connection.acted, connection.ended) == ([(acts_for, connection._broker.user)], "")


@pytest.mark.parametrize("frames", [BY_SCRAM + BY_TOKEN, BY_TOKEN + BY_SCRAM])
def test_connection_ends_when_another_login_does_not_say_the_same_name(frames: list[Acts]) -> None:
    """The broker knows that it is the same user; the gateway does not."""
    connection = run(Broker(True, True), 1, frames, [1])
    assert (connection.acted, connection.ended) == ([], "another_user")


def test_answer_to_a_login_that_cannot_be_read_names_nobody() -> None:
    assert run(Broker(False, False), 1, BY_PLAIN, [1], cut=True).acted == [("ANONYMOUS", "alice")]


def test_client_that_a_broker_lets_in_before_its_login_has_ended_is_refused() -> None:
    broker = Broker(False, False)
    with patch.object(broker, "knows", lambda: True):
        connection = run(broker, 1, BY_SCRAM[:2], [1])
    assert (connection.acted, connection.ended) == ([], "client_not_known")


@pytest.mark.parametrize(
    ("mechanism", "steps"),
    [
        (None, [(b"\0admin\0x", b"")]),
        (PLAIN, [(b"\0admin\0x", b"more")]),
        (SCRAM, [(b"n,,n=admin,r=x", b"")]),
        (SCRAM, [(b"n,,n=admin,r=x", b"v=x")]),
        (SCRAM, [(b"n,,n=admin,r=x", b"r=x"), (b"p=x", b"e=other-error")]),
        (OAUTHBEARER, [(bearer(jwt(b'{"sub": "admin"}')), b"no"), (b"\x01", b"")]),
        ("PLAIN ", [(b"\0admin\0x", b"")]),
    ],
)
def test_exchange_that_does_not_go_as_its_mechanism_does_names_nobody(
    mechanism: str | None, steps: list[tuple[bytes, bytes]]
) -> None:
    record = LoginRecord("sub")
    if mechanism is not None:
        record.handshake(mechanism, True)
    for token, answer in steps:
        record.token(token, answer)
    assert (record.user, record.under_way) == ("", False)
