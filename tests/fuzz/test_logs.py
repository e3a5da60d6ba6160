"""A bounded run; `make fuzz` goes on for as long as it is told."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

from tests.fuzz.logs import LogFuzz, save, written_disk

ROUNDS = 250
GROWTH_BYTES = 8 << 20
SAVED = Path(__file__).parents[2] / ".cache" / "fuzz"


async def test_pod_starts_over_damaged_files_or_says_why_not_and_serves_no_other_value() -> None:
    fuzz = LogFuzz(await written_disk(), seed=1)
    try:
        for _ in range(ROUNDS):
            await fuzz.run_round()
    except BaseException:
        save(fuzz.failing, SAVED / "logs-test.json")
        print(f"the damaged files are in {SAVED / 'logs-test.json'}")
        raise
    assert fuzz.active > ROUNDS, "most partitions are not touched by a round and must serve"


async def test_pods_over_damaged_files_leave_nothing_behind() -> None:
    fuzz = LogFuzz(await written_disk(), seed=2)
    for _ in range(20):
        await fuzz.run_round()
    tracemalloc.start()
    try:
        for _ in range(30):
            await fuzz.run_round()
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < GROWTH_BYTES
