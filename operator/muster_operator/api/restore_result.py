"""The answer of `muster restore` to the operator: the termination message of a Job's container."""

from __future__ import annotations

import msgspec


class RestoreResult(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`backup`: the id of the one that was read ("": none). `taken_at_ms`: of its cut, since 1970. `bytes`: of all its
    logs. The numbers of its partitions begin at `offsets_base` and `transaction_base`. `error`: what failed."""

    backup: str = ""
    taken_at_ms: int = 0
    cluster_id: str = ""
    bytes: int = 0
    offsets_base: int = 0
    offsets_partitions: int = 0
    transaction_base: int = 0
    transaction_partitions: int = 0
    error: str = ""
