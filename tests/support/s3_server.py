"""An object store for tests: versitygw, which serves a directory by S3's protocol. Built once, kept for all clones."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.support.go_programs import GO

MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
WHY_NONE = f"needs Go and the module {MODULE}"
START_S = 20.0


@cache
def compiled() -> Path | None:
    """The program; None: there is no Go here, or the module cannot be had."""
    cached = Path(os.environ.get("MUSTER_CACHE") or Path.home() / ".cache" / "muster")
    folder = cached / "versitygw" / MODULE.rpartition("@")[2]
    made = folder / "versitygw"
    if made.exists():
        return made
    if GO is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    building = folder.with_name(f"{folder.name}.{os.getpid()}")  # others may compile at the same time
    env = {**os.environ, "GOBIN": str(building), "CGO_ENABLED": "0"}
    done = subprocess.run([GO, "install", MODULE], env=env, check=False, capture_output=True)
    if done.returncode:
        print(done.stderr.decode(errors="replace")[-2000:])
        return None
    (building / "versitygw").replace(made)
    building.rmdir()
    return made


class S3Server:
    """`root`: where it keeps its files; the bucket `backups` is in it. `process`: to be stopped, slowed and ended."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bucket = root / "backups"
        self.bucket.mkdir(parents=True)
        self._secret = secrets.token_hex(16)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.start()

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that a client needs."""
        return {
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": self._secret,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
        }

    def start(self) -> None:
        program = compiled()
        assert program is not None
        command = [str(program), "--port", f"127.0.0.1:{self.port}", "--quiet", "posix", str(self.root)]
        env = {**os.environ, "ROOT_ACCESS_KEY": "tests", "ROOT_SECRET_KEY": self._secret}
        log = (self.root.parent / "s3.log").open("ab")
        self.process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, "the object store does not start"
                time.sleep(0.05)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def s3_server(directory: Path) -> Iterator[S3Server]:
    server = S3Server(directory / "s3")
    try:
        yield server
    finally:
        server.stop()
