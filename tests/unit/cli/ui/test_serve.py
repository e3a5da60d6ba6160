"""`muster ui` as a process: it says its address, serves with a certificate, and ends as it is asked to."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import aiohttp
import pytest
from tests.support.certificates import Authority, unchecked_context
from tests.support.certificates import pod as member
from tests.unit.cli.oncall.test_command import declare, embedded

from muster_cli.ui.login import token_line
from muster_coordinator.security.tls import CERTIFICATE, KEY


async def start(*arguments: str) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "muster_cli", "ui", *arguments)
    return await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
async def test_it_serves_with_a_certificate_to_who_logs_in_until_it_is_stopped(
    tmp_path: Path, end: signal.Signals
) -> None:
    await declare(embedded(tmp_path / "data", supervised=True))
    Authority(tmp_path).write("tls", member())
    (tmp_path / "logins").write_text(token_line("probe", "t0ken"))
    arguments = ["--data-dir", str(tmp_path / "data"), "--login-file", str(tmp_path / "logins")]
    arguments += ["--tls-cert", str(tmp_path / "tls" / CERTIFICATE), "--tls-key", str(tmp_path / "tls" / KEY)]
    process = await start(*arguments, "--port", "0", "--listen", "0.0.0.0")
    assert process.stdout is not None
    address = (await process.stdout.readline()).decode().split()[0]
    assert address.startswith("https://0.0.0.0:")
    trusting = unchecked_context(None)
    page = address.replace("0.0.0.0", "127.0.0.1") + "cluster/local/muster"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting)) as session:
        assert (await session.get(page)).status == 401
        answer = await session.get(page, headers={"Authorization": "Bearer t0ken"})
        assert (answer.status, "muster-0" in await answer.text()) == (200, True)
        port = address.rstrip("/").rpartition(":")[2]
        taken = await start(*arguments, "--port", port, "--listen", "0.0.0.0")
        _, errors = await taken.communicate()
        assert (taken.returncode, f"cannot listen at 0.0.0.0 port {port}" in errors.decode()) == (1, True)
        process.send_signal(end)  # while a browser keeps its connection open
        assert await asyncio.wait_for(process.wait(), 10) == 0
    assert process.stderr is not None
    assert await process.stderr.read() == b""


async def test_plain_logins_beyond_this_machine_are_warned_of(tmp_path: Path) -> None:
    await declare(embedded(tmp_path / "data", supervised=True))
    (tmp_path / "logins").write_text(token_line("probe", "t0ken"))
    arguments = ("--data-dir", str(tmp_path / "data"), "--login-file", str(tmp_path / "logins"))
    process = await start(*arguments, "--port", "0", "--listen", "0.0.0.0")
    assert process.stderr is not None
    assert b"logins pass in the clear" in await process.stderr.readline()
    process.terminate()
    assert await asyncio.wait_for(process.wait(), 10) == 0
