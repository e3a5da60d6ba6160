"""An API server on loopback with the objects of a recorded cluster, and what an operator would do to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.fake_kubernetes import FakeKubernetes
from tests.unit.cli.oncall.test_command import Typed, api_server

Json = dict[str, Any]
API = "/apis/muster.dev/v1alpha1/namespaces/shop"


def seen(kubernetes: FakeKubernetes, plural: str, name: str) -> Json:
    found = kubernetes.objects.get(plural, "shop", name)
    assert found is not None
    return found


def spec(kubernetes: FakeKubernetes, plural: str, name: str) -> Json:
    found: Json = seen(kubernetes, plural, name)["spec"]
    return found


def declare(kubernetes: FakeKubernetes, plural: str, name: str, **fields: Any) -> None:
    kubernetes.objects.handle("PATCH", f"{API}/{plural}/{name}", {}, {"spec": fields})


def show(kubernetes: FakeKubernetes, plural: str, name: str, **fields: Any) -> None:
    """Change fields of a status, as an operator does."""
    status = {**seen(kubernetes, plural, name)["status"], **fields}
    path = f"{API}/{plural}/{name}/status"
    assert kubernetes.objects.handle("PUT", path, {}, {"metadata": {}, "status": status}).code == 200


def say(kubernetes: FakeKubernetes, partition: str, state: str, reason: str, message: str) -> None:
    """State and Ready condition of an OffsetsPartition."""
    ready = {"type": "Ready", "status": "False", "reason": reason, "message": message, "lastTransitionTime": ""}
    show(kubernetes, "offsetspartitions", partition, state=state, reason=reason, conditions=[ready])


def writes(kubernetes: FakeKubernetes) -> set[tuple[str, str]]:
    return {each for each in kubernetes.requests if each[0] != "GET"}


@asynccontextmanager
async def site(directory: Path, name: str = "healthy") -> AsyncIterator[tuple[FakeKubernetes, Typed]]:
    async with api_server(directory, name) as (kubernetes, typed):
        yield kubernetes, typed


@asynccontextmanager
async def operator(
    kubernetes: FakeKubernetes, acts: Callable[[Json], None], plural: str, name: str
) -> AsyncIterator[None]:
    """Calls `acts` with each spec of the object that is another one than before."""

    def changed(before: Json) -> bool:
        return spec(kubernetes, plural, name) != before

    async def look() -> None:
        before = spec(kubernetes, plural, name)
        while True:
            await kubernetes.until(partial(changed, before), "another spec")
            before = spec(kubernetes, plural, name)
            acts(before)

    task = asyncio.create_task(look())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
