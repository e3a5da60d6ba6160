"""The programs that benchmarks need: the load generator (compiled from Go) and Kafka's jars (from Maven).

Both are kept in MUSTER_CACHE, by default ~/.cache/muster, for all clones of this repository.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

LOADGEN_SOURCES = Path(__file__).resolve().parent / "loadgen"
KAFKA_VERSION = "4.3.1"
"""The version that tests and benchmarks compare Muster with unless they are told otherwise."""
KAFKA_VERSIONS = ("4.1.0", "4.3.1", "4.4.0")
KAFKA_WITHOUT_TOOLS = (
    "4.4.0",
)  # its kafka-tools needs an artifact that is not on Maven Central: a broker, no commands
FETCH_TIMEOUT_S = 600.0
SEARCH_PATH = os.environ.get("PATH", "") + ":/usr/local/go/bin"


class BenchError(Exception):
    """The measurement could not be made; the message says why."""


class MissingTool(BenchError):
    """This machine lacks a program; the message says which and how to get it."""


def cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("MUSTER_CACHE") or Path(home) / "muster")


def loadgen() -> Path:
    """The load generator, compiled when its sources changed. Raises MissingTool."""
    sources = sorted(path for path in LOADGEN_SOURCES.iterdir() if path.suffix in {".go", ".mod"})
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    binary = cache() / "loadgen" / digest / "loadgen"
    if not binary.exists():
        go = tool("go", "compiling the load generator needs Go: https://go.dev/dl")
        binary.parent.mkdir(parents=True, exist_ok=True)
        part = binary.with_suffix(f".{os.getpid()}")
        run([go, "build", "-trimpath", "-o", str(part), "."], LOADGEN_SOURCES)
        part.rename(binary)
    return binary


POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>dev.muster</groupId><artifactId>bench</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
    {tools}
  </dependencies>
</project>
"""
TOOLS = """\
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{}</version></dependency>"""


def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """The directory with Kafka's jars, fetched once by Maven. Raises MissingTool, BenchError."""
    tool("java", "running Kafka needs Java 17: apt-get install openjdk-17-jre-headless")
    jars = kafka_directory(version)
    if not jars.exists():
        maven = tool("mvn", "fetching Kafka needs Maven: apt-get install maven")
        print(f"fetching Kafka {version} into {jars}", file=sys.stderr)
        tools = "" if version in KAFKA_WITHOUT_TOOLS else TOOLS.format(version)
        jars.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=jars.parent) as work:
            (Path(work) / "pom.xml").write_text(POM.format(version=version, tools=tools), encoding="utf-8")
            run(
                [maven, "-q", "-B", "--color=never", "dependency:copy-dependencies", "-DoutputDirectory=libs"],
                Path(work),
                FETCH_TIMEOUT_S,
            )
            (Path(work) / "libs").rename(jars)
    return jars


def kafka_directory(version: str = KAFKA_VERSION) -> Path:
    """The directory in which `kafka_jars` keeps that version; it may not exist."""
    return cache() / f"kafka-{version}"


def tool(name: str, otherwise: str) -> str:
    path = shutil.which(name, path=SEARCH_PATH)
    if path is None:
        raise MissingTool(otherwise)
    return path


def run(command: list[str], directory: Path, timeout_s: float | None = None) -> None:
    """Run a build with its output on our standard error. Raises BenchError."""
    try:
        done = subprocess.run(command, cwd=directory, stdout=sys.stderr, check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{' '.join(command)} did not end within {timeout_s:.0f} s") from error
    if done.returncode != 0:
        raise BenchError(f"{' '.join(command)} ended with exit code {done.returncode}")
