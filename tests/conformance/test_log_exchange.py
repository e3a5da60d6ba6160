"""Logs in both directions: Kafka's tools and Kafka itself read our segments, and we load what a Kafka broker wrote."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.members import Member, commit, stable, topic
from tests.conformance.servers import server_at
from tests.conformance.session import CLOSED, KAFKA, MUSTER, Server, Session
from tests.support.kafka_broker import KafkaBroker, run_tool, why_no_kafka_yet
from tests.support.pod import SoloPod
from tests.support.replicas import AnyTopic

from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.log.disk import OsDisk
from muster_coordinator.log.journal.history import History
from muster_coordinator.log.segments.partition_log import LogSettings, PartitionLog
from muster_coordinator.records.decode import RECORD_TYPE_NAMES
from muster_coordinator.records.partitioner import partition_for
from muster_coordinator.replica.loading import replay_log
from muster_coordinator.requests import groups as m
from muster_coordinator.shard.metrics import ShardMetrics
from muster_coordinator.shard.replayed import ReplayedState
from muster_pipeline.decode.decoder import decode_segment
from muster_pipeline.decode.schema import Kind

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet()),
    pytest.mark.timeout(300),
]

PARTITIONS = 3
TOPICS = {"t": 10, "u": 3}
SEGMENT_BYTES = 1024 * 1024  # the least that a topic of Kafka 4.1 may have
SETTINGS = {
    "group.initial.rebalance.delay.ms": "300",
    "offsets.topic.segment.bytes": str(SEGMENT_BYTES),
}
KAFKA_SETTINGS = SETTINGS | {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "transaction.partition.verification.enable": "false",  # as in scripts/transactions.py
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.io.buffer.size": "2097152",
}
SESSION_MS = 120_000  # nobody sends heartbeats while servers restart
BUSY = "busy"
DUMP = ("org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--deep-iteration", "--files")

# (group, state after a load)
GROUPS = {
    "stable": "Stable",
    "rebalanced": "Stable",
    "rebalancing": "Stable",
    "connect": "Stable",
    "empty": "Empty",
    "simple-é😀": "Empty",
    "committed": "Empty",
    "aborted": "Empty",
    "pending": "Empty",
    BUSY: "Empty",
    "deleted": "Dead",
}


class Writer:
    """Writes every kind of group through the Kafka protocol."""

    def __init__(self, server: Server) -> None:
        self.session = Session(server, "log-exchange")

    def member(self, group: str, name: str, **options: Any) -> Member:
        self.session.group = group
        return Member(self.session, name, session_ms=SESSION_MS, rebalance_ms=SESSION_MS, **options)

    async def write(self) -> None:
        a, b = self.member("stable", "a", instance="i-1"), self.member("stable", "b")
        await stable(a, b)
        await a.commit(topics=[topic("t", (0, 10), (1, 11, None)), topic("u", (2, 2**40, "é"))])
        c = self.member("rebalanced", "c")
        await stable(c)
        for _ in range(3):
            await c.join()
            await c.sync()
        await c.commit()
        d = self.member("rebalancing", "d")
        await stable(d)
        waiting = self.member("rebalancing", "e")
        await waiting.ask_for_id()
        await waiting.park_join()
        await stable(self.member("connect", "f", protocol_type="connect", protocols=(("v1", b"\xff\x00"),)))
        g = self.member("empty", "g")
        await stable(g)
        await g.commit()
        await g.leave()
        await self.session.until_state("Empty")
        await self.simple_groups()
        await self.transactions()

    async def simple_groups(self) -> None:
        s = self.session
        s.group = "simple-é😀"
        await commit(s, topics=[topic("t", (0, 1), (1, 2)), topic("u", (0, 3))])
        await commit(s, topics=[topic("t", (0, 7, "later"))])
        deleted = [{"name": "u", "partitions": [{"partition_index": 0}]}]
        await s.ask("offset_delete", 0, group_id=s.group, topics=deleted)
        s.group = "deleted"
        await commit(s)
        await s.ask("delete_groups", 2, groups_names=["deleted"])

    async def transactions(self) -> None:
        await self.transaction("committed", 1, committed=True)
        await self.transaction("aborted", 2, committed=False)
        await commit(self.session, offset=77, group_id="aborted", topics=[topic("u", (1, 77))])
        await self.transaction("pending", 3, committed=None)
        await commit(self.session, offset=77, group_id="pending")

    async def transaction(self, group: str, producer_id: int, *, committed: bool | None) -> None:
        s = self.session
        producer: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 0}
        offsets = [topic("t", (0, 100 + producer_id), (5, 200 + producer_id))]
        fields = producer | {"transactional_id": "x", "group_id": group, "generation_id": -1, "topics": offsets}
        await s.ask("txn_offset_commit", 3, **fields)
        if committed is not None:
            partitions = [partition_for(group, PARTITIONS)]
            marker = producer | {
                "transaction_result": committed,
                "topics": [{"name": "__consumer_offsets", "partition_indexes": partitions}],
            }
            await s.ask("write_txn_markers", 1, markers=[marker])

    async def fill(self, size: int) -> None:
        """Commits of one group until its partition holds about `size` bytes more."""
        for number in range(size // 40_000):
            offsets = [topic("t", *((p, number, "x" * 4000) for p in range(10)))]
            await commit(self.session, group_id=BUSY, topics=offsets)

    def check(self) -> None:
        """Nothing was refused."""
        for step in self.session.steps:
            assert step.outcome != CLOSED, step
            for code in re.findall(r"error_code=<ErrorCode\.\w+: (\d+)>", str(step.outcome)):
                assert code in ("0", "79"), step


Report = dict[str, tuple[Any, ...]]


async def report_of(server: Server) -> Report:
    """What a server says of each group: state, protocol, members, offsets, and which of them are not stable."""
    session = Session(server, "report")
    try:
        found: Report = {}
        for group in GROUPS:
            described = (await session.quietly("describe_groups", 5, groups=[group])).groups[0]
            members = sorted(
                (e.member_id, e.group_instance_id, e.client_id, e.client_host, e.member_metadata, e.member_assignment)
                for e in described.members
            )
            offsets = await session.quietly("offset_fetch", 7, group_id=group, topics=None)
            wanted = [{"name": "t", "partition_indexes": list(range(10))}]
            unstable = await session.quietly("offset_fetch", 7, group_id=group, topics=wanted, require_stable=True)
            found[group] = (
                str(described.group_state),
                str(described.protocol_type),
                str(described.protocol_data),
                members,
                {
                    (str(t.name), int(p.partition_index)): (int(p.committed_offset), p.metadata)
                    for t in offsets.topics
                    for p in t.partitions
                },
                {int(p.partition_index) for t in unstable.topics for p in t.partitions if int(p.error_code) == 88},
            )
        return found
    finally:
        await session.close()


def loaded(directories: Sequence[Path]) -> Report:
    """The same from the files alone, by the code that a pod loads with; index = number of the partition."""
    coordinators = []
    for partition, directory in enumerate(directories):
        coordinator, metrics = load(directory, partition)
        assert metrics.unknown_records == 0
        coordinators.append(coordinator)
    return {group: _group_report(coordinators[partition_for(group, PARTITIONS)], group) for group in GROUPS}


def load(directory: Path, partition: int) -> tuple[GroupCoordinator, ShardMetrics]:
    history = History(boot_id="")
    log = PartitionLog.open(OsDisk(), directory, partition, LogSettings(segment_bytes=SEGMENT_BYTES), history)
    coordinator = GroupCoordinator(GroupConfig(), AnyTopic(), lambda: "")
    metrics = ShardMetrics()
    for _ in replay_log(log, ReplayedState(coordinator), metrics):
        pass
    log.close()
    coordinator.on_loaded(int(time.time() * 1000))
    return coordinator, metrics


def _group_report(coordinator: GroupCoordinator, group: str) -> tuple[Any, ...]:
    def ask(request: object) -> Any:
        return coordinator.operations[type(request)](request, object(), 0).response

    described = ask(m.DescribeGroupRequest(group, 5))
    offsets = ask(m.OffsetFetchRequest(group, None, -1, None, False))
    unstable = ask(m.OffsetFetchRequest(group, None, -1, (("t", tuple(range(10))),), True))
    return (
        described.group_state,
        described.protocol_type,
        described.protocol_data,
        sorted(
            (e.member_id, e.group_instance_id, e.client_id, e.client_host, e.metadata, e.assignment)
            for e in described.members
        ),
        {(name, p[0]): (p[1], p[3]) for name, partitions in offsets.topics for p in partitions},
        {p[0] for _, partitions in unstable.topics for p in partitions if p[4] == 88},
    )


def check_report(report: Report) -> None:
    """The report is about what was written, not about nothing."""
    assert {group: entry[0] for group, entry in report.items()} == GROUPS
    assert len(report["stable"][3]) == 2
    assert report["stable"][4] == {("t", 0): (10, "m"), ("t", 1): (11, ""), ("u", 2): (2**40, "é")}
    assert report["simple-é😀"][4] == {("t", 0): (7, "later"), ("t", 1): (2, "m")}
    assert report["committed"][4] == {("t", 0): (101, "m"), ("t", 5): (201, "m")}
    assert report["aborted"][4] == {("u", 1): (77, "m")}
    assert (report["pending"][4], report["pending"][5]) == ({("t", 0): (77, "m")}, {0, 5})
    assert report["deleted"][4] == {}


def copy_partition(source: Path, target: Path) -> None:
    """Segments alone, as somebody would who moves a log."""
    target.mkdir(parents=True, exist_ok=True)
    for file in [*target.glob("*.log"), *target.glob("*.*index"), *target.glob("*.snapshot")]:
        file.unlink()
    for file in source.glob("*.log"):
        shutil.copy(file, target)


async def test_muster_loads_what_kafka_wrote_and_compacted(tmp_path: Path) -> None:
    async with KafkaBroker(tmp_path, KAFKA_SETTINGS, TOPICS) as broker:
        writer = Writer(Server(KAFKA, broker.port, 0))
        await writer.write()
        await writer.fill(4 * SEGMENT_BYTES)
        writer.check()
        await _until_compacted(broker, partition_for(BUSY, PARTITIONS))
        await writer.session.close()
        await broker.stop()
        directories = []
        for partition in range(PARTITIONS):
            directories.append(tmp_path / "copy" / f"__consumer_offsets-{partition}")
            shutil.copytree(broker.partition_dir(partition), directories[-1])
        await broker.start()
        by_kafka = await report_of(Server(KAFKA, broker.port, 0))
    check_report(by_kafka)
    assert loaded(directories) == by_kafka


async def _until_compacted(broker: KafkaBroker, partition: int) -> None:
    """Until the cleaner has been through a closed segment: it is much smaller than it was."""
    async with asyncio.timeout(60):
        while True:
            closed = sorted(broker.partition_dir(partition).glob("*.log"))[:-1]
            if closed and all(file.stat().st_size < SEGMENT_BYTES // 2 for file in closed):
                return
            await asyncio.sleep(0.2)


async def test_kafka_and_its_tools_read_what_muster_wrote(tmp_path: Path) -> None:
    config = [f"{name}={value}" for name, value in SETTINGS.items()]
    async with SoloPod(tmp_path / "pod" / "data", PARTITIONS, TOPICS, config) as pod:
        server = Server(MUSTER, pod.kafka_port, 0)
        writer = Writer(server)
        await writer.write()
        await writer.fill(SEGMENT_BYTES // 2)
        writer.check()
        await writer.session.close()
        pod.terminate()
        await pod.start()
        by_muster = await report_of(server)
        pod.terminate()
        directories = [pod.data_dir / f"__consumer_offsets-{partition}" for partition in range(PARTITIONS)]
    check_report(by_muster)
    await _check_dump(directories)
    async with KafkaBroker(tmp_path, KAFKA_SETTINGS, TOPICS) as broker:
        await broker.stop()
        for directory in directories:
            copy_partition(directory, broker.data_dir / directory.name)
        (broker.data_dir / ".kafka_cleanshutdown").unlink()  # so that it checks every segment
        await broker.start()
        by_kafka = await report_of(Server(KAFKA, broker.port, 0))
        log = broker.log()
    assert by_kafka == by_muster
    assert "Corrupt" not in log
    assert "Found invalid" not in log


async def _check_dump(directories: Sequence[Path]) -> None:
    """DumpLogSegments decodes every record, and finds every group."""
    files = [file for directory in directories for file in sorted(directory.glob("*.log"))]
    code, output = await run_tool(*DUMP, ",".join(map(str, files)))
    assert code == 0, output[-2000:]
    for complaint in ("Exception", "Found timestamp mismatch", "Non-consecutive", "Mismatches", "isvalid: false"):
        assert complaint not in output, output[-2000:]
    for group in GROUPS:
        assert f'"group":"{group}"' in output, output[-2000:]
    assert "endTxnMarker: COMMIT" in output
    assert "endTxnMarker: ABORT" in output


async def test_dump_complains_about_a_damaged_segment(tmp_path: Path) -> None:
    """So that the absence of complaints above says something."""
    async with SoloPod(tmp_path / "data", 1, TOPICS) as pod:
        client = await pod.client()
        for offset in range(3):
            assert await client.commit("g", offset) == 0
        await client.close()
        pod.terminate()
        segment = pod.segment()
    data = bytearray(segment.read_bytes())
    data[-3] ^= 0xFF
    segment.write_bytes(data)
    _, output = await run_tool(*DUMP, str(segment))
    assert "Exception" in output or "isvalid: false" in output, output[-2000:]


# -- groups of other protocols ----------------------------------------------------------------------------------------

MEMBER = str(uuid.UUID(int=5))


async def _join(session: Session, api: str, version: int, **fields: Any) -> int:
    """Heartbeats until the member has an assignment; returns its epoch. Only the first one has the `fields`."""
    epoch = 0
    async with asyncio.timeout(30):
        while True:
            identity = {"group_id": session.group, "member_id": MEMBER, "member_epoch": epoch}
            answer = await session.quietly(api, version, **identity, **fields)
            fields = {}
            assert int(answer.error_code) == 0, answer
            epoch = int(answer.member_epoch)
            assigned = answer.active_tasks if api.startswith("streams") else answer.assignment
            if assigned and (api.startswith("streams") or assigned.topic_partitions):
                return epoch
            await asyncio.sleep(0.2)


async def _write_groups_of_other_protocols(server: Server) -> None:
    session = Session(server, "other")
    joining = {"rebalance_timeout": SESSION_MS}
    try:
        session.group = "consumer"
        epoch = await _join(
            session, "consumer_group_heartbeat", 1, subscribed_topic_names=["t"], topic_partitions=[], **joining
        )
        answer = await commit(session, 10, 7, member_id=MEMBER, generation_id_or_member_epoch=epoch)
        assert int(answer.topics[0].partitions[0].error_code) == 0
        session.group = "share"
        await _join(session, "share_group_heartbeat", 1, subscribed_topic_names=["t"])
        session.group = "streams"
        topology = {"epoch": 1, "subtopologies": [{"subtopology_id": "0", "source_topics": ["u"]}]}
        tasks: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
        await _join(session, "streams_group_heartbeat", 0, topology=topology, process_id="p", **tasks, **joining)
    finally:
        await session.close()


async def test_muster_keeps_the_offsets_of_groups_of_other_protocols_and_knows_their_records_by_name(
    tmp_path: Path,
) -> None:
    settings = KAFKA_SETTINGS | {
        "offsets.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
    }
    settings |= {"share.coordinator.state.topic.min.isr": "1", "share.coordinator.state.topic.num.partitions": "1"}
    async with KafkaBroker(tmp_path, settings, TOPICS) as broker:
        server = await server_at(KAFKA, broker.port)
        await _write_groups_of_other_protocols(server)
        await broker.stop()
        directory = broker.partition_dir(0)
    rows = [row for file in sorted(directory.glob("*.log")) for row in decode_segment(file.read_bytes()).to_pylist()]
    types = Counter(row["record_type"] for row in rows if row["kind"] == Kind.UNKNOWN)
    assert set(types) >= {10, 11, 12, 13, 14, 17, 19, 20, 21, 22, 23}
    assert all(number in RECORD_TYPE_NAMES for number in types)
    coordinator, metrics = load(directory, 0)
    assert metrics.unknown_records == sum(types.values())
    state = coordinator.durable_state()
    assert (set(state.consumers), state.implied_groups, state.groups) == ({"consumer"}, frozenset(), {})
    _, value = state.committed["consumer", "t", 0]
    assert (value.offset, value.topic_id) == (7, server.topic_ids["t"].bytes)
