"""Time of a backup and a restore of an embedded cluster of three pods with many offsets, through the command itself.

python bench/backup.py                                   250,000 groups, 5,000,000 offsets in 50 partitions
python bench/backup.py --groups 1000 --commits 1000000   fewer
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from offsetlogs import Shape, copy_logs

PARTITIONS, TOPIC_PARTITIONS, PODS = 50, 20, 3
MUSTER = (sys.executable, "-m", "muster_cli")


def timed(*arguments: str) -> tuple[float, str]:
    """Seconds that the command took, and what it printed."""
    began = time.monotonic()
    done = subprocess.run([*MUSTER, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return time.monotonic() - began, done.stdout


def run(groups: int, commits: int, directory: Path) -> None:
    data, store = directory / "data", directory / "store"
    copy_logs(Shape(PARTITIONS, commits, groups // PARTITIONS, TOPIC_PARTITIONS), directory / "logs")
    timed("local", "adopt", str(directory / "logs"), "--pods", str(PODS), "--data-dir", str(data))
    up = [*MUSTER, "local", "up", "--data-dir", str(data), "--base-port", "0", "--any-topic"]
    cluster = subprocess.Popen(up, stdout=subprocess.PIPE, text=True)
    assert cluster.stdout is not None
    try:
        while not cluster.stdout.readline().startswith("ready"):
            assert cluster.poll() is None
        create = ("backup", "create", "--data-dir", str(data), "--store", str(store), "--json")
        fast = ("--mib-per-second", "1000")
        for what in ("full", "incremental"):
            seconds, told = timed(*create, *fast)
            made = json.loads(told)
            print(f"{what:12} {seconds:6.1f} s  {made['sent']:>13,} bytes sent  markers held for {made['heldMs']} ms")
    finally:
        cluster.send_signal(signal.SIGTERM)
        cluster.wait()
    print(f"{'verify':12} {timed('backup', 'verify', '--store', str(store))[0]:6.1f} s")
    seconds, _ = timed("restore", "--store", str(store), "--data-dir", str(directory / "new"))
    print(f"{'restore':12} {seconds:6.1f} s")
    other = ("--data-dir", str(directory / "resharded"), "--partitions", str(PARTITIONS + 1))
    seconds, _ = timed("restore", "--store", str(store), *other)
    print(f"{'re-sharded':12} {seconds:6.1f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=250_000)
    parser.add_argument("--commits", type=int, default=5_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as made:
        run(options.groups, options.commits, Path(made))
