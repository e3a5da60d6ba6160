"""A pod that makes every answer as a whole, to show that the test of slices can fail: `python -m
tests.support.unsliced_pod` with the arguments of `muster-coordinator`."""

from __future__ import annotations

import sys

from muster_coordinator.groups.offsets import fetch as offset_fetch
from muster_coordinator.process.main import main
from muster_coordinator.wire import k09_offset_fetch

if __name__ == "__main__":
    for module in (offset_fetch, k09_offset_fetch):
        module.SLICE_ENTRIES = 1 << 60  # type: ignore[attr-defined]
    sys.exit(main())
