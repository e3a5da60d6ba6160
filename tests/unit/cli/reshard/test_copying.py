"""The copy of a re-shard whose leaders change while they are filled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from muster_cli.errors import CliError
from muster_cli.reshard import copying
from muster_cli.reshard.copying import Copy
from muster_coordinator.partition_numbers import OFFSETS
from muster_coordinator.podapi.client import new_session
from muster_coordinator.security.tls import Tls
from muster_operator.api.models import (
    ClusterRef,
    ObjectMeta,
    OffsetsTopic,
    OffsetsTopicSpec,
    OffsetsTopicStatus,
    ReshardPhase,
    ReshardStatus,
)
from muster_pipeline.reshard.writer import log_directory

BASE = 5


class Emptied:
    """Implements `Site` of a cluster in which no pod answers; the re-shard is in these phases, one after the other."""

    tls: Tls | None = None

    def __init__(self, phases: Sequence[ReshardPhase]) -> None:
        self._phases = list(phases)
        self._topic = OffsetsTopic(ObjectMeta("offsets", "ns"), OffsetsTopicSpec(ClusterRef("c"), partitions=5))

    async def topic(self) -> OffsetsTopic:
        phase = self._phases.pop(0) if len(self._phases) > 1 else self._phases[0]
        reshard = ReshardStatus(phase=phase, base=BASE, partitions=1, generation=1)
        return msgspec.structs.replace(self._topic, status=OffsetsTopicStatus(reshard=reshard))

    async def ask(self, partitions: int | None) -> None:
        raise NotImplementedError

    async def drop_retired(self) -> int:
        raise NotImplementedError

    async def pods(self) -> dict[str, str]:
        return {}


async def fill(phases: Sequence[ReshardPhase], work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "POLL_S", 0.001)
    log_directory(work / f"reshard-{BASE}" / "new", 0, OFFSETS.name).mkdir(parents=True)
    async with new_session() as http:
        reshard = ReshardStatus(phase=ReshardPhase.COPYING, base=BASE, partitions=1, generation=1)
        copy = Copy(Emptied(phases), http, reshard, work, lambda *_: None)
        async with asyncio.timeout(5):
            await copy.fill()


@pytest.mark.parametrize("phase", [ReshardPhase.OPENING, ReshardPhase.DONE])
async def test_copy_is_over_when_the_operator_has_gone_on_although_the_last_answer_was_lost(
    phase: ReshardPhase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader that has taken in the last records resigns before it answers: its successor is complete."""
    await fill([ReshardPhase.COPYING, ReshardPhase.COPYING, phase], tmp_path, monkeypatch)


async def test_copy_ends_with_an_error_when_the_reshard_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CliError, match="taken back"):
        await fill([ReshardPhase.COPYING, ReshardPhase.ABORTING], tmp_path, monkeypatch)
