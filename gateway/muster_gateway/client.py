"""The connection of one client: requests go to a broker or to Muster, answers come back in the requests' order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Protocol, cast

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.rotation import Rotation
from muster_coordinator.security.principal_mapping import NoPrincipalError
from muster_gateway import apis
from muster_gateway.apis import Treatment
from muster_gateway.at_muster import AtMuster
from muster_gateway.broker_connection import BrokerConnection
from muster_gateway.caller import ConnectionLostError, has_gone, keep_alive
from muster_gateway.counts import Traffic
from muster_gateway.dialling import Dialling
from muster_gateway.errors import ClientError, GatewayError, UpstreamError
from muster_gateway.flow import Busy, ReadGate
from muster_gateway.intake import Intake
from muster_gateway.muster import Muster
from muster_gateway.nodes import Kind, Nodes, Role
from muster_gateway.read_requests import NAMES_GROUPS, ReadRequests, Sides
from muster_gateway.refusal_log import RefusalLog
from muster_gateway.requests import RequestHead
from muster_gateway.rewriting import Announced, write_api_versions
from muster_gateway.slots import Slot, framed

COUNTED_BYTES = 4 << 10
"""The bytes that one connection may hold without being counted."""


HELD_BACK = Busy.CLIENT_SLOW | Busy.BROKER_SLOW | Busy.TOO_MANY | Busy.PARKED | Busy.ASKS
"""While one of these holds no request is taken, also of those that have come."""


Identify = Callable[[asyncio.BaseTransport], str]
"""The name of the user whose certificate the client has shown. Raises NoPrincipalError."""


class Connections(Sides, Protocol):
    """The state that all connections share, and the reports that they make."""

    nodes: Nodes
    muster: Muster
    dialling: Dialling
    identify: Identify | None
    traffic: Traffic
    rotation: Rotation
    refusals: RefusalLog

    def opened(self, client: ClientConnection) -> bool:
        """True if there is room for one more."""

    def closed(self, client: ClientConnection, reason: str | None) -> None: ...

    def held(self, client: ClientConnection, more: int) -> None:
        """It holds so many bytes more than before."""


class ClientConnection(asyncio.Protocol):
    """Implements `requests.RequestSink`, `read_requests.Slots`, `broker_connection.Client` and `rotation.Taking`.
    `user`: who has logged in at the gateway, or has shown its certificate; "": nobody. `peer`: its address and port."""

    def __init__(self, shared: Connections, role: Role, user: str = "") -> None:
        self.user = user
        self.held_bytes = 0  # as last reported
        self.last_active_s = asyncio.get_running_loop().time()
        self._shared = shared
        self._role = role
        self._intake = Intake(self, self, shared.rotation, shared.settings.max_read_bytes, self._has_room)
        self._slots: deque[Slot] = deque()
        self._slots_held = 0
        self._reading = ReadGate()
        self._transport: asyncio.Transport | None = None
        self._ended = False  # the client sends no more, and may still read
        self._broker: BrokerConnection | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.peer = ""
        self._reason: str | None = None
        self._at_muster = AtMuster(
            shared.settings,
            shared.muster,
            shared.nodes.pod,
            shared.routes.is_at_muster,
            user=lambda: self.user,
            ask=self.send_to_broker,  # no answer to the client: it is none of its slots
            answered=self._answered_by_muster,
            fail=self.fail,
        )
        self._read = ReadRequests(shared, role, self._at_muster, self)
        self._login_end: asyncio.TimerHandle | None = None
        self._login_over = False  # that of the gateway at the broker

    def __repr__(self) -> str:
        return f"<ClientConnection {self.peer} {self._role.kind.value} waiting={len(self._slots)}>"

    # -- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else ""
        self._reading.attach(self._transport)
        keep_alive(transport)
        if not self._shared.opened(self):
            self.close("too_many_connections")
        elif self._shared.identify is not None and not self.user:
            try:
                self.user = self._shared.identify(transport)
            except NoPrincipalError as error:
                self.fail("no_principal", error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._drop()
        self._shared.closed(self, self._reason)

    def data_received(self, data: bytes) -> None:
        self.last_active_s = asyncio.get_running_loop().time()
        self._take(data)

    def eof_received(self) -> bool:
        """Answer the requests that came before, as a broker does; not with TLS, where asyncio closes the connection."""
        self._ended = True
        self._reading.close(Busy.ENDED)
        self._close_if_done()
        return self._transport is not None and self._transport.get_extra_info("sslcontext") is None

    def pause_writing(self) -> None:
        self._reading.close(Busy.CLIENT_SLOW)
        if self._broker is not None:
            self._broker.reading.close(Busy.CLIENT_SLOW)

    def resume_writing(self) -> None:
        self._reading.open(Busy.CLIENT_SLOW)
        if self._broker is not None:
            self._broker.reading.open(Busy.CLIENT_SLOW)
        self._intake.wait()

    # -- turns --------------------------------------------------------------------------------------------------------

    def take_turn(self) -> None:
        """Implements `rotation.Taking`."""
        if self._transport is not None:
            self._take(None)

    def _take(self, data: bytes | None) -> None:
        try:
            self._intake.take(data)
        except ClientError as error:
            self.fail(error.reason, error)
            return
        if len(self._slots) >= self._shared.settings.max_in_flight:
            self._reading.close(Busy.TOO_MANY)
        if self._intake.waits:
            self._reading.close(Busy.WAITS)
        else:
            self._reading.open(Busy.WAITS)
            self._close_if_done()
        self._count()

    def _has_room(self) -> bool:
        if self._reading.is_closed(HELD_BACK):
            return False
        return len(self._slots) < self._shared.settings.max_in_flight and self._transport is not None

    # -- RequestSink --------------------------------------------------------------------------------------------------

    def begin(self, head: RequestHead) -> None:
        broker = self._to_broker()
        if head.answered:
            slot = Slot(head)
            self._slots.append(slot)
            broker.expect(slot)

    def forward(self, chunk: bytes | memoryview) -> None:
        if self._broker is not None:
            self._shared.traffic.to_brokers += len(chunk)
            self._broker.send(chunk)

    def whole(self, head: RequestHead, frame: bytes) -> None:
        if self._transport is None:
            return
        self._intake.was_read(len(frame))
        self._read.take(head, frame)

    def unknown_api_versions(self, correlation_id: int) -> None:
        """KIP-511: in version 0, with the versions of ApiVersions that there are."""
        rule = apis.RULES[apis.API_VERSIONS]
        announced = Announced({rule.key: (0, rule.max_version)}, int(ErrorCode.UNSUPPORTED_VERSION))
        slot = self.keep(Slot(RequestHead(rule, 0, correlation_id)))
        self.answered(slot, framed(write_api_versions(0, correlation_id, announced)))

    # -- slots --------------------------------------------------------------------------------------------------------

    def keep(self, slot: Slot) -> Slot:
        self._slots.append(slot)
        self._slots_held += slot.held
        return slot

    def grow(self, slot: Slot, more: int) -> None:
        self._slots_held += more
        slot.held += more

    def hold(self, why: Busy, held: bool) -> None:
        if held:
            self._reading.close(why)
        else:
            self._reading.open(why)
            self._intake.wait()

    def ends_if_gone(self) -> bool:
        if self._transport is not None and has_gone(self._transport):
            self.close("client_ended")
        return self._transport is None

    def send_to_broker(self, slot: Slot, frame: bytes) -> None:
        broker = self._to_broker()
        broker.expect(slot)
        broker.send(framed(frame))

    def _answered_by_muster(self, slot: Slot, answer: bytes) -> None:
        if slot.edit is not None:
            slot.edit(slot, answer)
            return
        if slot.head.rule.treatment is Treatment.LIST_GROUPS:
            answer = self._shared.shown.groups_of_muster(slot.head, answer)
        self.answered(slot, framed(answer))

    def later(self, slot: Slot, answer: Coroutine[object, object, bytes]) -> None:
        async def run() -> None:
            try:
                self.answered(slot, framed(await answer))
            except (GatewayError, ConnectionLostError) as error:
                self.fail("upstream_failed", error)

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: answer.close())  # nobody awaits it if the connection ends before `run` begins

    def answered(self, slot: Slot, answer: bytes) -> None:
        slot.answer = answer
        self._slots_held += len(answer) - slot.held
        slot.held = len(answer)
        self._go_on()

    def is_next(self, slot: Slot) -> bool:
        return bool(self._slots) and self._slots[0] is slot

    def pass_on(self, chunk: bytes | memoryview, last: bool) -> None:
        if self._transport is not None:
            self._shared.traffic.to_clients += len(chunk)
            self._transport.write(chunk)
        if last and self._slots:
            self._slots.popleft()
            self._go_on()

    def _go_on(self) -> None:
        """Write the answers that are next and there."""
        slots, transport = self._slots, self._transport
        if transport is None:
            return
        while slots and slots[0].answer is not None:
            slot = slots.popleft()
            self._slots_held -= slot.held
            transport.write(cast(bytes, slot.answer))
        if len(slots) < self._shared.settings.max_in_flight:
            self._reading.open(Busy.TOO_MANY)
            self._intake.wait()
        if slots and self._broker is not None:
            self._broker.go_on()
        self._close_if_done()
        self._count()

    # -- the broker ---------------------------------------------------------------------------------------------------

    def _to_broker(self) -> BrokerConnection:
        """The connection to the broker that this port stands for, or to any broker."""
        if self._broker is None:
            shared = self._shared
            self._broker = BrokerConnection(
                self, shared.nodes.broker_address, shared.settings.max_read_bytes, shared.rotation
            )
            if self._transport is not None:
                self._reading.close(Busy.BROKER_SLOW)
                task = asyncio.get_running_loop().create_task(self._connect(self._broker))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        return self._broker

    async def _connect(self, broker: BrokerConnection) -> None:
        try:
            lifetime_s = await self._shared.dialling.connect(broker, self._role)
        except (OSError, TimeoutError) as error:
            self.fail("broker_not_reachable", error)
            return
        if lifetime_s is not None:
            self._login_end = asyncio.get_running_loop().call_later(lifetime_s, self._login_ends)

    def _login_ends(self) -> None:
        """The broker is about to ask the gateway again who it is (KIP-368): a new connection says so as well, and the
        client makes one between two requests."""
        self._login_over = True
        self._close_if_done()

    def broker_slow(self, slow: bool) -> None:
        if slow:
            self._reading.close(Busy.BROKER_SLOW)
        else:
            self._reading.open(Busy.BROKER_SLOW)
            self._intake.wait()

    def broker_failed(self, error: UpstreamError) -> None:
        self.fail("broker_answer_malformed", error)

    def broker_lost(self, waiting: int) -> None:
        """A client of this broker loses its connection, as without the gateway. Any other client only if it waits."""
        if waiting or self._at_muster.has_logged_in or self._role.kind is Kind.BROKER:
            self.close("broker_lost")
        else:
            self._broker = None
            self._reading.open(Busy.BROKER_SLOW)
            self._intake.wait()

    # -- end ----------------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        return not self._slots and not self._intake.waits

    @property
    def waits_about_groups(self) -> bool:
        """True if a request that names groups is not answered yet."""
        return any(each.answer is None and each.head.rule.treatment in NAMES_GROUPS for each in self._slots)

    def close(self, reason: str) -> None:
        """Sends what has been written; requests that wait get no answer."""
        transport, self._transport = self._transport, None
        if transport is not None:
            self._reason = reason
            self._drop()
            transport.close()

    def abort(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            self._reason = "aborted"
            self._drop()
            transport.abort()

    def fail(self, reason: str, error: Exception) -> None:
        if self._transport is not None:
            self._shared.refusals.tell(self.peer, reason, str(error) or repr(error))
            self.close(reason)

    def _close_if_done(self) -> None:
        if self.is_idle and (self._ended or self._login_over):
            self.close("client_ended" if self._ended else "login_over")

    def _drop(self) -> None:
        self._transport = None
        self._intake.close()
        self._slots.clear()
        self._slots_held = 0
        if self._broker is not None:
            self._broker.close()
        self._at_muster.close()
        self._read.close()
        if self._login_end is not None:
            self._login_end.cancel()
        for task in self._tasks:
            task.cancel()
        self._count()

    def _count(self) -> None:
        """Report what this connection holds."""
        held = 0
        if self._transport is not None:
            held = self._intake.held + self._slots_held + (self._broker.held if self._broker is not None else 0)
        if held <= COUNTED_BYTES:
            held = 0
        if held != self.held_bytes:
            more, self.held_bytes = held - self.held_bytes, held
            self._shared.held(self, more)
