"""Finds the topics that regular expressions of consumer groups stand for, beside the event loop.

A thousand names take some milliseconds for each expression, and a group may have as many expressions as members.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

import structlog

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.consumer.regexes import resolve
from muster_coordinator.requests.consumer_groups import RegexesResolved, RegexesToResolve
from muster_coordinator.shard.ports import Answer
from muster_coordinator.shard.shard import Shard

logger = structlog.get_logger(__name__)

THREADS = 2
"""Groups at a time (Kafka: group.coordinator.background.threads)."""


class RegexResolver:
    """Resolves the regular expressions of all offsets partitions of a pod. `topics` gives the names of the topics that
    there are, and the version of that list; `now_ms` the wall clock."""

    def __init__(
        self,
        shards: Mapping[int, Shard],
        topics: Callable[[], tuple[Iterable[str], int]],
        now_ms: Callable[[], int],
    ) -> None:
        self._shards = shards
        self._topics = topics
        self._now_ms = now_ms
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="regexes")

    def of(self, number: int) -> PartitionRegexes:
        """Returns the resolver of one offsets partition."""
        return PartitionRegexes(self, number)

    def start(self, number: int, request: RegexesToResolve) -> None:
        """The shard of this number gets `RegexesResolved`, once, unless its leadership ends before."""
        topics, version = self._topics()
        began_ms = self._now_ms()
        names = tuple(topics)
        work = asyncio.get_running_loop().run_in_executor(
            self._threads, resolve, request.regexes, names, request.may_describe
        )

        def done(finished: asyncio.Future[dict[str, tuple[str, ...]]]) -> None:
            if finished.cancelled():
                return
            error = finished.exception()
            if error is not None:
                logger.error("regexes_not_resolved", group_id=request.group_id, exc_info=error)
                self.tell(number, RegexesResolved(request.group_id, None))
                return
            self.tell(number, RegexesResolved(request.group_id, tuple(finished.result().items()), version, began_ms))

        work.add_done_callback(done)

    def tell(self, number: int, event: RegexesResolved) -> None:
        shard = self._shards.get(number)
        if shard is not None:
            shard.notify(event)

    def close(self) -> None:
        """Waits for what is being looked for, and begins nothing any more."""
        self._threads.shutdown(wait=True, cancel_futures=True)


class PartitionRegexes:
    """The questions that the state machine of one offsets partition asks."""

    def __init__(self, resolver: RegexResolver, number: int) -> None:
        self._resolver, self._number = resolver, number

    def attempt(self, request: RegexesToResolve) -> Answer:
        """Returns the token of one attempt. The shard answers it when what the group knows now is committed, and the
        search begins then; or it refuses it. Either way it gets `RegexesResolved` afterwards."""
        return _Attempt(self._resolver, self._number, request)


class _Attempt:
    """`shard.ports.Answer`: the answer is the leave to begin."""

    def __init__(self, resolver: RegexResolver, number: int, request: RegexesToResolve) -> None:
        self._resolver, self._number, self._request = resolver, number, request

    def answer(self, response: object) -> None:
        self._resolver.start(self._number, self._request)

    def refuse(self, code: ErrorCode) -> None:
        self._resolver.tell(self._number, RegexesResolved(self._request.group_id, None))
