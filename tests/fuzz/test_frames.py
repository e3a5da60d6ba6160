"""A bounded run; `make fuzz` goes on for as long as it is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fuzz.frames import CONFIG, PARTITIONS, FrameFuzz, save
from tests.support.pod import SoloPod

pytestmark = pytest.mark.integration

ROUNDS = 300
SAVED = Path(__file__).parents[2] / ".cache" / "fuzz"


async def test_pod_survives_frames_of_every_api_valid_and_mutated_over_several_connections(tmp_path: Path) -> None:
    async with SoloPod(tmp_path / "data", PARTITIONS, {"t": 3, "u": 3}, CONFIG) as pod:
        fuzz = FrameFuzz(pod, seed=1)
        try:
            for _ in range(ROUNDS):
                await fuzz.run_round()
            await fuzz.check()
            await fuzz.settled()
        except BaseException:
            save(fuzz.failing, SAVED / "frames-test.json")
            print(f"the frames are in {SAVED / 'frames-test.json'}: python -m tests.fuzz replay FILE sends them again")
            raise
