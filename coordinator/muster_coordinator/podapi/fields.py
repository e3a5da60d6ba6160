"""The parts of every message of the pod API: checked fields, the bases of requests and answers, refusals.

Messages are JSON in camelCase. Unknown fields and unknown events are ignored, so that operator and pods can be one
version apart in either direction: a new field is optional, and what a pod must not ignore is a call of its own. A
partition is the index of an offsets partition; an epoch is a leader epoch (int32, -1: none); a log id names a replica
(docs/replication.md).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

Partition = Annotated[int, msgspec.Meta(ge=0, le=999_999)]
Epoch = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
NodeId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
LogId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
FencingToken = Annotated[int, msgspec.Meta(ge=0)]

ADDRESSEE_HEADER = "Muster-Pod"
"""Names the pod that a call is meant for, because an address can have passed to another pod."""


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """Base of requests."""


class Answer(msgspec.Struct, frozen=True, rename="camel"):
    """Base of answers and events."""


class Problem(Answer, frozen=True):
    """Body of the answer to a call that is refused as a whole: a stable code, and a sentence that names the cause."""

    reason: str
    message: str
