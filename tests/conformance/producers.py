"""Transactional producers, for scripts: they remember their producer id and epoch as they were answered."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from tests.conformance.members import topic
from tests.conformance.session import CLOSED, NO_ANSWER, Session

from muster_coordinator.records.partitioner import partition_for

OFFSETS = "__consumer_offsets"
OFFSETS_PARTITIONS = 5
TIMEOUT_MS = 60_000
NOBODY = (-1, -1)
WAIT_S = 15.0

Identity = tuple[int, int]
"""(producer id, epoch)."""

_ids = itertools.count(1_000_000)
_ids_by_script: dict[tuple[str, int], int] = {}


def producer_id(s: Session, number: int = 0) -> int:
    """A producer id of this script that no coordinator gave out, the same on both servers. Scripts run at once, and
    Kafka's AddPartitionsToTxnManager answers the first of two concurrent verifications of one producer id with
    NETWORK_EXCEPTION, which TxnOffsetCommit turns into COORDINATOR_LOAD_IN_PROGRESS."""
    return _ids_by_script.setdefault((s.name, number), next(_ids))


class Producer:
    """`name` is its transactional id, by default the script's; `identity` the producer id and epoch that it has."""

    def __init__(self, session: Session, name: str | None = None) -> None:
        self.session = session
        self.name = session.name if name is None else name
        self.identity = NOBODY

    async def init(self, version: int = 4, identity: Identity = NOBODY, **changes: Any) -> Any:
        """InitProducerId; with an `identity` as a producer that has one already (KIP-360)."""
        fields = {"transactional_id": self.name, "transaction_timeout": TIMEOUT_MS}
        fields |= {"producer_id": identity[0], "producer_epoch": identity[1]} | changes
        answer = await self.session.ask("init_producer_id", version, **fields)
        self._take(answer)
        return answer

    async def add_offsets(self, version: int = 3, **changes: Any) -> Any:
        """AddOffsetsToTxn of the script's group."""
        fields = self._fields() | {"group_id": self.session.group} | changes
        return await self.session.ask("add_offsets_to_txn", version, **fields)

    async def add(self, *topics: tuple[str, list[int]], version: int = 3, **changes: Any) -> Any:
        """AddPartitionsToTxn; up to version 3 as clients send it, then as a broker does."""
        return await self.session.ask(
            "add_partitions_to_txn", version, **self.addition(*topics, version=version, **changes)
        )

    def addition(self, *topics: tuple[str, list[int]], version: int = 5, **changes: Any) -> dict[str, Any]:
        named = [{"name": name, "partitions": partitions} for name, partitions in topics]
        if version < 4:
            fields = {f"v3_and_below_{name}": value for name, value in (self._fields() | changes).items()}
            return fields | {"v3_and_below_topics": named}
        return {"transactions": [self._fields() | {"verify_only": False, "topics": named} | changes]}

    async def add_group(self, version: int = 5, **changes: Any) -> Any:
        """The offsets partition of the script's group, as a broker adds it for a client of transaction version 2."""
        partition = partition_for(self.session.group, OFFSETS_PARTITIONS)
        return await self.add((OFFSETS, [partition]), version=version, **changes)

    async def commit_offset(self, version: int = 3, offset: int = 5, partition: int = 0, **changes: Any) -> Any:
        """TxnOffsetCommit of the script's group."""
        fields = self._fields() | {"group_id": self.session.group, "generation_id": -1}
        fields |= {"topics": [topic("t", (partition, offset))]} | changes
        return await self.session.ask("txn_offset_commit", version, **fields)

    async def end(self, committed: bool = True, version: int = 3, **changes: Any) -> Any:
        """EndTxn, and wait until its markers are written. From version 5 on the answer has the next epoch."""
        answer = await self.session.ask("end_txn", version, **(self._fields() | {"committed": committed} | changes))
        await self.rest()
        if version >= 5:
            self._take(answer)
        return answer

    async def rest(self) -> None:
        """Wait until no markers are missing: what is answered meanwhile depends on a moment that nobody chooses."""
        await self.until(lambda state: not state.startswith("Prepare"))

    async def until(self, holds: Any) -> None:
        state = ""
        try:
            async with asyncio.timeout(WAIT_S):
                while True:
                    answer = await self.session.quietly("list_transactions", 1, duration_filter=-1)
                    if answer not in (NO_ANSWER, CLOSED):
                        listed = {each.transactional_id: each.transaction_state for each in answer.transaction_states}
                        state = listed.get(self.name, "")
                        if holds(state):
                            return
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"transaction of {self.name} is still in state {state!r}") from None

    async def describe(self) -> Any:
        return await self.session.ask("describe_transactions", 0, transactional_ids=[self.name])

    async def list(self, version: int = 1, **changes: Any) -> Any:
        return await self.session.ask("list_transactions", version, **({"duration_filter": -1} | changes))

    def older(self, by: int = 1) -> Identity:
        """The identity with an epoch that is so much lower."""
        return self.identity[0], self.identity[1] - by

    def as_fields(self, identity: Identity) -> dict[str, int]:
        return {"producer_id": identity[0], "producer_epoch": identity[1]}

    def _fields(self) -> dict[str, Any]:
        return {"transactional_id": self.name} | self.as_fields(self.identity)

    def _take(self, answer: Any) -> None:
        if answer not in (NO_ANSWER, CLOSED) and int(answer.error_code) == 0:
            self.identity = int(answer.producer_id), int(answer.producer_epoch)
