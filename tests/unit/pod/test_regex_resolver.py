"""Expressions are resolved beside the event loop, and the shard that asked is told."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from muster_coordinator.errors import ErrorCode
from muster_coordinator.pod.regex_resolver import RegexResolver
from muster_coordinator.requests.consumer_groups import RegexesResolved, RegexesToResolve


class FakeShard:
    def __init__(self) -> None:
        self.events: asyncio.Queue[object] = asyncio.Queue()

    def notify(self, event: object) -> None:
        self.events.put_nowait(event)


@pytest.fixture
def shard() -> FakeShard:
    return FakeShard()


@pytest.fixture
def resolver(shard: FakeShard) -> Any:
    shards: Any = {7: shard}
    resolver = RegexResolver(shards, lambda: (("orders", "bills"), 5), lambda: 1234)
    yield resolver
    resolver.close()


async def test_shard_is_told_what_an_expression_stands_for_once_it_has_answered(
    shard: FakeShard, resolver: RegexResolver
) -> None:
    request = RegexesToResolve("g", ("o.*", ".*"), lambda topic: topic != "bills")
    attempt = resolver.of(7).attempt(request)
    await asyncio.sleep(0)
    assert shard.events.empty(), "nothing is committed yet"
    attempt.answer(request)
    resolved = RegexesResolved("g", (("o.*", ("orders",)), (".*", ("orders",))), 5, 1234)
    assert await shard.events.get() == resolved


async def test_names_are_looked_through_in_another_thread(shard: FakeShard, resolver: RegexResolver) -> None:
    threads = []

    def may_describe(topic: str) -> bool:
        threads.append(threading.current_thread())
        return True

    resolver.of(7).attempt(RegexesToResolve("g", ("o.*",), may_describe)).answer(None)
    await shard.events.get()
    assert threads
    assert threading.current_thread() not in threads


async def test_shard_is_told_of_what_was_not_found_out(shard: FakeShard, resolver: RegexResolver) -> None:
    def broken(topic: str) -> bool:
        raise RuntimeError("no rights here")

    resolver.of(7).attempt(RegexesToResolve("g", ("o.*",), broken)).answer(None)
    assert await shard.events.get() == RegexesResolved("g", None)
    resolver.of(7).attempt(RegexesToResolve("h", ("o.*",))).refuse(ErrorCode.NOT_COORDINATOR)
    assert await shard.events.get() == RegexesResolved("h", None)


async def test_shard_that_does_not_lead_any_more_is_not_told(shard: FakeShard, resolver: RegexResolver) -> None:
    resolver.of(8).attempt(RegexesToResolve("g", ("o.*",))).answer(None)
    resolver.of(7).attempt(RegexesToResolve("h", ("o.*",))).answer(None)
    event = await shard.events.get()
    assert isinstance(event, RegexesResolved)
    assert event.group_id == "h"
