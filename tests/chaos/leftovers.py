"""What a killed run left behind: its clusters' processes and mounts. (Networks: `network.remove_leftovers`.)"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from muster_cli.local.data_dir import DataDir
from muster_cli.local.procfs import ProcessRef, stop_processes

_OF_A_RUN = re.compile(r"-(\d+)-\d+$")
STOP_S = 5.0


def end_leftovers(scenarios: Path) -> None:
    """Of runs whose process is gone: end the processes that their directories under `scenarios` name, if the command
    line still names the directory too, the supervisor first; and unmount what is mounted there."""
    for root in sorted(scenarios.glob("*")):
        match = _OF_A_RUN.search(root.name)
        if match is None or Path(f"/proc/{match[1]}").exists():
            continue
        record = DataDir(root / "data").read_run()
        if record is not None:
            pods = [pod.process for pod in record.pods if pod.process is not None]
            for processes in ([record.supervisor], pods):
                stop_processes([each for each in processes if _names(each, root)], deadline_s=STOP_S)
        for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
            if line.split()[1].startswith(f"{root}/"):
                subprocess.run(["umount", "-l", line.split()[1]], check=False)


def _names(process: ProcessRef, root: Path) -> bool:
    return process.alive() and any(part.startswith(f"{root}/") for part in process.command_line())
