"""The calls of a re-shard: close and open partitions, and fill new ones with records (docs/resharding.md).

    POST /v1/fences                                                   FencesRequest -> FencesResponse
    POST /v1/imports/<partition>?token=N&reshard=N&position=N[&last]  record batches -> FenceResult

Both go to the leader, which answers when the change is committed. They can be repeated.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from muster_coordinator.podapi.fields import Answer, FencingToken, Partition, Request
from muster_coordinator.podapi.models import FenceStatus

MAX_IMPORT_BYTES = 1 << 20
"""Longest body of one call, in bytes: to decode it keeps the pod's event loop busy."""

Reshard = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class FenceCall(Request, frozen=True):
    """Close the partition for this re-shard, or open it. `importing`: it is a new partition, which takes in records."""

    partition: Partition
    reshard: Reshard
    open: bool = False
    importing: bool = False


class FencesRequest(Request, frozen=True):
    fencing_token: FencingToken
    fences: tuple[FenceCall, ...]


class FenceResult(Answer, frozen=True):
    """`fence` is committed. None: the call was refused, and `reason` is a `calls.FenceRefusal`."""

    partition: int
    fence: FenceStatus | None = None
    reason: str = ""
    message: str = ""


class FencesResponse(Answer, frozen=True):
    results: tuple[FenceResult, ...]
