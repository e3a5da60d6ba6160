"""The requests of one client to Muster: sent once the client is known, and on behalf of its user."""

from __future__ import annotations

from collections.abc import Callable

from muster_gateway.caller import Address
from muster_gateway.group_lane import GroupLane, Request
from muster_gateway.muster import Muster
from muster_gateway.passed_login import NOBODY, PassedLogin
from muster_gateway.requests import RequestHead
from muster_gateway.settings import GatewaySettings
from muster_gateway.slots import Slot


class AtMuster:
    """`address_of`: a pod's. `is_here`: whether Muster serves a group. `user`: whom the gateway itself knows the client
    as. `ask` sends a request of the gateway's own to the client's broker, `answered` takes what a pod has answered,
    `fail` ends the client's connection."""

    def __init__(
        self,
        settings: GatewaySettings,
        muster: Muster,
        address_of: Callable[[int], Address | None],
        is_here: Callable[[str], bool],
        *,
        user: Callable[[], str],
        ask: Callable[[Slot, bytes], None],
        answered: Callable[[Slot, bytes], None],
        fail: Callable[[str, Exception], None],
    ) -> None:
        self._settings = settings
        self._muster = muster
        self._address_of = address_of
        self._is_here = is_here
        self._user = user
        self._answered = answered
        self._fail = fail
        self._login = PassedLogin(settings.sub_claim_name, ask, fail) if settings.logins_pass else None
        self._lane: GroupLane | None = None
        self._closed = False

    @property
    def has_logged_in(self) -> bool:
        """True if the client has logged in at its broker, which is the only one that knows of it."""
        return self._login is not None and self._login.begun

    def read_login(self, head: RequestHead, frame: bytes) -> Callable[[bytes], None] | None:
        """SaslHandshake or SaslAuthenticate on its way to the broker. Returns who is to see the broker's answer. Raises
        ClientError."""
        return self._login.read(head, frame) if self._login is not None else None

    def when_known(self, go_on: Callable[[], None]) -> None:
        """Calls `go_on`, not before the broker says that it knows the client, where that is the broker's to say."""
        if self._login is None:
            go_on()
        else:
            self._login.when_known(go_on)

    def submit(self, request: Request) -> None:
        """Sends the request to the leader of its group's partition, or to its pod."""
        if self._lane is not None and self._login is None:
            self._lane.submit(request)
        else:
            self.when_known(lambda: self._submit(request))

    def close(self) -> None:
        """Drops the requests that wait."""
        self._closed = True
        if self._lane is not None:
            self._lane.close()

    def _submit(self, request: Request) -> None:
        if self._closed:
            return
        if self._lane is None:
            user = ""
            if self._settings.muster_act_for_clients:
                user = (self._login.user if self._login is not None else self._user()) or NOBODY
            self._lane = GroupLane(
                self._muster,
                self._address_of,
                self._is_here,
                self._settings.park_ms / 1000,
                user,
                answered=self._answered,
                broken=lambda error: self._fail("muster_failed", error),
            )
        self._lane.submit(request)
