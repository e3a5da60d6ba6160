"""The requests of one client that are read whole: to which side each goes, and how its answer is shown."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Protocol

from muster_coordinator.errors import ErrorCode
from muster_gateway import apis
from muster_gateway.apis import Treatment
from muster_gateway.at_muster import AtMuster
from muster_gateway.by_id import RequestsById
from muster_gateway.coordinators import Coordinators
from muster_gateway.errors import ClientError
from muster_gateway.flow import Busy
from muster_gateway.group_lane import Request
from muster_gateway.group_requests import configured_groups, group_ids, lists_groups, refused
from muster_gateway.later_versions import earlier, is_later, later_answer
from muster_gateway.movable import MovableRequests
from muster_gateway.moves import Moves
from muster_gateway.nodes import Kind, Role
from muster_gateway.requests import RequestHead
from muster_gateway.routes import Routes
from muster_gateway.settings import GatewaySettings
from muster_gateway.shown import Shown
from muster_gateway.slots import Slot, framed
from muster_gateway.topic_ids import TopicNames, names_topics_by_id
from muster_gateway.upstream import Upstream

ANY_GROUP = ""
"""Any pod answers what is asked about no group: the leader of this one is looked for, and found again after it ends."""

NAMES_GROUPS = (Treatment.GROUP, Treatment.CONFIGS)
"""Requests that go to the side that serves their groups."""

Show = Callable[[RequestHead, bytes], bytes | Coroutine[object, object, bytes]]
"""Head of a request and frame of its answer -> the frame that the client gets. Raises UpstreamError."""


class Sides(Protocol):
    """The knowledge of both sides that all connections share."""

    settings: GatewaySettings
    routes: Routes
    moves: Moves | None
    upstream: Upstream
    coordinators: Coordinators
    shown: Shown
    topic_names: TopicNames


class Slots(Protocol):
    """The connection of the client: requests that wait in their order, and the way to its broker."""

    def keep(self, slot: Slot) -> Slot:
        """Let a request wait for its answer, behind those that came before."""

    def grow(self, slot: Slot, more: int) -> None:
        """It holds so many bytes more than before."""

    def send_to_broker(self, slot: Slot, frame: bytes) -> None: ...

    def later(self, slot: Slot, answer: Coroutine[object, object, bytes]) -> None:
        """The answer comes when this has run."""

    def answered(self, slot: Slot, answer: bytes) -> None: ...

    def hold(self, why: Busy, held: bool) -> None:
        """Take no further request, or go on."""

    def ends_if_gone(self) -> bool:
        """True if the connection has ended, also because the client has closed it while nothing was read from it."""

    def fail(self, reason: str, error: Exception) -> None: ...


class ReadRequests:
    """`role`: the node that the client's port stands for."""

    __slots__ = ("_at_muster", "_by_id", "_movable", "_role", "_sides", "_slots")

    def __init__(self, sides: Sides, role: Role, at_muster: AtMuster, slots: Slots) -> None:
        self._sides = sides
        self._role = role
        self._at_muster = at_muster
        self._slots = slots
        self._movable: MovableRequests | None = None
        self._by_id: RequestsById | None = None

    def take(self, head: RequestHead, frame: bytes) -> None:
        """Raises ClientError."""
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
            self._ask_broker(Slot(head, partial(self._show, self._sides.shown.brokers)), frame)

    def close(self) -> None:
        """The connection has ended."""
        if self._movable is not None:
            self._movable.close()

    # -- by treatment -------------------------------------------------------------------------------------------------

    def _group(self, head: RequestHead, frame: bytes) -> None:
        groups = group_ids(head, frame)
        if self._is_about_movable(groups):
            self._about_movable(head, frame, groups)
            return
        here = [self._sides.routes.is_served(group) for group in groups]
        if not any(here):
            self._ask_broker(Slot(head), frame)
        elif not all(here):  # no client does that: FindCoordinator names another node for each kind
            self._answer_now(head, refused(head, frame, ErrorCode.NOT_COORDINATOR))
        elif head.rule.key == apis.TXN_OFFSET_COMMIT and not self._sides.settings.transactions:
            self._answer_now(head, refused(head, frame, ErrorCode.UNSUPPORTED_VERSION))
        else:
            self._ask_muster(head, frame, groups[0])

    def _configs(self, head: RequestHead, frame: bytes) -> None:
        """Any pod answers for every group. No tool asks for groups of both at once: Kafka would be left out."""
        groups = configured_groups(head, frame)
        if self._is_about_movable(groups):
            self._about_movable(head, frame, groups)
        elif any(self._sides.routes.is_served(group) for group in groups):
            self._ask_muster(head, frame, groups[0])
        else:
            self._ask_broker(Slot(head), frame)

    def _is_about_movable(self, groups: tuple[str, ...]) -> bool:
        """True if leases decide where the request goes. Groups that Muster serves for good need none."""
        moves, is_served = self._sides.moves, self._sides.routes.is_served
        return moves is not None and any(not is_served(group) and moves.is_movable(group) for group in groups)

    def _about_movable(self, head: RequestHead, frame: bytes, groups: tuple[str, ...]) -> None:
        sides, slots = self._sides, self._slots
        if self._movable is None:
            assert sides.moves is not None
            self._movable = MovableRequests(
                sides.moves,
                sides.settings.park_ms / 1000,
                sides.routes.is_served,
                to_kafka=slots.send_to_broker,
                to_muster=self._to_muster,
                mixed=lambda slot, frame: slots.answered(slot, refused(slot.head, frame, ErrorCode.NOT_COORDINATOR)),
                hold=partial(slots.hold, Busy.PARKED),
                ends_if_gone=slots.ends_if_gone,
                answered=lambda slot, answer: slots.answered(slot, framed(answer)),
                fail=slots.fail,
            )
        self._movable.take(slots.keep(Slot(head, held=len(frame))), frame, groups)

    def _find_coordinator(self, head: RequestHead, frame: bytes) -> None:
        coordinators, slots = self._sides.coordinators, self._slots
        asked = coordinators.read(head, frame)
        if not asked.at_kafka:
            here = slots.keep(Slot(head, held=len(frame)))
            self._at_muster.when_known(lambda: slots.later(here, coordinators.of_muster(asked)))
            return
        slot = Slot(head, lambda slot, answer: slots.later(slot, coordinators.of_both(asked, answer)))
        self._ask_broker(slot, coordinators.for_kafka(asked, frame) if asked.at_muster else frame)

    def _api_versions(self, head: RequestHead, frame: bytes) -> None:
        announced = self._sides.upstream.announced
        if self._role.kind is Kind.BROKER or announced is None:
            self._ask_broker(Slot(head, partial(self._show, self._sides.shown.versions_of_broker)), frame)
        else:
            self._answer_now(head, framed(self._sides.shown.versions(head, announced)))

    def _list_groups(self, head: RequestHead, frame: bytes) -> None:
        if self._role.kind is Kind.POD:
            self._at_muster.submit(Request(self._slots.keep(Slot(head, held=len(frame))), frame, "", self._role.number))
        elif self._sides.routes:
            self._ask_broker(Slot(head, partial(self._show, self._sides.shown.groups_of_kafka)), frame)
        else:
            self._ask_broker(Slot(head), frame)

    def _list_configs(self, head: RequestHead, frame: bytes) -> None:
        """Administrators ask any one node for all. Kafka is asked first, and Muster unless that is an error."""
        shown, slots = self._sides.shown, self._slots

        def kafka_answered(slot: Slot, kafka: bytes) -> None:
            if not shown.has_configs(kafka):
                slots.answered(slot, framed(kafka))
                return
            slot.edit = lambda slot, muster: slots.answered(slot, framed(shown.configs_of_both(kafka, muster)))
            slots.grow(slot, len(kafka))
            self._at_muster.submit(Request(slot, frame, ANY_GROUP))

        is_merged = bool(self._sides.routes) and lists_groups(head, frame)
        self._ask_broker(Slot(head, kafka_answered, held=len(frame)) if is_merged else Slot(head), frame)

    def _sasl(self, head: RequestHead, frame: bytes) -> None:
        if self._sides.settings.asks_clients:  # it has logged in before, and its broker knows the gateway
            raise ClientError("sasl_state", f"{head.rule.name} of a client that is known")
        learn = self._at_muster.read_login(head, frame)
        slot = Slot(head) if learn is None else Slot(head, partial(self._login_answered, learn), held=len(frame))
        self._ask_broker(slot, frame)

    # -- ways ---------------------------------------------------------------------------------------------------------

    def _answer_now(self, head: RequestHead, answer: bytes) -> None:
        self._slots.answered(self._slots.keep(Slot(head)), answer)

    def _ask_broker(self, slot: Slot, frame: bytes) -> None:
        self._slots.send_to_broker(self._slots.keep(slot), frame)

    def _ask_muster(self, head: RequestHead, frame: bytes, group_id: str) -> None:
        self._to_muster(self._slots.keep(Slot(head, held=len(frame))), frame, group_id)

    def _to_muster(self, slot: Slot, frame: bytes, group_id: str) -> None:
        """Sends the request to the leader of the group's partition. Raises ClientError."""
        if is_later(slot.head):
            head, frame = earlier(slot.head, frame)
            to_pod = Slot(head, lambda _, answer: self._slots.answered(slot, framed(later_answer(answer))))
            self._at_muster.submit(Request(to_pod, frame, group_id))
            return
        if not names_topics_by_id(slot.head):
            self._at_muster.submit(Request(slot, frame, group_id))
            return
        if self._by_id is None:
            self._by_id = RequestsById(
                self._sides.topic_names,
                lambda: self._sides.upstream.failing,
                ask=self._slots.send_to_broker,
                to_muster=lambda slot, frame, group: self._at_muster.submit(Request(slot, frame, group)),
                hold=partial(self._slots.hold, Busy.ASKS),
                answered=self._slots.answered,
            )
        self._by_id.take(slot, frame, group_id)

    # -- answers that are read ----------------------------------------------------------------------------------------

    def _show(self, shown: Show, slot: Slot, frame: bytes) -> None:
        answer = shown(slot.head, frame)
        if isinstance(answer, bytes):
            self._slots.answered(slot, framed(answer))
        else:
            self._slots.later(slot, answer)

    def _login_answered(self, learn: Callable[[bytes], None], slot: Slot, frame: bytes) -> None:
        learn(frame)
        self._slots.answered(slot, framed(frame))
