"""Thousands of groups at a Kafka cluster: members, commits, transactions, deletions and offsets that expire.

Every group belongs to one writer, which does one thing after the other, so that a ledger can say what counts when.
"""

from __future__ import annotations

import asyncio
import datetime
import random
import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.kafka import KafkaClient, schema
from tests.support.offsets_ledger import PARTITIONS, Ledger, now_ms

from muster_coordinator.records.partitioner import partition_for

TOPIC = "t"
KEPT = datetime.timedelta(seconds=3)
"""Offsets of groups that are left to expire."""
GROUP, TRANSACTION = 0, 1
_CONCURRENT_TRANSACTIONS, _UNSTABLE_OFFSET_COMMIT, _MEMBER_ID_REQUIRED, _GROUP_ID_NOT_FOUND = 51, 88, 79, 69
_UNKNOWN_MEMBER_ID = 25
_PASSING = frozenset({14, 15, 16})
_DEADLINE_S = 60.0


def kind_of(number: int) -> str:
    """The kind of a group, by its number: 5 in 100 have a member, 3 commit in transactions, 2 are left to expire."""
    place = number % 100
    return "member" if place < 5 else "transactional" if place < 8 else "expiring" if place < 10 else "simple"


def name_of(number: int) -> str:
    return f"{kind_of(number)}-{number}"


def simple_groups(names: Iterable[str], partitions: int, of_each: int = 10) -> set[str]:
    """Up to so many groups of each offsets partition that commit outside of transactions, and have no members."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for name in names:
        if name.startswith("simple-"):
            found[partition_for(name, partitions)].append(name)
    return {name for each in found.values() for name in each[:of_each]}


async def coordinators(bootstrap: str, names: Sequence[str], kind: int = GROUP) -> dict[str, int]:
    """The port of each one's coordinator."""
    m = schema("find_coordinator", 4)
    found: dict[str, int] = {}
    client = await KafkaClient.connect(int(bootstrap.split(",")[0].rpartition(":")[2]))
    async with asyncio.timeout(_DEADLINE_S):
        while missing := [name for name in names if name not in found][:1000]:
            answer = await client.call(m.FindCoordinatorRequest(key_type=kind, coordinator_keys=tuple(missing)))
            found |= {each.key: int(each.port) for each in answer.coordinators if not each.error_code}
    await client.close()
    return found


@dataclass
class Member:
    member_id: str = ""
    generation: int = -1


class Writer:
    """`ports`: of the coordinators of its groups and of its transactional id, by name."""

    def __init__(self, name: str, groups: Sequence[str], ports: Mapping[str, int], ledger: Ledger, seed: int) -> None:
        self.name = name
        self._groups = groups
        self._ports = ports
        self._ledger = ledger
        self._chance = random.Random(seed)
        self._clients: dict[int, KafkaClient] = {}
        self._members: dict[str, Member] = {}
        self._expiring: dict[str, tuple[int, list[int]]] = {}
        self._producer: dict[str, Any] = {}
        self._next = 0

    async def run(self, enough: Callable[[], bool]) -> None:
        """Each of its groups once, then any of them, until there is enough."""
        for group in self._groups:
            await self._step(group)
        while not enough():
            await self._step(self._chance.choice(self._groups))

    async def touch(self, groups: Collection[str]) -> None:
        """A commit of those that are its own: a record behind every marker of their partitions, if nobody else
        writes."""
        for group in self._groups:
            if group in groups:
                await self._commit(group, Member())

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()
        self._clients.clear()

    async def wait_expired(self) -> None:
        """Waits until every offset that was left to expire is gone."""
        for group in list(self._expiring):
            async with asyncio.timeout(_DEADLINE_S):
                while not await self._note_expiry(group):
                    await asyncio.sleep(0.2)

    async def _step(self, group: str) -> None:
        kind = group.partition("-")[0]
        if kind == "member":
            await self._commit(group, self._members.get(group) or await self._join(group))
        elif kind == "transactional":
            await self._transaction(group)
        elif kind == "expiring":
            if await self._note_expiry(group):
                await self._commit_for_a_while(group)
        else:
            await self._simple(group)

    async def _simple(self, group: str) -> None:
        chance = self._chance.random()
        if chance < 0.004:
            await self._delete(group)
        elif chance < 0.012:
            await self._delete_offset(group)
        else:
            await self._commit(group, Member())

    def _some(self, most: int = PARTITIONS) -> dict[int, int]:
        """Offsets of some partitions."""
        self._next += 1
        partitions = self._chance.sample(range(PARTITIONS), self._chance.randint(1, most))
        return {partition: self._next * 10 + partition for partition in partitions}

    async def _client(self, name: str) -> KafkaClient:
        port = self._ports[name]
        if port not in self._clients:
            self._clients[port] = await KafkaClient.connect(port)
        return self._clients[port]

    async def _ask(self, name: str, request: Any, code_of: Callable[[Any], int], passing: frozenset[int]) -> Any:
        """The answer, and asks again for as long as it has one of these codes."""
        async with asyncio.timeout(_DEADLINE_S):
            while True:
                answer = await (await self._client(name)).call(request)
                if int(code_of(answer)) not in passing:
                    return answer
                await asyncio.sleep(0.005)

    async def _commit(self, group: str, member: Member) -> None:
        offsets = self._some()
        client = await self._client(group)
        sent_ms = now_ms()
        client.writer.write(_commit_frame(group, member, offsets))
        (length,) = struct.unpack(">i", await client.reader.readexactly(4))
        frame = await client.reader.readexactly(length)
        codes = struct.unpack(">" + "ih" * len(offsets), frame[-6 * len(offsets) :])[1::2]
        assert not any(codes), (group, codes)
        self._ledger.changed(group, offsets, sent_ms, now_ms())

    async def _join(self, group: str) -> Member:
        join, sync = schema("join_group", 5), schema("sync_group", 3)
        member = Member()
        protocol = join.JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff")
        while member.generation < 0:
            answer = await self._ask(
                group,
                join.JoinGroupRequest(
                    group_id=group,
                    session_timeout=datetime.timedelta(minutes=30),
                    rebalance_timeout=datetime.timedelta(minutes=1),
                    member_id=member.member_id,
                    group_instance_id=None,
                    protocol_type="consumer",
                    protocols=(protocol,),
                ),
                lambda found: found.error_code,
                _PASSING,
            )
            # The first answer gives an id. Kafka forgets it when it removes empty groups at this moment.
            assert int(answer.error_code) in (0, _UNKNOWN_MEMBER_ID, _MEMBER_ID_REQUIRED), answer
            known = int(answer.error_code) != _UNKNOWN_MEMBER_ID
            member = Member(answer.member_id if known else "", int(answer.generation_id))
        mine = sync.SyncGroupRequestAssignment(member_id=member.member_id, assignment=group.encode())
        answer = await self._ask(
            group,
            sync.SyncGroupRequest(
                group_id=group,
                generation_id=member.generation,
                member_id=member.member_id,
                group_instance_id=None,
                assignments=(mine,),
            ),
            lambda found: found.error_code,
            _PASSING,
        )
        assert not answer.error_code, answer
        self._members[group] = member
        return member

    async def _delete(self, group: str) -> None:
        gone = dict.fromkeys(self._ledger.partitions_of(group))
        sent_ms = now_ms()
        request = schema("delete_groups", 1).DeleteGroupsRequest(groups_names=(group,))
        answer = await self._ask(group, request, lambda found: found.results[0].error_code, _PASSING)
        assert int(answer.results[0].error_code) in (0, _GROUP_ID_NOT_FOUND)
        self._ledger.changed(group, gone, sent_ms, now_ms())

    async def _delete_offset(self, group: str) -> None:
        known = self._ledger.partitions_of(group)
        if not known:
            return
        partition = self._chance.choice(known)
        m = schema("offset_delete", 0)
        topic = m.OffsetDeleteRequestTopic(
            name=TOPIC, partitions=(m.OffsetDeleteRequestPartition(partition_index=partition),)
        )
        sent_ms = now_ms()
        request = m.OffsetDeleteRequest(group_id=group, topics=(topic,))
        answer = await self._ask(group, request, lambda found: found.error_code, _PASSING)
        assert not answer.error_code, answer
        assert not answer.topics[0].partitions[0].error_code, answer
        self._ledger.changed(group, {partition: None}, sent_ms, now_ms())

    async def _commit_for_a_while(self, group: str) -> None:
        m = schema("offset_commit", 3)
        offsets = self._some()
        partitions = tuple(
            m.OffsetCommitRequestPartition(partition_index=each, committed_offset=offset, committed_metadata="")
            for each, offset in offsets.items()
        )
        request = m.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            retention_time=KEPT,
            topics=(m.OffsetCommitRequestTopic(name=TOPIC, partitions=partitions),),
        )
        sent_ms = now_ms()
        answer = await self._ask(group, request, lambda found: found.topics[0].partitions[0].error_code, _PASSING)
        assert not any(each.error_code for each in answer.topics[0].partitions), answer
        self._ledger.changed(group, offsets, sent_ms, now_ms())
        self._expiring[group] = (sent_ms + int(KEPT.total_seconds() * 1000), sorted(offsets))

    async def _note_expiry(self, group: str) -> bool:
        """Notes whether nothing of the group is left."""
        if group not in self._expiring:
            return True
        since_ms, partitions = self._expiring[group]
        if await self._committed(group):
            return False
        self._ledger.changed(group, dict.fromkeys(partitions), since_ms, now_ms())
        del self._expiring[group]
        return True

    async def _committed(self, group: str) -> bool:
        """True if the group has an offset."""
        request = schema("offset_fetch", 7).OffsetFetchRequest(group_id=group, topics=None, require_stable=False)
        answer = await self._ask(group, request, lambda found: found.error_code, _PASSING)
        assert not answer.error_code, answer
        return bool(answer.topics)

    async def _wait_stable(self, group: str, partitions: Iterable[int]) -> None:
        """Waits until no transaction is about to change these. They have to be named: among all of a group Kafka leaves
        out those that have no offset yet."""
        m = schema("offset_fetch", 7)
        topic = m.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=tuple(partitions))
        request = m.OffsetFetchRequest(group_id=group, topics=(topic,), require_stable=True)

        def code(found: Any) -> int:
            codes = {int(each.error_code) for topic in found.topics for each in topic.partitions}
            return int(found.error_code) or max(codes)

        answer = await self._ask(group, request, code, _PASSING | {_UNSTABLE_OFFSET_COMMIT})
        assert code(answer) == 0, answer

    async def _transaction(self, group: str) -> None:
        add, commit, end = schema("add_offsets_to_txn", 3), schema("txn_offset_commit", 3), schema("end_txn", 3)
        producer = self._producer or await self._new_producer()
        adding = add.AddOffsetsToTxnRequest(transactional_id=self.name, group_id=group, **producer)
        concurrent = _PASSING | {_CONCURRENT_TRANSACTIONS}
        answer = await self._ask(self.name, adding, lambda found: found.error_code, concurrent)
        assert not answer.error_code, answer
        offsets, committed = self._some(2), self._chance.random() < 0.7
        partitions = tuple(
            commit.TxnOffsetCommitRequestPartition(
                partition_index=each, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
            )
            for each, offset in offsets.items()
        )
        request = commit.TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=(commit.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=partitions),),
            **producer,
        )
        sent_ms = now_ms()
        answer = await self._ask(group, request, lambda found: found.topics[0].partitions[0].error_code, concurrent)
        assert not any(each.error_code for each in answer.topics[0].partitions), answer
        ending = end.EndTxnRequest(transactional_id=self.name, committed=committed, **producer)
        answer = await self._ask(self.name, ending, lambda found: found.error_code, concurrent)
        assert not answer.error_code, answer
        await self._wait_stable(group, offsets)  # the marker is written, from which on they count
        if committed:
            self._ledger.changed(group, offsets, sent_ms, now_ms())

    async def _new_producer(self) -> dict[str, Any]:
        m = schema("init_producer_id", 4)
        request = m.InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout=datetime.timedelta(minutes=5),
            producer_id=-1,
            producer_epoch=-1,
        )
        passing = _PASSING | {_CONCURRENT_TRANSACTIONS}
        answer = await self._ask(self.name, request, lambda found: found.error_code, passing)
        assert not answer.error_code, answer
        self._producer = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
        return self._producer


def _commit_frame(group: str, member: Member, offsets: Mapping[int, int]) -> bytes:
    """OffsetCommit 7, by hand: a million of them is a minute less of work than with kio."""
    body = struct.pack(">hhi", 8, 7, 0) + _string("test") + _string(group)
    body += struct.pack(">i", member.generation) + _string(member.member_id) + struct.pack(">h", -1)
    body += struct.pack(">i", 1) + _string(TOPIC) + struct.pack(">i", len(offsets))
    for partition, offset in offsets.items():
        body += struct.pack(">iqih", partition, offset, -1, 0)
    return struct.pack(">i", len(body)) + body


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data
