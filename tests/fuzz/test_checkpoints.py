"""A bounded run; `make fuzz` goes on for as long as it is told."""

from __future__ import annotations

import pytest
from tests.fuzz.checkpoints import CheckpointFuzz, CutJournalFuzz, disk_with_checkpoints
from tests.fuzz.logs import PARTITIONS, LogFuzz, save
from tests.fuzz.test_logs import SAVED

ROUNDS = 120


@pytest.mark.parametrize(
    ("fuzz", "serving"), [(CheckpointFuzz, PARTITIONS), (CutJournalFuzz, PARTITIONS - 1)], ids=["checkpoint", "journal"]
)
async def test_pod_over_damaged_files_serves_what_was_acknowledged_or_says_why_not(
    fuzz: type[LogFuzz], serving: int
) -> None:
    """A checkpoint is never needed; what is not damaged serves."""
    run = fuzz(await disk_with_checkpoints(), seed=1)
    path = SAVED / f"{fuzz.__name__}-test.json"
    try:
        for _ in range(ROUNDS):
            await run.run_round()
    except BaseException:
        save(run.failing, path)
        print(f"the damaged files are in {path}")
        raise
    assert run.active >= ROUNDS * serving
