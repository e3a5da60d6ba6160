"""What a re-shard asks of pods: close and open partitions, and records for new ones (docs/resharding.md).

    POST /v1/fences                                                   FencesRequest -> FencesResponse
    POST /v1/imports/<partition>?token=N&reshard=N&position=N[&last]  record batches -> FenceResult

Both go to the leader, can be repeated, and are answered when what they say is committed.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from muster_coordinator.podapi.fields import Answer, FencingToken, Partition, Request
from muster_coordinator.podapi.models import FenceStatus

__all__ = ["MAX_IMPORT_BYTES", "FenceCall", "FenceResult", "FencesRequest", "FencesResponse", "Reshard"]

MAX_IMPORT_BYTES = 1 << 20
"""Of one call: decoding it keeps the pod's event loop busy."""

Reshard = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class FenceCall(Request, frozen=True):
    """Have the partition closed by this re-shard, or opened. `importing`: it is a new one, which takes in records."""

    partition: Partition
    reshard: Reshard
    open: bool = False
    importing: bool = False


class FencesRequest(Request, frozen=True):
    fencing_token: FencingToken
    fences: tuple[FenceCall, ...]


class FenceResult(Answer, frozen=True):
    """`fence` is committed; None when the call was refused: `reason` is a code of `shard.fencing.Fencing`."""

    partition: int
    fence: FenceStatus | None = None
    reason: str = ""
    message: str = ""


class FencesResponse(Answer, frozen=True):
    results: tuple[FenceResult, ...]
