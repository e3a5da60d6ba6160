"""What is said when Java is away or too old."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster_pipeline.source.session import JavaMissingError, check_java


def java(directory: Path, version: str) -> None:
    program = directory / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)


def test_missing_java_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissingError, match=r"no java on this machine.*Java 17 or later: apt-get install"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissingError, match="No such file"):
        check_java()


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21)])
def test_java_of_a_right_version_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, major: int
) -> None:
    java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert check_java() == major


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_292", "unknown"])
def test_java_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissingError, match="Java 17 or later"):
        check_java()
