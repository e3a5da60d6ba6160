"""franz-go, a Kafka client for Go, over SASL_SSL (`franz/main.go`): compiled once, and a process of it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parent / "franz"
GO = shutil.which("go", path=os.environ.get("PATH", "") + ":/usr/local/go/bin")
ANSWER_S = 90.0


@cache
def program() -> str | None:
    """The compiled client, kept for all clones; None: there is no Go here, or its modules cannot be had."""
    digest = hashlib.sha256(b"".join((SOURCES / name).read_bytes() for name in ("main.go", "go.mod", "go.sum")))
    cached = Path(os.environ.get("MUSTER_CACHE") or Path.home() / ".cache" / "muster")
    made = cached / "franz" / digest.hexdigest()[:16] / "franz"
    if made.exists():
        return str(made)
    if GO is None:
        return None
    made.parent.mkdir(parents=True, exist_ok=True)
    part = made.with_name(f"franz.{os.getpid()}")  # others may compile at the same time
    command = [GO, "build", "-trimpath", "-o", str(part), "."]
    done = subprocess.run(
        command, cwd=SOURCES, env={**os.environ, "CGO_ENABLED": "0"}, check=False, capture_output=True
    )
    if done.returncode:
        print(done.stderr.decode(errors="replace")[-2000:])
        return None
    part.replace(made)
    return str(made)


class Franz:
    """A running client."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    async def said(self) -> str:
        """Its next line; "" at the end."""
        assert self._process.stdout is not None
        async with asyncio.timeout(ANSWER_S):
            return (await self._process.stdout.readline()).decode().strip()

    async def commit(self) -> str:
        """One more offset; `committed 1`, or `refused` and why."""
        self.tell("")
        return await self.said()


@asynccontextmanager
async def franz(**asked: Any) -> AsyncIterator[Franz]:
    """`asked`: the fields of main.go's `asked`."""
    found = await asyncio.to_thread(program)
    assert found is not None
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(found, stdin=pipe, stdout=pipe)
    client = Franz(process)
    client.tell(json.dumps({"Seconds": int(ANSWER_S), **asked}))
    try:
        yield client
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
