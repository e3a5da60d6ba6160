"""The connection of one client: requests go to a broker or to Muster, answers come back in the requests' order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Protocol, cast

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.rotation import Rotation
from muster_coordinator.security.principal_mapping import NoPrincipalError
from muster_gateway import apis
from muster_gateway.apis import Treatment
from muster_gateway.at_muster import AtMuster
from muster_gateway.broker_connection import BrokerConnection
from muster_gateway.by_id import RequestsById
from muster_gateway.caller import ConnectionLostError, keep_alive
from muster_gateway.coordinators import Coordinators
from muster_gateway.counts import Traffic
from muster_gateway.dialling import Dialling
from muster_gateway.errors import ClientError, GatewayError, UpstreamError
from muster_gateway.flow import Busy, ReadGate
from muster_gateway.group_lane import Request
from muster_gateway.group_requests import configured_groups, group_ids, lists_groups, refused
from muster_gateway.intake import Intake
from muster_gateway.movable import MovableRequests
from muster_gateway.moves import Moves
from muster_gateway.muster import Muster
from muster_gateway.nodes import Kind, Nodes, Role
from muster_gateway.refusal_log import RefusalLog
from muster_gateway.requests import RequestHead
from muster_gateway.rewriting import Announced, write_api_versions
from muster_gateway.routes import Routes
from muster_gateway.settings import GatewaySettings
from muster_gateway.shown import Shown
from muster_gateway.slots import Slot, framed
from muster_gateway.topic_ids import TopicNames, names_topics_by_id
from muster_gateway.upstream import Upstream

COUNTED_BYTES = 4 << 10
"""The bytes that one connection may hold without being counted."""


ANY_GROUP = ""
"""Any pod answers what is asked about no group: the leader of this one is looked for, and found again after it ends."""

NAMES_GROUPS = (Treatment.GROUP, Treatment.CONFIGS)
"""Requests that go to the side that serves their groups."""

HELD_BACK = Busy.CLIENT_SLOW | Busy.BROKER_SLOW | Busy.TOO_MANY | Busy.PARKED | Busy.ASKS
"""While one of these holds no request is taken, also of those that have come."""


Show = Callable[[RequestHead, bytes], bytes | Coroutine[object, object, bytes]]
"""Head of a request and frame of its answer -> the frame that the client gets. Raises UpstreamError."""
Identify = Callable[[asyncio.BaseTransport], str]
"""The name of the user whose certificate the client has shown. Raises NoPrincipalError."""


class Connections(Protocol):
    """The state that all connections share, and the reports that they make."""

    settings: GatewaySettings
    routes: Routes
    moves: Moves | None
    nodes: Nodes
    upstream: Upstream
    muster: Muster
    coordinators: Coordinators
    shown: Shown
    dialling: Dialling
    identify: Identify | None
    traffic: Traffic
    rotation: Rotation
    refusals: RefusalLog
    topic_names: TopicNames

    def opened(self, client: ClientConnection) -> bool:
        """True if there is room for one more."""

    def closed(self, client: ClientConnection, reason: str | None) -> None: ...

    def held(self, client: ClientConnection, more: int) -> None:
        """It holds so many bytes more than before."""


class ClientConnection(asyncio.Protocol):
    """Implements `requests.RequestSink`, `broker_connection.Client` and `rotation.Taking`. `user`: who has logged in at
    the gateway, or has shown its certificate; "": nobody. `peer`: its address and port."""

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
            ask=self._send_to_broker,  # no answer to the client: it is none of its slots
            answered=self._answered_by_muster,
            fail=self._fail,
        )
        self._movable: MovableRequests | None = None
        self._by_id: RequestsById | None = None
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
                self._fail("no_principal", error)

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
            self._fail(error.reason, error)
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
        treatment = head.rule.treatment
        if treatment is Treatment.GROUP:
            self._group(head, frame)
        elif treatment is Treatment.CONFIGS:
            self._configs(head, frame)
        elif treatment is Treatment.FIND_COORDINATOR:
            self._find_coordinator(head, frame)
        elif treatment is Treatment.API_VERSIONS:
            self._api_versions(head, frame)
        elif treatment is Treatment.LIST_GROUPS:
            self._list_groups(head, frame)
        elif treatment is Treatment.LIST_CONFIGS:
            self._list_configs(head, frame)
        elif treatment is Treatment.SASL:
            self._sasl(head, frame)
        else:
            self._ask_broker(Slot(head, partial(self._show, self._shared.shown.brokers)), frame)

    def unknown_api_versions(self, correlation_id: int) -> None:
        """KIP-511: in version 0, with the versions of ApiVersions that there are."""
        rule = apis.RULES[apis.API_VERSIONS]
        announced = Announced({rule.key: (0, rule.max_version)}, int(ErrorCode.UNSUPPORTED_VERSION))
        self._answer_now(RequestHead(rule, 0, correlation_id), framed(write_api_versions(0, correlation_id, announced)))

    # -- requests that are read ---------------------------------------------------------------------------------------

    def _group(self, head: RequestHead, frame: bytes) -> None:
        groups = group_ids(head, frame)
        if self._is_about_movable(groups):
            self._about_movable(head, frame, groups)
            return
        here = [self._shared.routes.is_served(group) for group in groups]
        if not any(here):
            self._ask_broker(Slot(head), frame)
        elif not all(here):  # no client does that: FindCoordinator names another node for each kind
            self._answer_now(head, refused(head, frame, ErrorCode.NOT_COORDINATOR))
        elif head.rule.key == apis.TXN_OFFSET_COMMIT and not self._shared.settings.transactions:
            self._answer_now(head, refused(head, frame, ErrorCode.UNSUPPORTED_VERSION))
        else:
            self._ask_muster(head, frame, groups[0])

    def _configs(self, head: RequestHead, frame: bytes) -> None:
        """Any pod answers for every group. No tool asks for groups of both at once: Kafka would be left out."""
        groups = configured_groups(head, frame)
        if self._is_about_movable(groups):
            self._about_movable(head, frame, groups)
        elif any(self._shared.routes.is_served(group) for group in groups):
            self._ask_muster(head, frame, groups[0])
        else:
            self._ask_broker(Slot(head), frame)

    def _is_about_movable(self, groups: tuple[str, ...]) -> bool:
        """True if leases decide where the request goes. Groups that Muster serves for good need none."""
        moves, is_served = self._shared.moves, self._shared.routes.is_served
        return moves is not None and any(not is_served(group) and moves.is_movable(group) for group in groups)

    def _about_movable(self, head: RequestHead, frame: bytes, groups: tuple[str, ...]) -> None:
        shared = self._shared
        if self._movable is None:
            assert shared.moves is not None
            self._movable = MovableRequests(
                shared.moves,
                shared.settings.park_ms / 1000,
                shared.routes.is_served,
                to_kafka=self._send_to_broker,
                to_muster=self._to_muster,
                mixed=lambda slot, frame: self._answered(slot, refused(slot.head, frame, ErrorCode.NOT_COORDINATOR)),
                hold=partial(self._hold, Busy.PARKED),
                answered=lambda slot, answer: self._answered(slot, framed(answer)),
                fail=self._fail,
            )
        self._movable.take(self._keep(Slot(head, held=len(frame))), frame, groups)

    def _hold(self, why: Busy, held: bool) -> None:
        if held:
            self._reading.close(why)
        else:
            self._reading.open(why)
            self._intake.wait()

    def _find_coordinator(self, head: RequestHead, frame: bytes) -> None:
        coordinators = self._shared.coordinators
        asked = coordinators.read(head, frame)
        if not asked.at_kafka:
            here = self._keep(Slot(head, held=len(frame)))
            self._at_muster.when_known(lambda: self._later(here, coordinators.of_muster(asked)))
            return
        slot = Slot(head, lambda slot, answer: self._later(slot, coordinators.of_both(asked, answer)))
        self._ask_broker(slot, coordinators.for_kafka(asked, frame) if asked.at_muster else frame)

    def _api_versions(self, head: RequestHead, frame: bytes) -> None:
        announced = self._shared.upstream.announced
        if self._role.kind is Kind.BROKER or announced is None:
            self._ask_broker(Slot(head, partial(self._show, self._shared.shown.versions_of_broker)), frame)
        else:
            self._answer_now(head, framed(self._shared.shown.versions(head, announced)))

    def _list_groups(self, head: RequestHead, frame: bytes) -> None:
        if self._role.kind is Kind.POD:
            self._ask_muster(head, frame, "", self._role.number)
        elif self._shared.routes:
            self._ask_broker(Slot(head, partial(self._show, self._shared.shown.groups_of_kafka)), frame)
        else:
            self._ask_broker(Slot(head), frame)

    def _list_configs(self, head: RequestHead, frame: bytes) -> None:
        """Administrators ask any one node for all. Kafka is asked first, and Muster unless that is an error."""
        shown = self._shared.shown

        def kafka_answered(slot: Slot, kafka: bytes) -> None:
            if not shown.has_configs(kafka):
                self._answered(slot, framed(kafka))
                return
            slot.edit = lambda slot, muster: self._answered(slot, framed(shown.configs_of_both(kafka, muster)))
            self._slots_held += len(kafka)
            slot.held += len(kafka)
            self._at_muster.submit(Request(slot, frame, ANY_GROUP))

        is_merged = bool(self._shared.routes) and lists_groups(head, frame)
        self._ask_broker(Slot(head, kafka_answered, held=len(frame)) if is_merged else Slot(head), frame)

    def _sasl(self, head: RequestHead, frame: bytes) -> None:
        if self._shared.settings.asks_clients:  # it has logged in before, and its broker knows the gateway
            raise ClientError("sasl_state", f"{head.rule.name} of a client that is known")
        learn = self._at_muster.read_login(head, frame)
        slot = Slot(head) if learn is None else Slot(head, partial(self._login_answered, learn), held=len(frame))
        self._ask_broker(slot, frame)

    # -- answers that are read ----------------------------------------------------------------------------------------

    def _show(self, shown: Show, slot: Slot, frame: bytes) -> None:
        answer = shown(slot.head, frame)
        if isinstance(answer, bytes):
            self._answered(slot, framed(answer))
        else:
            self._later(slot, answer)

    def _login_answered(self, learn: Callable[[bytes], None], slot: Slot, frame: bytes) -> None:
        learn(frame)
        self._answered(slot, framed(frame))

    # -- slots --------------------------------------------------------------------------------------------------------

    def _keep(self, slot: Slot) -> Slot:
        self._slots.append(slot)
        self._slots_held += slot.held
        return slot

    def _answer_now(self, head: RequestHead, answer: bytes) -> None:
        self._answered(self._keep(Slot(head)), answer)

    def _ask_broker(self, slot: Slot, frame: bytes) -> None:
        self._send_to_broker(self._keep(slot), frame)

    def _send_to_broker(self, slot: Slot, frame: bytes) -> None:
        broker = self._to_broker()
        broker.expect(slot)
        broker.send(framed(frame))

    def _ask_muster(self, head: RequestHead, frame: bytes, group_id: str, pod: int | None = None) -> None:
        slot = self._keep(Slot(head, held=len(frame)))
        if pod is None:
            self._to_muster(slot, frame, group_id)
        else:
            self._at_muster.submit(Request(slot, frame, group_id, pod))

    def _to_muster(self, slot: Slot, frame: bytes, group_id: str) -> None:
        """To the leader of the group's partition. Raises ClientError."""
        if not names_topics_by_id(slot.head):
            self._at_muster.submit(Request(slot, frame, group_id))
            return
        if self._by_id is None:
            self._by_id = RequestsById(
                self._shared.topic_names,
                lambda: self._shared.upstream.failing,
                ask=self._send_to_broker,
                to_muster=lambda slot, frame, group: self._at_muster.submit(Request(slot, frame, group)),
                hold=partial(self._hold, Busy.ASKS),
                answered=self._answered,
            )
        self._by_id.take(slot, frame, group_id)

    def _answered_by_muster(self, slot: Slot, answer: bytes) -> None:
        if slot.edit is not None:
            slot.edit(slot, answer)
            return
        if slot.head.rule.treatment is Treatment.LIST_GROUPS:
            answer = self._shared.shown.groups_of_muster(slot.head, answer)
        self._answered(slot, framed(answer))

    def _later(self, slot: Slot, answer: Coroutine[object, object, bytes]) -> None:
        async def run() -> None:
            try:
                self._answered(slot, framed(await answer))
            except (GatewayError, ConnectionLostError) as error:
                self._fail("upstream_failed", error)

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _answered(self, slot: Slot, answer: bytes) -> None:
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
            self._fail("broker_not_reachable", error)
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
        self._fail("broker_answer_malformed", error)

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

    def _fail(self, reason: str, error: Exception) -> None:
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
        if self._movable is not None:
            self._movable.close()
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
