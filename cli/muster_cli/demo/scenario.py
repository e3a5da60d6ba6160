"""The steps of the demo, and what has to hold for exit code 0."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from types import FrameType

from muster_cli.demo.cluster import DemoCluster
from muster_cli.demo.consumers import GroupConsumer, committed_offsets
from muster_cli.demo.meter import Meter
from muster_cli.demo.screen import DemoFailure, Screen
from muster_cli.demo.transactions import TransactionalApplication
from muster_cli.local.report import PartitionLine
from muster_coordinator.records.partitioner import partition_for

PODS = 3
REPLICAS = 3
OFFSETS_PARTITIONS = 50
TOPIC = "orders"
TOPIC_PARTITIONS = 6
GROUP = "billing"
TRANSACTIONAL_GROUP = "settlement"
# Kafka waits 3 s for more members before the first generation of a new group, which is long for a demo.
REBALANCE_DELAY_MS = 500
STEP_TIMEOUT_S = 20.0
CLOSE_TIMEOUT_S = 40.0
COMMITS_BEFORE_KILL = 20
COMMITS_AFTER_KILL = 20
LAST_ANSWER_S = 0.02
"""An answer that the pod sent before it died can arrive this many seconds later."""


def run_demo(screen: Screen | None = None) -> None:
    """Play the demo. Raises CliError if something does not hold. Cleans up in any case, also on Ctrl-C and SIGTERM."""
    screen = screen or Screen()
    interrupts = _Interrupts()
    before = {number: signal.signal(number, interrupts) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with ExitStack() as cleanup:
            _Demo(screen, cleanup, interrupts).play()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    screen.step("Everything held, and is cleaned up")


class _Demo:
    def __init__(self, screen: Screen, cleanup: ExitStack, interrupts: _Interrupts) -> None:
        self._screen = screen
        self._interrupts = interrupts
        self._cleanup = cleanup
        self._members: list[GroupConsumer] = []
        self._clients: list[GroupConsumer | Meter] = []
        self._cluster = self._start_cluster()

    def play(self) -> None:
        for step in (self._wait_ready, self._join, self._resume, self._commit_in_transactions, self._kill_the_leader):
            step()
            self._interrupts.check()
        for member in self._members:
            self._screen.during(f"{member.name} leaves", member.stop, STEP_TIMEOUT_S)

    # 1

    def _start_cluster(self) -> DemoCluster:
        self._screen.step(f"Start {PODS} coordinator pods as processes, {REPLICAS} replicas of each offsets partition")
        cluster = DemoCluster(
            [
                *("--pods", str(PODS), "--partitions", str(OFFSETS_PARTITIONS), "--replication-factor", str(REPLICAS)),
                *("--topic", f"{TOPIC}:{TOPIC_PARTITIONS}"),
                *("--config", f"group.initial.rebalance.delay.ms={REBALANCE_DELAY_MS}"),
            ]
        )
        self._cleanup.push(lambda kind, _error, _trace: self._close(cluster, failed=_is_failure(kind)))
        return cluster

    def _close(self, cluster: DemoCluster, *, failed: bool) -> None:
        self._screen.during("stopping the cluster", lambda: cluster.close(keep_data=failed), CLOSE_TIMEOUT_S)
        if failed:
            self._screen.note(f"data and logs of the pods are kept in {cluster.data.root}")

    def _wait_ready(self) -> None:
        cluster = self._cluster
        self._screen.wait(cluster.last_line, lambda: cluster.bootstrap != "" or cluster.ended(), STEP_TIMEOUT_S)
        if cluster.ended():
            raise DemoFailure("the cluster did not start:\n" + "\n".join(cluster.lines))
        self._bootstrap = cluster.bootstrap
        self._screen.good(f"every one of {OFFSETS_PARTITIONS} offsets partitions has a leader")
        report = cluster.report()
        led = [sum(line.leader == pod.name for line in report.partitions) for pod in report.pods]
        rows = [(pod.name, pod.pid, pod.kafka_address, count) for pod, count in zip(report.pods, led, strict=True)]
        self._screen.table(("pod", "pid", "kafka address", "partitions led"), rows)

    # 2

    def _join(self) -> None:
        self._screen.step(f"Two Kafka consumers of group '{GROUP}' join and commit offsets of topic '{TOPIC}'")
        self._members = [self._member("consumer-a"), self._member("consumer-b")]
        self._wait_assigned()
        self._wait_commits(COMMITS_BEFORE_KILL)
        self._show_group()

    def _member(self, name: str) -> GroupConsumer:
        member = GroupConsumer(self._bootstrap, GROUP, TOPIC, name)
        self._clients.append(member)
        self._cleanup.callback(member.stop)
        member.start()
        return member

    def _wait_assigned(self) -> None:
        wanted = set(range(TOPIC_PARTITIONS))
        self._wait(
            lambda: f"waiting for the assignment: {self._assignment()}",
            lambda: (
                all(member.assigned for member in self._members)
                and {each for member in self._members for each in member.assigned} == wanted
            ),
        )

    def _wait_commits(self, more: int) -> None:
        """Every member gets `more` further commits acknowledged for each of its partitions."""
        begin = [dict(member.acknowledged) for member in self._members]
        self._wait(
            lambda: f"committing: {self._acknowledged()}",
            lambda: all(
                member.assigned and all(_progress(member, start, each) >= more for each in member.assigned)
                for member, start in zip(self._members, begin, strict=True)
            ),
        )

    def _show_group(self) -> None:
        committed = self._committed()
        owners = {partition: member.name for member in self._members for partition in member.assigned}
        rows = [
            (f"{TOPIC}-{partition}", owners.get(partition, "-"), committed.get(partition, "-"))
            for partition in range(TOPIC_PARTITIONS)
        ]
        self._screen.table(("topic partition", "assigned to", "committed offset"), rows)

    # 3

    def _resume(self) -> None:
        self._screen.step("One consumer leaves, another one takes its place and resumes where the group was")
        leaving = self._members.pop()
        left_at = {partition: leaving.acknowledged[partition] for partition in leaving.assigned}
        self._screen.during(f"{leaving.name} leaves", leaving.stop, STEP_TIMEOUT_S)
        newcomer = self._member("consumer-c")
        self._members.append(newcomer)
        self._wait_assigned()
        self._require(bool(newcomer.resumed), "the newcomer was told no offset to resume at")
        for partition, offset in newcomer.resumed.items():
            self._require(
                offset >= left_at.get(partition, 0),
                f"{TOPIC}-{partition} resumed at {offset}, below the committed {left_at.get(partition)}",
            )
        shown = ", ".join(f"{TOPIC}-{each} at {offset}" for each, offset in sorted(newcomer.resumed.items()))
        self._screen.good(f"{newcomer.name} resumed {shown}")

    # 4

    def _commit_in_transactions(self) -> None:
        self._screen.step(
            f"An application of group '{TRANSACTIONAL_GROUP}' commits what it has consumed in transactions"
        )
        application = self._screen.during(
            "the application asks for its producer id",
            lambda: TransactionalApplication(self._bootstrap, TRANSACTIONAL_GROUP, TOPIC, STEP_TIMEOUT_S),
            STEP_TIMEOUT_S,
        )
        self._cleanup.callback(application.close)
        first, second = {0: 100, 1: 200}, {0: 150, 1: 250}
        rows = []
        for offsets, commit, expected in ((first, True, first), (second, False, first), (second, True, second)):
            transaction = partial(application.transaction, offsets, commit=commit)
            self._screen.during("a transaction", transaction, STEP_TIMEOUT_S)
            found = self._committed(TRANSACTIONAL_GROUP)
            self._require(found == expected, f"{found} is committed after a transaction, instead of {expected}")
            rows.append((_shown(offsets), "committed" if commit else "aborted", _shown(found)))
        self._screen.table(("offsets in the transaction", "ended", "committed offsets after it"), rows)
        self._screen.good("committed offsets are those of the committed transactions")

    # 5

    def _kill_the_leader(self) -> None:
        partition = partition_for(GROUP, OFFSETS_PARTITIONS)
        before = self._line(partition)
        pid = None if before.leader is None else self._cluster.pid_of(before.leader)
        if before.leader is None or pid is None:
            raise DemoFailure(f"offsets partition {partition} has no leader to kill")
        self._screen.step(
            f"Kill {before.leader} (pid {pid}) with SIGKILL: it leads offsets partition {partition}, "
            f"home of '{GROUP}', in epoch {before.epoch}"
        )
        meter = self._start_meter(before.leader)
        acknowledged = self._acknowledged()
        killed_at = time.monotonic()
        self._cluster.kill(pid)
        self._show_gap_live(meter, before.leader, killed_at)
        self._wait(
            lambda: f"{before.leader} is dead; waiting for acknowledged commits. {self._cluster.last_line()}",
            lambda: (
                all(len(each.acknowledged_after(killed_at)) >= COMMITS_AFTER_KILL for each in self._members)
                and meter.count_after(killed_at) >= COMMITS_AFTER_KILL
            ),
        )
        meter.stop()
        self._check_epoch(before)
        self._check_offsets(acknowledged)
        self._go_on()
        self._show_gap(meter, killed_at)

    def _show_gap_live(self, meter: Meter, leader: str, killed_at: float) -> None:
        """Show the passing milliseconds until another pod acknowledges the first commit."""

        def passed_ms() -> float:
            return (time.monotonic() - killed_at) * 1000

        def ended() -> bool:
            self._screen.live(f"{leader} is dead: no commit acknowledged for {passed_ms():.0f} ms")
            return meter.count_after(killed_at + LAST_ANSWER_S) > 0

        self._wait(lambda: f"{leader} is dead: no commit acknowledged for {passed_ms():.0f} ms", ended)
        gap_ms = meter.longest_gap_s(killed_at) * 1000
        self._screen.good(f"the next commit of {meter.group} was acknowledged by another pod: a gap of {gap_ms:.0f} ms")

    def _start_meter(self, leader: str) -> Meter:
        """Start one more client, which commits as fast as it can to a group that the same pod coordinates."""
        led = {line.partition for line in self._cluster.report().partitions if line.leader == leader}
        names = map("meter-{}".format, range(10_000))
        group = next(name for name in names if partition_for(name, OFFSETS_PARTITIONS) in led)
        meter = Meter(self._bootstrap, group, TOPIC)
        self._clients.append(meter)
        self._cleanup.callback(meter.stop)
        meter.start()
        self._wait(lambda: "the measuring client begins", lambda: meter.count >= COMMITS_BEFORE_KILL)
        return meter

    def _check_epoch(self, before: PartitionLine) -> None:
        partition = before.partition
        self._wait(
            lambda: f"waiting to be told the leader of offsets partition {partition}",
            lambda: self._line(partition).leader is not None,
        )
        after = self._line(partition)
        self._require(after.epoch > before.epoch, f"the epoch did not rise: {before.epoch} -> {after.epoch}")
        self._screen.good(
            f"{after.leader} leads offsets partition {partition} in epoch {after.epoch} (before: {before.epoch})"
        )

    def _check_offsets(self, acknowledged: Mapping[int, int]) -> None:
        committed = self._committed()
        attempted = {each: offset for member in self._members for each, offset in member.attempted.items()}
        for each, offset in acknowledged.items():
            there = committed.get(each, -1)
            self._require(there >= offset, f"{TOPIC}-{each}: {offset} was acknowledged, {there} is there now")
            self._require(there <= attempted[each], f"{TOPIC}-{each}: {there} is there, which no member committed")
        self._screen.good("every offset that was acknowledged before the kill is still there")

    def _go_on(self) -> None:
        self._wait_assigned()
        self._wait_commits(COMMITS_AFTER_KILL)
        self._screen.good("the group goes on, with the same members")
        self._show_group()

    def _show_gap(self, meter: Meter, killed_at: float) -> None:
        gap_ms = meter.longest_gap_s(killed_at) * 1000
        group_ms = (max(member.acknowledged_after(killed_at)[0] for member in self._members) - killed_at) * 1000
        self._screen.step(f"The coordinator was away for {gap_ms:.0f} ms")
        self._screen.note(
            f"{gap_ms:.0f} ms: longest gap between two acknowledged commits of a client that asks all the time"
        )
        self._screen.note(
            f"{group_ms:.0f} ms: until both consumers had committed again; librdkafka looks once a second"
        )
        self._screen.note(
            f"Each partition has {REPLICAS} replicas, and what is acknowledged is on the disks of {REPLICAS // 2 + 1}"
        )

    # Shared by the steps

    def _wait(self, what: Callable[[], str], done: Callable[[], bool]) -> None:
        def checked() -> bool:
            for client in self._clients:
                if client.error is not None:
                    raise DemoFailure(f"{client.name} ended with {client.error}") from client.error
            if self._cluster.ended():
                raise DemoFailure(f"the cluster ended: {self._cluster.last_line()}")
            return done()

        self._screen.wait(what, checked, STEP_TIMEOUT_S)

    def _require(self, holds: bool, failure: str) -> None:
        if not holds:
            raise DemoFailure(failure)

    def _line(self, partition: int) -> PartitionLine:
        return self._cluster.report().partitions[partition]

    def _committed(self, group: str = GROUP) -> dict[int, int]:
        return self._screen.during(
            "asking for the committed offsets",
            lambda: committed_offsets(self._bootstrap, group, TOPIC, TOPIC_PARTITIONS, STEP_TIMEOUT_S),
            STEP_TIMEOUT_S,
        )

    def _acknowledged(self) -> dict[int, int]:
        return {each: member.acknowledged.get(each, 0) for member in self._members for each in member.assigned}

    def _assignment(self) -> str:
        return ", ".join(f"{member.name} has {len(member.assigned)}" for member in self._members)


def _shown(offsets: Mapping[int, int]) -> str:
    return ", ".join(f"{TOPIC}-{partition}: {offset}" for partition, offset in sorted(offsets.items()))


def _progress(member: GroupConsumer, start: Mapping[int, int], partition: int) -> int:
    return member.acknowledged.get(partition, 0) - start.get(partition, 0)


class _Interrupts:
    """Handler of SIGINT and SIGTERM. An exception that is raised inside a callback of librdkafka is lost; `check`
    remembers it.
    """

    def __init__(self) -> None:
        self._came = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        self._came = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raises KeyboardInterrupt if a signal came."""
        if self._came:
            raise KeyboardInterrupt


def _is_failure(kind: type[BaseException] | None) -> bool:
    return kind is not None and issubclass(kind, Exception)
