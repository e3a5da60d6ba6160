"""Renders docs/conformance-tests.md: each test of Kafka's suites, and where its behaviour is tested here.

python hack/render_conformance.py            print the page
python hack/render_conformance.py --write    write docs/conformance-tests.md
"""

from __future__ import annotations

import tomllib
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "conformance-tests.md"
SOURCE = ROOT / "tests" / "conformance" / "kafka_tests.toml"

HEAD = """# Kafka's tests, and where their behaviour is tested here

Rendered from `tests/conformance/kafka_tests.toml` by `hack/render_conformance.py`; a test holds that everything named
here exists. `test_x::y` is the function `test_y` in a file `test_x.py` under `tests/`. `script:x` is
[compared with a real broker](conformance.md), in each version of the API where the name stands for several.

Two suites test the old coordinator and end with Kafka 4.0. Two are as of 4.1, one of them with what 4.3.1 adds. Those
of the transaction coordinator are as of 4.3 or a little later, without tests of what the classes of 4.3.1 lack.
"""
COLUMNS = "\n| Kafka | here |\n|---|---|\n"


def rows(suite: dict[str, Any]) -> str:
    """The rows of a suite, or the one row of a part whose tests share an answer."""
    if "part" in suite:
        return f"| {suite['part']} ({len(suite['tests'])}) | {suite['here']} |\n"
    return "".join(f"| `{name}` | {here} |\n" for name, here in suite["tests"].items())


def page() -> str:
    found = tomllib.loads(SOURCE.read_text(encoding="utf-8"))
    text = HEAD
    for file, several in groupby(found["suite"], key=lambda suite: str(suite["file"])):
        parts = list(several)
        releases = " and ".join(dict.fromkeys(part["release"] for part in parts))
        text += f"\n## {file} ({sum(len(part['tests']) for part in parts)})\n\n"
        text += f"Kafka {releases}: {parts[0]['about']}\n{COLUMNS}"
        text += "".join(map(rows, parts))
    for other in found["other"]:
        text += f"\n## {other['title']}\n\n{other['about']}\n{COLUMNS}"
        text += "".join(f"| {name} | {here} |\n" for name, here in other["tests"].items())
    return text


if __name__ == "__main__":
    from rendered import print_or_write  # beside this file: tests that import this one need not find it

    print_or_write(page(), PAGE, __doc__)
