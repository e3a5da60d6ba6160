"""hack/record_demo.py draws what a terminal showed, and the recording in docs/images is that of a demo that held."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "hack"))

from record_demo import COLUMNS, ROWS, picture, recorded  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
PROGRAM = r"""
print("\033[1;36m1. A step & more\033[0m  \033[2m0.1 s\033[0m")
print("written over\rlast", end="\r\n")
print("x" * 120)
"""


def texts(svg: str) -> list[tuple[str, str, float]]:
    """(class, text, y) of all that is drawn."""
    return [
        (each.get("class", ""), each.text or "", float(each.attrib["y"]))
        for each in ET.fromstring(svg).iter(f"{SVG}text")
    ]


def test_lines_keep_their_looks_and_are_broken_at_the_edge_of_the_terminal() -> None:
    drawn = texts(picture(recorded([sys.executable, "-c", PROGRAM]), "a command"))
    assert [(kind, text) for kind, text, _ in drawn] == [
        ("strong", "$ a command"),
        ("strong cyan", "1. A step & more"),
        ("dim", "0.1 s"),
        ("", "last"),
        ("", "x" * COLUMNS),
        ("", "x" * (120 - COLUMNS)),
    ]
    assert len({y for _, _, y in drawn}) == 5


def test_recording_of_the_demo_shows_a_kill_and_that_all_held() -> None:
    svg = (ROOT / "docs" / "images" / "demo.svg").read_text(encoding="utf-8")
    said = " ".join(text for _, text, _ in texts(svg))
    assert "with SIGKILL" in said
    assert "every offset that was acknowledged before the kill is still there" in said
    assert "Everything held" in said
    assert len({y for _, _, y in texts(svg)}) > ROWS
