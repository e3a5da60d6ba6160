"""The tools of every guard: the right of one client, and an answer that is changed on its way out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.answer_in_place import AnswerInPlace
from muster_coordinator.listener.audit import AuditLog
from muster_coordinator.listener.exchange import ClientAnswer
from muster_coordinator.listener.state import Handler
from muster_coordinator.requests.refusals import refusal
from muster_coordinator.security.acls import CLUSTER_NAME, Authorizer, Operation, ResourceType
from muster_coordinator.security.identity import Identity

_T = TypeVar("_T")


class Rights:
    """The rights of one client, by the ACLs of this moment."""

    __slots__ = ("_audit", "_authorizer", "_request", "_told", "_who")

    def __init__(
        self, authorizer: Authorizer, who: Identity, audit: AuditLog | None = None, request: Any = None
    ) -> None:
        """`audit` is told what of `request` is refused."""
        self._authorizer = authorizer
        self._who = who
        self._audit = audit
        self._request = request
        self._told: set[tuple[Operation, ResourceType, str]] | None = None

    def group(self, operation: Operation, group_id: str) -> bool:
        return self._may(operation, ResourceType.GROUP, group_id)

    def topic(self, operation: Operation, name: str) -> bool:
        return self._may(operation, ResourceType.TOPIC, name)

    def transactional_id(self, operation: Operation, name: str) -> bool:
        return self._may(operation, ResourceType.TRANSACTIONAL_ID, name)

    def cluster(self, operation: Operation) -> bool:
        return self._may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    @property
    def unasked(self) -> Rights:
        """The same, for what the client did not ask for by name: what is left out of a list is no refusal."""
        return Rights(self._authorizer, self._who)

    def _may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        if self._authorizer.allows(self._who, operation, resource_type, name):
            return True
        if self._audit is not None:
            self._tell(self._audit, (operation, resource_type, name))
        return False

    def _tell(self, audit: AuditLog, what: tuple[Operation, ResourceType, str]) -> None:
        """Tells the audit log of each thing once: guards ask again for what the answer says."""
        if self._told is None:
            self._told = set()
        if what not in self._told:
            self._told.add(what)
            audit.request_refused(self._who, self._request, *what)

    def operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Everything that the client may do with the resource, as bits (KIP-430)."""
        return self._authorizer.operations(self._who, resource_type, name)


Guard = Callable[[Any, ClientAnswer, Rights, Handler], None]
"""(request, its exchange, what the client may do, the handler)."""


class ChangedAnswer(AnswerInPlace):
    """An answer that passes `change`."""

    __slots__ = ("_change",)

    def __init__(self, exchange: ClientAnswer, request: Any, change: Callable[[Any], Any]) -> None:
        super().__init__(exchange, request)
        self._change = change

    def answer(self, response: Any) -> None:
        self._exchange.answer(self._change(response))

    def refuse(self, code: ErrorCode) -> None:
        self.answer(refusal(self._request, code))


def split(asked: Iterable[_T], may: Callable[[_T], bool]) -> tuple[tuple[_T, ...], tuple[_T, ...]]:
    """(what is allowed, what is refused), both in the order of the request."""
    allowed: list[_T] = []
    refused: list[_T] = []
    for each in asked:
        (allowed if may(each) else refused).append(each)
    return tuple(allowed), tuple(refused)


def hand_on(request: Any, exchange: ClientAnswer, handler: Handler, change: Callable[[Any], Any]) -> None:
    """Have the handler carry out `request`, and change its answer."""
    handler(request, ChangedAnswer(exchange, request, change))
