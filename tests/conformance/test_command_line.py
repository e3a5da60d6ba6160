"""Kafka's own kafka-consumer-groups.sh against Muster: list, describe, reset offsets, delete offsets, delete groups."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conformance.members import Member, assignment, commit, form, topic
from tests.conformance.session import MUSTER, Server, Session
from tests.support.kafka_broker import group_command, java, run_tool, why_no_kafka_yet
from tests.support.pod import SoloPod

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why_no_kafka_yet()), reason=why_no_kafka_yet()),
    pytest.mark.timeout(300),
]

PARTITIONS = 5


class Cluster:
    """A pod with a group "live" (two members; t-0 and t-1 committed) and a simple group "idle" (t-0 to t-2, u-0)."""

    def __init__(self, pod: SoloPod, session: Session) -> None:
        self.pod = pod
        self.session = session

    async def run(self, *arguments: str) -> str:
        """Output of the tool; it has to succeed without complaint."""
        code, output = await run_tool(*group_command(f"127.0.0.1:{self.pod.kafka_port}", arguments))
        assert code == 0, output
        assert "Exception" not in output, output
        assert "Error:" not in output, output
        return output

    async def offsets(self, group: str) -> dict[tuple[str, int], int]:
        answer = await self.session.quietly("offset_fetch", 7, group_id=group, topics=None)
        return {
            (str(t.name), int(p.partition_index)): int(p.committed_offset) for t in answer.topics for p in t.partitions
        }


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    config = ["group.initial.rebalance.delay.ms=300"]
    async with SoloPod(tmp_path / "data", PARTITIONS, {"t": 3, "u": 1}, config) as pod:
        session = Session(Server(MUSTER, pod.kafka_port, 0), "live")
        a, b = Member(session, "a", instance="one"), Member(session, "b")
        await form(a, b)
        assigned = {a.member_id: assignment("t", 0, 1), b.member_id: assignment("t", 2)}
        await a.sync(assignments=[{"member_id": each, "assignment": bytes_} for each, bytes_ in assigned.items()])
        await b.sync()
        await a.commit(topics=[topic("t", (0, 10), (1, 11))])
        session.group = "idle"
        await commit(session, topics=[topic("t", (0, 3), (1, 4), (2, 5)), topic("u", (0, 6))])
        session.group = "live"
        try:
            yield Cluster(pod, session)
        finally:
            await session.close()


def rows(output: str) -> list[list[str]]:
    """The table that the tool printed, without its header, sorted."""
    lines = [line.split() for line in output.splitlines() if line.strip()]
    header = next(i for i, line in enumerate(lines) if line[0] == "GROUP")
    return sorted(lines[header + 1 :])


async def test_list(cluster: Cluster) -> None:
    assert sorted((await cluster.run("--list")).split()) == ["idle", "live"]
    states = {tuple(row) for row in rows(await cluster.run("--list", "--state"))}
    assert states == {("idle", "Empty"), ("live", "Stable")}
    only_stable = rows(await cluster.run("--list", "--state", "stable"))
    assert only_stable == [["live", "Stable"]]
    types = rows(await cluster.run("--list", "--type"))
    assert [row[0] for row in types] == ["idle", "live"]
    assert {row[1] for row in types} == {"Classic"}


async def test_describe_offsets_members_and_state(cluster: Cluster) -> None:
    offsets = rows(await cluster.run("--describe", "--group", "idle", "--offsets"))
    assert [row[1:4] for row in offsets] == [["t", "0", "3"], ["t", "1", "4"], ["t", "2", "5"], ["u", "0", "6"]]
    live = rows(await cluster.run("--describe", "--group", "live", "--offsets"))
    assert [row[1:4] for row in live] == [["t", "0", "10"], ["t", "1", "11"], ["t", "2", "-"]]
    assert [row[6].split("-")[0] for row in live] == ["one", "one", "b"]
    members = await cluster.run("--describe", "--group", "live", "--members")
    assert re.search(r"live\s+one-[0-9a-f-]{36}\s+one\s+/127\.0\.0\.1\s+a\s+2\s", members), members
    assert re.search(r"live\s+b-[0-9a-f-]{36}\s+/127\.0\.0\.1\s+b\s+1\s", members), members
    state = await cluster.run("--describe", "--group", "live", "--state")
    assert re.search(rf"live\s+127\.0\.0\.1:{cluster.pod.kafka_port}\s+\(0\)\s+range\s+Stable\s+2", state), state
    everything = await cluster.run("--describe", "--all-groups", "--state")
    assert re.search(r"idle\s.*Empty\s+0", everything), everything


RESETS = {
    "to_earliest": (["--to-earliest"], {0: 0, 1: 0, 2: 0}),
    "to_latest": (["--to-latest"], {0: 0, 1: 0, 2: 0}),
    "to_current": (["--to-current"], {0: 3, 1: 4, 2: 5}),
    "to_offset": (["--to-offset", "0"], {0: 0, 1: 0, 2: 0}),
    "shift_by": (["--shift-by", "-2"], {0: 0, 1: 0, 2: 0}),
    "to_datetime": (["--to-datetime", "2020-01-01T00:00:00.000"], {0: 0, 1: 0, 2: 0}),
    "by_duration": (["--by-duration", "PT1H"], {0: 0, 1: 0, 2: 0}),
}


@pytest.mark.parametrize("mode", RESETS)
async def test_reset_offsets(cluster: Cluster, mode: str) -> None:
    """Topics hold no data here, so that Kafka's tool takes 0, their end, for every offset beyond it."""
    arguments, expected = RESETS[mode]
    output = await cluster.run("--reset-offsets", "--group", "idle", "--topic", "t", *arguments, "--execute")
    assert [row[:3] for row in rows(output)] == [["idle", "t", str(p)] for p in range(3)], output
    offsets = await cluster.offsets("idle")
    assert {p: offsets["t", p] for p in range(3)} == expected
    assert offsets["u", 0] == 6


async def test_reset_offsets_from_a_file(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text("t,0,0\nt,1,0\n")
    await cluster.run("--reset-offsets", "--group", "idle", "--from-file", str(file), "--execute")
    assert await cluster.offsets("idle") == {("t", 0): 0, ("t", 1): 0, ("t", 2): 5, ("u", 0): 6}


async def test_reset_offsets_of_all_topics_is_only_shown_without_execute(cluster: Cluster) -> None:
    before = await cluster.offsets("idle")
    await cluster.run("--reset-offsets", "--group", "idle", "--all-topics", "--to-earliest", "--dry-run")
    assert await cluster.offsets("idle") == before
    await cluster.run("--reset-offsets", "--group", "idle", "--all-topics", "--to-earliest", "--execute")
    assert set((await cluster.offsets("idle")).values()) == {0}


async def test_reset_offsets_of_a_group_with_members_is_refused(cluster: Cluster) -> None:
    arguments = ("--reset-offsets", "--group", "live", "--topic", "t", "--to-earliest", "--execute")
    _, output = await run_tool(*group_command(f"127.0.0.1:{cluster.pod.kafka_port}", arguments))
    assert "inactive" in output, output
    assert await cluster.offsets("live") == {("t", 0): 10, ("t", 1): 11}


async def test_delete_offsets_and_groups(cluster: Cluster) -> None:
    await cluster.run("--delete-offsets", "--group", "idle", "--topic", "t:1")
    assert await cluster.offsets("idle") == {("t", 0): 3, ("t", 2): 5, ("u", 0): 6}
    await cluster.run("--delete-offsets", "--group", "idle", "--topic", "t")
    assert await cluster.offsets("idle") == {("u", 0): 6}
    deleted = await cluster.run("--delete", "--group", "idle")
    assert "successful" in deleted, deleted
    assert (await cluster.run("--list")).split() == ["live"]
    _, refused = await run_tool(*group_command(f"127.0.0.1:{cluster.pod.kafka_port}", ("--delete", "--group", "live")))
    assert "not empty" in refused or "GroupNotEmpty" in refused, refused


@pytest.mark.parametrize(
    "consumer",
    [
        ("org.apache.kafka.tools.VerifiableShareConsumer",),
    ],
    ids=["share"],
)
async def test_java_consumer_of_another_protocol_gives_up(cluster: Cluster, consumer: tuple[str, ...]) -> None:
    """It waits for a message otherwise, and none ever comes. What it is told it would write to its log."""
    address = f"127.0.0.1:{cluster.pod.kafka_port}"
    more = ("--bootstrap-server", address, "--topic", "t", "--group-id", "another", "--max-messages", "1")
    _, output = await run_tool(*consumer, *more)
    assert '"name":"shutdown_complete"' in output, output
    assert (await cluster.run("--list")).split() == ["idle", "live"]


async def test_java_consumer_of_the_consumer_protocol_gets_its_partitions_and_is_described(cluster: Cluster) -> None:
    tool = ("org.apache.kafka.tools.VerifiableConsumer", "--group-protocol", "consumer", "--topic", "t")
    address = ("--bootstrap-server", f"127.0.0.1:{cluster.pod.kafka_port}", "--group-id", "new")
    consumer = await asyncio.create_subprocess_exec(
        *java(*tool, *address), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert consumer.stdout is not None
    try:
        async with asyncio.timeout(60):
            while b"partitions_assigned" not in (line := await consumer.stdout.readline()):
                assert line, "it ended"
        assert line.count(b'"topic":"t"') == 3, line
        described = await cluster.run("--describe", "--group", "new", "--members", "--verbose")
        assert re.search(r"new +\S+ +\S+ +\S+ +3 ", described), described
        state = await cluster.run("--describe", "--group", "new", "--state")
        assert re.search(r"new .* uniform +Stable +1", state), state
    finally:
        consumer.terminate()
        await consumer.wait()
    assert (await cluster.run("--describe", "--group", "new", "--state")).count("Empty") == 1
