"""The requests of one client to Muster that name topics by id: names are asked of its broker, with the client's rights.

While a broker is asked, nothing is taken that the client sent afterwards: a commit must not overtake an earlier one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from muster_gateway.slots import Slot
from muster_gateway.topic_ids import (
    FRESH_S,
    METADATA_HEAD,
    AnswerByName,
    Request,
    TopicNames,
    ask_for_ids,
    ask_for_names,
    by_name,
    ids_of,
    read_request,
    read_topics,
    request_by_name,
)


class RequestsById:
    """`no_broker`: whether no broker can be asked now; what is known counts then, however old. `ask(slot, frame)` asks
    the client's broker, `to_muster(slot, frame, group)` a pod, `hold(True)` keeps what comes after, and
    `answered(slot, frame)` takes the client's answer, with its length."""

    def __init__(
        self,
        names: TopicNames,
        no_broker: Callable[[], bool],
        *,
        ask: Callable[[Slot, bytes], None],
        to_muster: Callable[[Slot, bytes, str], None],
        hold: Callable[[bool], None],
        answered: Callable[[Slot, bytes], None],
    ) -> None:
        self._names = names
        self._no_broker = no_broker
        self._ask = ask
        self._to_muster = to_muster
        self._hold = hold
        self._answered = answered

    def take(self, slot: Slot, frame: bytes, group: str) -> None:
        """A request of the client, in its order. Raises ClientError."""
        request = read_request(slot.head, frame)
        since_s = float("-inf") if self._no_broker() else asyncio.get_running_loop().time() - FRESH_S
        unknown = self._names.to_ask(ids_of(request), since_s)
        if not unknown:
            self._send(slot, frame, group, request)
            return

        def told() -> None:
            self._send(slot, frame, group, request)
            self._hold(False)

        self._hold(True)
        self._ask_broker(ask_for_ids(unknown), lambda _ids: told())

    def _send(self, slot: Slot, frame: bytes, group: str, request: Request) -> None:
        names = self._names.of(ids_of(request))
        named = request_by_name(frame, request, names)
        if named is None:
            self._answer(slot, AnswerByName(request, None), names)
            return
        to_pod = Slot(by_name(slot.head), lambda _, answer: self._answer(slot, AnswerByName(request, answer), names))
        self._to_muster(to_pod, named, group)

    def _answer(self, slot: Slot, answer: AnswerByName, names: dict[bytes, str]) -> None:
        unasked = answer.unasked()
        if not unasked:
            self._answered(slot, answer.frame(slot.head, names, {}))
            return
        self._ask_broker(
            ask_for_names(sorted(unasked)), lambda ids: self._answered(slot, answer.frame(slot.head, names, ids))
        )

    def _ask_broker(self, frame: bytes, told: Callable[[dict[str, bytes]], None]) -> None:
        """`told` gets the ids of the topics that the broker has named."""

        def answered(_slot: Slot, answer: bytes) -> None:
            topics = read_topics(answer)
            self._names.learn(topics, asyncio.get_running_loop().time())
            told({each.name: each.topic_id for each in topics if each.name is not None and not each.error_code})

        self._ask(Slot(METADATA_HEAD, answered), frame)
