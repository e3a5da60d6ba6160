"""One Spark session for all tests of this folder; without Java they are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOR_FEW_ROWS = {"spark.sql.shuffle.partitions": "1", "spark.sql.codegen.wholeStage": "false"}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from muster_pipeline.source.session import JavaMissingError, spark_session

    try:
        session = spark_session()
    except JavaMissingError as exc:
        pytest.skip(str(exc))
    yield session
    session.stop()


@pytest.fixture
def few_rows(spark: SparkSession) -> Iterator[None]:
    """What makes queries of a few rows quick; what they answer does not depend on it."""
    before = {name: spark.conf.get(name) for name in FOR_FEW_ROWS}
    for name, value in FOR_FEW_ROWS.items():
        spark.conf.set(name, value)
    yield
    for name, kept in before.items():
        assert kept is not None
        spark.conf.set(name, kept)


@pytest.fixture
def muster(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRunner]:
    """The command in this process, on the tests' session."""

    @contextmanager
    def session(_master: str) -> Iterator[SparkSession]:
        yield spark

    for module in ("command", "queries", "report"):
        monkeypatch.setattr(f"muster_cli.pipeline.{module}.spark", session)
    yield CliRunner()
    spark.catalog.clearCache()
