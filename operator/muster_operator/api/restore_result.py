"""The answer of `muster restore` to the operator: the termination message of a Job's container."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace


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

    def with_numbers(self, partitions: int, transaction_partitions: int) -> RestoreResult:
        """The same with other numbers of partitions, which both topics have under numbers that they never had (ADR 59).
        0: as many as in the backup. A backup without transactions stays so. Returns itself if nothing changes."""
        groups = partitions or self.offsets_partitions
        transactions = self.transaction_partitions and (transaction_partitions or self.transaction_partitions)
        if (groups, transactions) == (self.offsets_partitions, self.transaction_partitions):
            return self
        return replace(
            self,
            offsets_base=self.offsets_base + self.offsets_partitions,
            offsets_partitions=groups,
            transaction_base=self.transaction_base + self.transaction_partitions,
            transaction_partitions=transactions,
        )
