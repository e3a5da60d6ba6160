"""docs/images/*.svg are what hack/render_pictures.py makes of the texts beside them, and nothing in them is cut off."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "hack"))

from render_pictures import picture, pictures  # noqa: E402

CORNERS = {"x": "x", "y": "y", "x1": "x", "x2": "x", "y1": "y", "y2": "y"}


def test_pictures_are_those_that_their_texts_describe() -> None:
    assert len(pictures()) == 2
    for file, svg in pictures().items():
        assert file.read_text(encoding="utf-8") == svg, "run: python hack/render_pictures.py --write"


@pytest.mark.parametrize("file", pictures(), ids=lambda file: file.stem)
def test_everything_in_a_picture_is_within_its_edges(file: Path) -> None:
    svg = ET.fromstring(file.read_text(encoding="utf-8"))
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    for each in svg.iter():
        place = {name: float(each.attrib[name]) for name in CORNERS if name in each.attrib}
        assert all(0 <= value <= (width if "x" in name else height) for name, value in place.items()), each.attrib
        if "width" in each.attrib:
            assert place["x"] + float(each.attrib["width"]) <= width
            assert place["y"] + float(each.attrib["height"]) <= height


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("box a 1 1 grey: a heading that is longer than its box is wide", "px wide and has"),
        ("circle a: what", "neither title, box nor arrow"),
        ("box a 1 1 grey: a\nbox b 2 2 grey: b\narrow a -> b: aslant", "share neither a row nor a column"),
        ("box a 1 1 grey: a\nbox b 1 2 grey: b\narrow a -> b: what ends beyond the edge", "px wide and has"),
    ],
)
def test_text_that_would_be_cut_off_or_not_understood_is_refused(line: str, error: str) -> None:
    with pytest.raises(ValueError, match=re.escape(error)):
        picture(f"title: A\nbox first 1 1 grey: first\n{line}")
