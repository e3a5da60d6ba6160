"""Objects that do not decode: each is told so in its own status."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import msgspec
import structlog

from muster_operator.api.conditions import Condition, Reason
from muster_operator.api.durations import format_time
from muster_operator.api.models import Resource
from muster_operator.clock import Clock
from muster_operator.kube.client import Json, KubeClient
from muster_operator.kube.objects import identity, status_path
from muster_operator.plan.verdict import Verdict, conditions_of
from muster_operator.store.port import StoreError

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=Resource)


class InvalidObjects:
    """Writes the condition InvalidSpec in the background."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._background: set[asyncio.Task[None]] = set()

    def report(self, resource: type[T], raw: Json, error: str) -> None:
        """Best effort: an object that is still invalid is reported again with the next list."""
        log.warning("object_invalid", kind=resource.__name__, name="/".join(identity(raw)[0]), error=error)
        task = asyncio.get_running_loop().create_task(self._write(resource, raw, error))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _write(self, resource: type[T], raw: Json, error: str) -> None:
        meta = raw["metadata"]
        status = dict(raw.get("status") or {})
        generation = meta.get("generation", 0)
        text = f"the operator does not understand this object: {error}; correct it or delete it"
        verdict = Verdict(Reason.INVALID_SPEC, text, stalled=True)
        before = msgspec.convert(status.get("conditions", []), tuple[Condition, ...])
        after = conditions_of(before, verdict, generation, format_time(self._clock.wall()))
        if after == before:
            return
        # Tools that follow kstatus wait for the generation, and would wait for ever.
        told = {"observedGeneration": generation, "conditions": msgspec.to_builtins(after)}
        body = {**raw, "status": {**status, **told}}
        try:
            await self._client.replace(status_path(resource, meta["namespace"], meta["name"]), body)
        except StoreError as failure:
            log.warning("status_not_written", name=meta["name"], error=str(failure))
