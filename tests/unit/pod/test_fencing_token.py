"""Calls that no epoch decides are refused when they come from an operator that was replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest
from tests.unit.pod.test_drain import IMAGE, FakeManager, draining_pod

from muster_coordinator.log.disk import OsDisk
from muster_coordinator.pod.control import Pod
from muster_coordinator.pod.last_image import LastImage
from muster_coordinator.podapi.control import RefusedCallError
from muster_coordinator.podapi.image import MetadataImage
from muster_coordinator.podapi.models import RemovalsRequest, ReplicasRequest, StatusEvent

Call = Callable[[Pod, int], Awaitable[object]]


def image(token: int) -> MetadataImage:
    return msgspec.structs.replace(IMAGE, token=token)


async def put(pod: Pod, token: int) -> object:
    return pod.update_metadata(image(token))


CALLS: dict[str, Call] = {
    "image": put,
    "creation": lambda pod, token: pod.create_replicas(ReplicasRequest(token, ())),
    "removal": lambda pod, token: pod.remove_replicas(RemovalsRequest(token, ())),
    "drain": lambda pod, token: pod.drain(token),
}


def idle(tmp_path: Path, image: MetadataImage | None = IMAGE) -> tuple[Pod, FakeManager]:
    """A pod without replicas."""
    manager = FakeManager()
    manager.replicas, manager.shards = {}, {}
    return draining_pod(tmp_path, manager, drain_timeout_ms=0, image=image), manager


async def refused(call: Awaitable[object]) -> str:
    with pytest.raises(RefusedCallError) as caught:
        await call
    assert caught.value.code == 409
    return caught.value.problem.reason


@pytest.mark.parametrize("newer", CALLS)
@pytest.mark.parametrize("older", CALLS)
async def test_token_below_the_highest_is_refused_whatever_call_had_it(tmp_path: Path, older: str, newer: str) -> None:
    pod, manager = idle(tmp_path)
    await CALLS[newer](pod, 7)
    manager.draining = False
    assert await refused(CALLS[older](pod, 6)) == "StaleToken"
    assert not manager.draining
    assert pod.status().fencing_token == 7
    await CALLS[older](pod, 7)
    await pod.stop()


async def test_person_drains_without_a_token(tmp_path: Path) -> None:
    pod, manager = idle(tmp_path)
    pod.update_metadata(image(7))
    await pod.drain()
    assert manager.draining
    await pod.stop()


async def test_operator_that_is_refused_learns_the_highest_token_from_its_stream(tmp_path: Path) -> None:
    pod, _ = idle(tmp_path)
    async with aclosing(pod.subscribe()) as events:
        await anext(events)
        pod.update_metadata(image(7))
        assert await refused(put(pod, 6)) == "StaleToken"
        event = await asyncio.wait_for(anext(events), 5.0)
    assert isinstance(event, StatusEvent)
    assert event.status.fencing_token == 7
    await pod.stop()


async def test_token_of_the_last_image_outlives_the_process(tmp_path: Path) -> None:
    pod, _ = idle(tmp_path)
    pod.update_metadata(image(7))
    await pod.stop()
    again, _ = idle(tmp_path, None)
    kept = LastImage(OsDisk(), tmp_path).load()
    assert kept is not None
    again.remember(kept)
    assert (again.status().fencing_token, again.status().metadata_token) == (7, -1)
    assert await refused(put(again, 6)) == "StaleToken"
    again.update_metadata(msgspec.structs.replace(image(7), version=0))
    await again.stop()
