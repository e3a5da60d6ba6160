"""Make an archive of the classes that a session loads (AppCDS), so that the next one starts in less time.

    python -m muster_pipeline.source.class_archive FILE

Then set MUSTER_SPARK_ARCHIVE=FILE. The JVM ignores an archive of another Java, or of other jars.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from muster_pipeline.source.session import spark_session


def main(file: str) -> int:
    with tempfile.TemporaryDirectory() as work:
        directory = Path(work) / "__consumer_offsets-0"
        directory.mkdir()
        (directory / f"{0:020d}.log").touch()
        session = spark_session("local[1]", jvm_options=f"-XX:ArchiveClassesAtExit={file}")
        frame = session.read.format("muster_offsets").load(work)
        frame.groupBy("kind").count().write.parquet(f"{work}/counts")
        session.read.parquet(f"{work}/counts").collect()
        jvm = session.sparkContext._jvm
        assert jvm is not None
        session.stop()
        try:
            jvm.System.exit(0)  # only an orderly end of the JVM writes the archive
        except Exception:  # the connection ends with the JVM
            pass
    return 0 if Path(file).exists() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
