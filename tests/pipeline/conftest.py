"""One Spark session for all tests of this folder; without Java they are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from muster_pipeline.source.session import JavaMissingError, spark_session

    try:
        session = spark_session()
    except JavaMissingError as exc:
        pytest.skip(str(exc))
    yield session
    session.stop()
