from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster_cli.errors import CliError
from muster_cli.local.data_dir import DataDir, RunningPod, RunRecord, default_data_dir
from muster_cli.local.procfs import ProcessRef, stop_processes

SLEEP = "import signal, sys; print('up', flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP


def start(code: str, *arguments: str) -> tuple[subprocess.Popen[bytes], ProcessRef]:
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    reference = ProcessRef.of(process.pid)
    assert reference is not None
    return process, reference


def finish(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def record(root: DataDir, process: ProcessRef | None, name: str = "muster-0") -> RunRecord:
    pod = RunningPod(name=name, node_id=0, kafka_address="127.0.0.1:1", api_address="127.0.0.1:2", process=process)
    me = ProcessRef.of(os.getpid())
    assert me is not None
    return RunRecord(supervisor=me, pods=(pod,))


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    data = DataDir(tmp_path / "instance")
    data.create()
    return data


def test_second_holder_of_the_lock_is_refused_with_the_pid_of_the_first(data: DataDir) -> None:
    with data.locked():
        data.write_run(record(data, None))
        with pytest.raises(CliError, match=rf"pid {os.getpid()}"), DataDir(data.root).locked():
            pass
    with DataDir(data.root).locked():
        pass


def test_run_record_reads_back_as_written(data: DataDir) -> None:
    written = record(data, ProcessRef(pid=1, start_ticks=2))
    data.write_run(written)
    assert data.read_run() == written
    data.remove_run()
    assert data.read_run() is None


def test_damaged_run_record_counts_as_none(data: DataDir) -> None:
    (data.root / "run.json").write_text('{"supervisor"')
    assert data.read_run() is None


def test_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CliError, match="cannot use"):
        DataDir(tmp_path / "file" / "data").create()


def test_recorded_pod_that_still_runs_on_this_directory_is_a_leftover(data: DataDir) -> None:
    process, reference = start(SLEEP, "--data-dir", str(data.pod("muster-0")))
    try:
        data.write_run(record(data, reference))
        assert [pod.process for pod in data.leftover_pods()] == [reference]
    finally:
        finish(process)
    assert data.leftover_pods() == []


def test_recorded_pid_that_is_another_program_now_is_no_leftover(data: DataDir) -> None:
    process, reference = start(SLEEP, "--data-dir", "/elsewhere")
    try:
        data.write_run(record(data, reference))
        assert data.leftover_pods() == []
    finally:
        finish(process)


def test_same_pid_with_another_start_time_is_not_the_same_process() -> None:
    me = ProcessRef.of(os.getpid())
    assert me is not None
    assert me.alive()
    assert not ProcessRef(pid=me.pid, start_ticks=me.start_ticks - 1).alive()


def test_zombie_is_not_alive() -> None:
    process, reference = start(SLEEP)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not reference.alive()
    process.communicate()


def test_stop_ends_a_polite_process_with_sigterm_and_a_stubborn_one_with_sigkill() -> None:
    polite, polite_reference = start(SLEEP)
    stubborn, stubborn_reference = start(STUBBORN)
    assert stop_processes([polite_reference, stubborn_reference], deadline_s=0.3) == [stubborn_reference]
    assert (polite.wait(), stubborn.wait()) == (-15, -9)
    for process in (polite, stubborn):
        process.communicate()


def test_data_dir_comes_from_the_environment_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_DATA_DIR", "/somewhere")
    assert default_data_dir() == Path("/somewhere")
    monkeypatch.delenv("MUSTER_DATA_DIR")
    monkeypatch.setenv("XDG_DATA_HOME", "/share")
    assert default_data_dir() == Path("/share/muster/local")
