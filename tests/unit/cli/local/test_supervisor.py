from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from muster_cli.local.data_dir import RunningPod
from muster_cli.local.supervisor import (
    PodSupervisor,
    RestartBackoff,
    describe_exit,
    stop_all,
)

WAIT = "import signal; print('up', flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + WAIT


class Watch:
    """Lets a test await a state of the supervisor instead of sleeping."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._changed = asyncio.Event()

    def on_change(self) -> None:
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()


def supervisor_of(code: str, log: Path, watch: Watch) -> PodSupervisor:
    pod = RunningPod(name="muster-0", node_id=0, kafka_address="127.0.0.1:1", api_address="127.0.0.1:2", process=None)
    return PodSupervisor(
        pod, lambda uid: [sys.executable, "-c", code, uid], log, on_change=watch.on_change, report=watch.lines.append
    )


async def until_log_has(log: Path, text: str) -> None:
    def has_text() -> bool:
        try:
            return text in log.read_text()
        except FileNotFoundError:  # not begun yet, or just renamed
            return False

    def wait() -> None:
        while not has_text():
            time.sleep(0.01)

    await asyncio.to_thread(wait)


async def test_killed_pod_is_started_again_as_another_process(tmp_path: Path) -> None:
    watch = Watch()
    supervisor = supervisor_of(WAIT, tmp_path / "log", watch)
    supervisor.start()
    await watch.until(lambda: supervisor.pod.process is not None)
    first, first_uid = supervisor.pod.process, supervisor.uid
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)
    await watch.until(lambda: supervisor.pod.process not in (None, first))
    assert supervisor.deaths == 1
    assert supervisor.uid != first_uid
    assert supervisor.pod.process is not None
    assert "muster-0 was ended by SIGKILL" in watch.lines[0]
    assert not first.alive()
    assert supervisor.pod.alive
    assert await stop_all([supervisor], deadline_s=10) == []
    assert not supervisor.pod.alive


async def test_pod_sees_no_settings_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_POD", "another")
    watch = Watch()
    code = (
        "import os, signal; print(sorted(n for n in os.environ if n.startswith('MUSTER_')), flush=True); signal.pause()"
    )
    supervisor = supervisor_of(code, tmp_path / "log", watch)
    supervisor.start()
    await until_log_has(tmp_path / "log", "[]")
    await stop_all([supervisor], deadline_s=10)


async def test_pod_runs_in_a_session_of_its_own_so_that_ctrl_c_does_not_reach_it(tmp_path: Path) -> None:
    watch = Watch()
    supervisor = supervisor_of(WAIT, tmp_path / "log", watch)
    supervisor.start()
    await watch.until(lambda: supervisor.pod.process is not None)
    assert supervisor.pod.process is not None
    assert os.getsid(supervisor.pod.process.pid) == supervisor.pod.process.pid
    await stop_all([supervisor], deadline_s=10)


async def test_pod_that_ignores_sigterm_is_killed_after_the_deadline(tmp_path: Path) -> None:
    watch = Watch()
    supervisor = supervisor_of(STUBBORN, tmp_path / "log", watch)
    supervisor.start()
    await until_log_has(tmp_path / "log", "up")
    assert await stop_all([supervisor], deadline_s=0.1) == ["muster-0"]


async def test_pod_that_keeps_dying_is_not_started_after_stop(tmp_path: Path) -> None:
    watch = Watch()
    supervisor = supervisor_of("raise SystemExit(3)", tmp_path / "log", watch)
    supervisor.start()
    await watch.until(lambda: supervisor.deaths >= 3)
    await stop_all([supervisor], deadline_s=10)
    assert supervisor.pod.process is None
    assert "exited with 3" in watch.lines[-1]


async def test_pod_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    watch = Watch()
    pod = RunningPod(name="muster-0", node_id=0, kafka_address="127.0.0.1:1", api_address="127.0.0.1:2", process=None)
    commands = iter([["/no/such/program"], ["/no/such/program"], [sys.executable, "-c", WAIT]])
    supervisor = PodSupervisor(
        pod, lambda uid: next(commands), tmp_path / "log", on_change=watch.on_change, report=watch.lines.append
    )
    supervisor.start()
    await watch.until(lambda: supervisor.pod.process is not None)
    assert [line.partition(":")[0] for line in watch.lines] == ["muster-0 could not be started"] * 2
    await stop_all([supervisor], deadline_s=10)


def test_backoff_answers_a_healthy_run_at_once_and_a_crash_loop_ever_later() -> None:
    backoff = RestartBackoff()
    assert backoff.delay_s(lived_s=60) == 0
    delays = [backoff.delay_s(lived_s=0.2) for _ in range(10)]
    assert delays[:5] == pytest.approx([0, 0, 0.1, 0.2, 0.4])
    assert delays[-1] == RestartBackoff.MAX_DELAY_S
    assert backoff.delay_s(lived_s=2) == 0
    assert backoff.delay_s(lived_s=0.2) == 0


def test_backoff_waits_for_the_least_pause_after_a_healthy_run_too() -> None:
    backoff = RestartBackoff(least_s=0.5)
    assert backoff.delay_s(lived_s=60) == 0.5
    assert [backoff.delay_s(lived_s=0.2) for _ in range(10)][-1] == RestartBackoff.MAX_DELAY_S


async def test_large_log_is_kept_once_and_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster_cli.local.supervisor.MAX_LOG_BYTES", 10)
    log = tmp_path / "pod.log"
    log.write_text("x" * 11)
    watch = Watch()
    supervisor = supervisor_of(WAIT, log, watch)
    supervisor.start()
    await until_log_has(log, "up")
    await stop_all([supervisor], deadline_s=10)
    assert log.read_text() == "up\n"
    assert (tmp_path / "pod.log.1").read_text() == "x" * 11


@pytest.mark.parametrize(
    ("status", "words"), [(0, "exited with 0"), (-9, "was ended by SIGKILL"), (-99, "was ended by signal 99")]
)
def test_exit_status_in_words(status: int, words: str) -> None:
    assert describe_exit(status) == words
