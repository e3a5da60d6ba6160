"""Makes a Spark session for the pipeline on this machine, and checks that Java is there."""

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

OLDEST_JAVA = 17
SUBMITTED = "submitted"
"""The word that leaves a session the master with which it was submitted."""
_HINT = f"Spark needs Java {OLDEST_JAVA} or later: apt-get install openjdk-17-jre-headless, or set JAVA_HOME"


class JavaMissingError(PipelineError):
    pass


def check_java() -> int:
    """Return Java's major version. Raises JavaMissingError, which says what to install."""
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


def spark_session(master: str = "local[2]", memory: str = "768m", jvm_options: str = "") -> SparkSession:
    """Return a session in UTC with the data source registered. Raises JavaMissingError.

    `master` SUBMITTED: what spark-submit, or a Spark operator, has set stands. Otherwise it is a session without web
    page; its workers run this interpreter, unless PYSPARK_PYTHON names another, and its JVM maps the classes of the
    archive that MUSTER_SPARK_ARCHIVE names (see `class_archive`).
    """
    builder = SparkSession.builder.appName("muster")
    if master != SUBMITTED:
        check_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # otherwise it looks for this machine's name, for seconds
        archive = os.environ.get("MUSTER_SPARK_ARCHIVE")
        if archive and not jvm_options:
            jvm_options = f"-XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"
        builder = (
            builder.master(master)
            .config("spark.driver.memory", memory)
            .config("spark.driver.extraJavaOptions", jvm_options)
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.log.level", "ERROR")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "4")
        )
    session: SparkSession = (
        builder.config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .getOrCreate()
    )
    session.dataSource.register(MusterOffsets)
    return session
