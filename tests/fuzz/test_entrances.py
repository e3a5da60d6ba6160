"""A bounded run; `make fuzz` goes on for as long as it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from tests.fuzz.entrances import EntranceFuzz, entrances

pytestmark = pytest.mark.integration

ROUNDS = 30


async def test_pod_survives_damaged_handshakes_and_logins_on_every_port(tmp_path: Path) -> None:
    async with entrances(tmp_path) as pod:
        fuzz = EntranceFuzz(pod, seed=1)
        for _ in range(ROUNDS):
            await fuzz.run_round()
        await fuzz.check()
