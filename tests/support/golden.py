"""The bytes that Kafka's own classes wrote, in the files of tests/golden."""

from __future__ import annotations

from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden"


def kafka_bytes(file: str) -> dict[str, bytes]:
    """The bytes by name. `file`: its path below tests/golden. A line is a name and hexadecimal digits, or a comment
    that begins with #."""
    lines = (GOLDEN / file).read_text().splitlines()
    return {name: bytes.fromhex(digits) for name, digits in (line.split() for line in lines if line[0] != "#")}
