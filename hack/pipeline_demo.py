#!/usr/bin/env python3
"""The data pipeline here, from real commits to a report; then the same offsets in 12, and again in 50 partitions.

Real Kafka clients commit to an embedded Muster for a day in 30 seconds: an hour of the day takes 1.25 s, all timestamps
are real ones. Consumers join in the morning and leave in the evening, one group is abandoned, one goes back. Then the
logs become tables and a report, and are re-sharded twice; each time Muster starts on the result, and every group is
asked for its offsets. Everything is kept in .cache/pipeline-demo. Exit code 0: all offsets are the same.
"""

from __future__ import annotations

import csv
import math
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import TopicPartition

from muster_cli.demo.consumers import GroupConsumer, client, committed_offsets

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))
from tests.support.local_cluster import LocalCluster  # noqa: E402

ROOT = REPOSITORY / ".cache" / "pipeline-demo"
HOUR_S = 1.25
TOPIC, PARTITIONS = "orders", 6
CLUSTER = ("--pods", "3", "--replication-factor", "1", "--partitions", "50", "--topic", f"{TOPIC}:{PARTITIONS}")
TEAMS = [f"team-{number:02d}" for number in range(8)]
JOBS = [f"job-{number:02d}" for number in range(32)]
ABANDONED, GOES_BACK = JOBS[0], JOBS[1]
ASKING_TIMEOUT_S = 30.0
Offsets = dict[str, dict[int, int]]


def main() -> int:
    from muster_pipeline.decode.errors import PipelineError
    from muster_pipeline.source.session import check_java

    started = time.monotonic()
    try:
        check_java()
    except PipelineError as missing:
        print(f"pipeline-demo needs Java: {missing}", file=sys.stderr)
        return 1
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir(parents=True)
    say("Muster starts: 3 pods, 50 offsets partitions")
    with LocalCluster(ROOT / "day", *CLUSTER) as cluster:
        bootstrap = cluster.wait_ready()
        say(f"a day of commits: {len(TEAMS)} consumer groups and {len(JOBS)} jobs, {24 * HOUR_S:.0f} s")
        a_day(bootstrap)
        before = all_offsets(bootstrap)
        check(cluster.stop() == 0, "the cluster did not end in order")
    logs = sorted(str(pod) for pod in (ROOT / "day" / "pods").iterdir())
    say("tables and report")
    ends = write_end_offsets(before)
    run("pipeline", "run", *logs, "--output", str(ROOT / "tables"), "--end-offsets", str(ends))
    for number in (12, 50):
        say(f"re-sharding to {number} partitions")
        target, data = ROOT / f"logs-{number}", ROOT / f"cluster-{number}"
        run("reshard", *logs, "--partitions", str(number), "--output", str(target))
        run("local", "adopt", str(target), "--pods", "3", "--data-dir", str(data))
        with LocalCluster(data, "--topic", f"{TOPIC}:{PARTITIONS}") as cluster:
            after = all_offsets(cluster.wait_ready())
            check(cluster.stop() == 0, "the cluster did not end in order")
        wrong = sorted(group for group in before if before[group] != after[group])
        check(not wrong, f"other offsets than before: {', '.join(wrong)}")
        kept = sum(map(len, after.values()))
        print(f"      Muster on {number} partitions answers all {kept} offsets of {len(after)} groups as before")
        logs = [str(target)]
    print(f"\nreport: {ROOT / 'tables' / 'report.html'}\n({time.monotonic() - started:.0f} s)")
    return 0


def say(text: str) -> None:
    print(f"--- {text}", flush=True)


def check(holds: bool, message: str) -> None:
    if not holds:
        sys.exit(f"pipeline-demo: {message}")


def run(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "muster_cli", *arguments], capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        print(f"      {line}")
    check(done.returncode == 0, f"muster {' '.join(arguments[:2])}: {done.stderr.strip()}")


def a_day(bootstrap: str) -> None:
    """Teams are one member at night and three in the daytime; jobs commit most at noon."""
    night = [member(bootstrap, team, 0) for team in TEAMS]
    day: list[GroupConsumer] = []
    jobs = {job: client(bootstrap, job, job) for job in JOBS}
    began = time.monotonic()
    for hour in range(24):
        if hour == 8:
            day = [member(bootstrap, team, number) for team in TEAMS for number in (1, 2)]
        if hour == 20:
            leave(day)
        for turn in range(1 + round(4 * math.sin(math.pi * hour / 24))):
            for number, (job, consumer) in enumerate(jobs.items()):
                if job == ABANDONED and hour > 6:
                    continue
                offset = 100 if job == GOES_BACK and hour == 15 else 1000 * (hour + 1) + 10 * turn
                wanted = [TopicPartition(TOPIC, each, offset) for each in range(1 + number % PARTITIONS)]
                consumer.commit(offsets=wanted, asynchronous=False)
        time.sleep(max(0.0, began + (hour + 1) * HOUR_S - time.monotonic()))
    leave(night)
    for consumer in jobs.values():
        consumer.close()


def member(bootstrap: str, team: str, number: int) -> GroupConsumer:
    started = GroupConsumer(bootstrap, team, TOPIC, f"{team}-{number}")
    started.start()
    return started


def leave(members: list[GroupConsumer]) -> None:
    for each in members:
        each.stop()
        check(each.error is None, f"{each.name}: {each.error}")


def all_offsets(bootstrap: str) -> Offsets:
    """The offsets of every group, as a new client is told them."""
    groups = [*TEAMS, *JOBS]
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda each: committed_offsets(bootstrap, each, TOPIC, PARTITIONS, ASKING_TIMEOUT_S), groups)
        offsets = dict(zip(groups, found, strict=True))
    empty = [group for group, partitions in offsets.items() if not partitions]
    check(not empty, f"no offsets: {', '.join(empty)}")
    return offsets


def write_end_offsets(offsets: Offsets) -> Path:
    """The topic has no data: its ends are taken to be a little behind the furthest commit of any group."""
    path, now_ms = ROOT / "ends.csv", int(time.time() * 1000)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["topic", "partition", "timestamp_ms", "end_offset"])
        for partition in range(PARTITIONS):
            furthest = max(each.get(partition, 0) for each in offsets.values())
            rows.writerow([TOPIC, partition, now_ms, furthest + 50])
    return path


if __name__ == "__main__":
    sys.exit(main())
