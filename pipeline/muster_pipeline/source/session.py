"""A Spark session for the pipeline on this machine, and what it needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from muster_pipeline.decode.errors import PipelineError
from muster_pipeline.source.spark import MusterOffsets

__all__ = ["JavaMissingError", "check_java", "spark_session"]

OLDEST_JAVA = 17
_HINT = f"Spark needs Java {OLDEST_JAVA} or later: apt-get install openjdk-17-jre-headless, or set JAVA_HOME"


class JavaMissingError(PipelineError):
    pass


def check_java() -> int:
    """Java's major version. Raises JavaMissingError, which says what to install."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise JavaMissingError(f"there is no java on this machine. {_HINT}")
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=30)
    except OSError as exc:
        raise JavaMissingError(f"{java}: {exc.strerror}. {_HINT}") from exc
    match = re.search(r'version "(\d+)', done.stderr)
    if match is None or int(match[1]) < OLDEST_JAVA:
        raise JavaMissingError(f"{java} says: {done.stderr.strip().splitlines()[:1]}. {_HINT}")
    return int(match[1])


def spark_session(master: str = "local[2]", memory: str = "768m") -> SparkSession:
    """A session in UTC without a web page, with the data source registered. Raises JavaMissingError.

    Its workers run this interpreter, unless PYSPARK_PYTHON names another.
    """
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # otherwise it looks for this machine's name, for seconds
    session: SparkSession = (
        SparkSession.builder.master(master)
        .appName("muster")
        .config("spark.driver.memory", memory)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .getOrCreate()
    )
    session.dataSource.register(MusterOffsets)
    return session
