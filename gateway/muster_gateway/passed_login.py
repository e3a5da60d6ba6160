"""A client whose login passes to its broker: the broker alone says whether it is who it says it is.

Requests for groups at Muster never reach a broker, so one of the gateway's own goes ahead of them on the client's
connection to its broker: DescribeCluster, which brokers answer only to clients that are known. That holds for whatever
mechanism, and notices sessions that ended. Who the client is comes from the logins that the broker has taken.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

from muster_coordinator.requests.cluster import SaslAuthenticateRequest, SaslHandshakeRequest
from muster_coordinator.security.identity import ANONYMOUS
from muster_coordinator.wire.codec import Reader
from muster_coordinator.wire.errors import WireError
from muster_coordinator.wire.framing import read_header
from muster_gateway import apis
from muster_gateway.errors import ClientError, UpstreamError
from muster_gateway.login_record import LoginRecord
from muster_gateway.requests import RequestHead
from muster_gateway.rewriting import answer_body, guarded
from muster_gateway.slots import Slot

KNOWN_S = 10.0
"""The time for which the broker's word counts: a session that ended there is noticed after it."""

_HEAD = RequestHead(apis.RULES[apis.DESCRIBE_CLUSTER], 0, 1)
_PROBE = struct.pack(">hhih", apis.DESCRIBE_CLUSTER, 0, 1, -1) + b"\0" + b"\0" + b"\0"
"""DescribeCluster 0: a header without client id and tagged fields; no authorized operations; no tagged fields."""


NOBODY = ANONYMOUS.removeprefix("User:")
"""The user for whom a client acts that its broker knows, and whose name the gateway cannot read."""


class PassedLogin:
    """`name_claim`: which claim of a token of OAUTHBEARER has the user's name. `ask` sends a request of the gateway's
    own to the client's broker; `refuse` ends the client's connection.

    `begun`: whether the client has begun to log in.
    """

    def __init__(
        self, name_claim: str, ask: Callable[[Slot, bytes], None], refuse: Callable[[str, Exception], None]
    ) -> None:
        self.begun = False
        self._record = LoginRecord(name_claim)
        self._ask = ask
        self._refuse = refuse
        self._good_until_s = 0.0
        self._asked: list[Callable[[], None]] | None = None
        """The callbacks that wait for the answer to the question after the last login; None: no question is open."""

    @property
    def user(self) -> str:
        """The user for whom the client acts, while what waits goes on: it is the same one on the whole connection."""
        return self._record.user or NOBODY

    def read(self, head: RequestHead, frame: bytes) -> Callable[[bytes], None]:
        """SaslHandshake or SaslAuthenticate, on its way to the broker; what is returned is to be called with the
        broker's answer, before the client can have it. Raises ClientError."""
        if head.rule.key == apis.SASL_HANDSHAKE and head.version == 0:
            raise ClientError("unsupported_request", "SaslHandshake 0, after which tokens come without a header")
        try:
            header = read_header(frame)
            request = header.api.decode_request(header, frame, "")
        except WireError as error:
            raise ClientError("malformed_request", f"{head.rule.name} v{head.version}: {error}") from error
        assert isinstance(request, SaslHandshakeRequest | SaslAuthenticateRequest)
        self.begun = True
        self._good_until_s, self._asked = 0.0, None
        return lambda answer: self._learn(head, request, answer)

    def _learn(self, head: RequestHead, request: SaslHandshakeRequest | SaslAuthenticateRequest, answer: bytes) -> None:
        before = self._record.user
        try:
            if isinstance(request, SaslHandshakeRequest):
                self._record.handshake(request.mechanism, _handshake_taken(answer))
            else:
                self._record.token(request.auth_bytes, _token_of_answer(head, answer))
        except UpstreamError:
            self._record.not_read()
        if before not in (None, self._record.user):
            self._refuse("another_user", ClientError("another_user", "a login of another user on the same connection"))

    def when_known(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` when the broker has said that the client is known, in the order of the calls."""
        if asyncio.get_running_loop().time() < self._good_until_s:
            go_on()
        elif self._asked is not None:
            self._asked.append(go_on)
        else:
            waiting = self._asked = [go_on]
            self._ask(Slot(_HEAD, lambda _slot, frame: self._answered(waiting, frame)), _PROBE)

    def _answered(self, waiting: list[Callable[[], None]], frame: bytes) -> None:
        """Raises UpstreamError."""
        code = _error_code(frame)
        if code or self._record.under_way:
            said = f"its broker answers {code}" if code else "its broker lets it in before its login has ended"
            self._refuse("client_not_known", ClientError("client_not_known", said))
            return
        if self._asked is waiting:  # else the client has begun another login since
            self._good_until_s, self._asked = asyncio.get_running_loop().time() + KNOWN_S, None
        for go_on in waiting:
            go_on()


@guarded
def _error_code(frame: bytes) -> int:
    position = answer_body(frame, True) + 4  # throttle time
    return int(struct.unpack_from(">h", frame, position)[0])


@guarded
def _handshake_taken(frame: bytes) -> bool:
    return Reader(frame, 4, False).int16() == 0


@guarded
def _token_of_answer(head: RequestHead, frame: bytes) -> bytes | None:
    """The token in an answer to SaslAuthenticate; None: an error."""
    reader = Reader(frame, answer_body(frame, head.flexible), head.flexible)
    code = reader.int16()
    reader.nullable_string()
    return reader.byte_string() if code == 0 else None
