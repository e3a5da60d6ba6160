"""Renders docs/images/NAME.svg from docs/images/NAME.txt: boxes on a grid, and arrows between them.

python hack/render_pictures.py            print the pictures
python hack/render_pictures.py --write    write docs/images/*.svg

A line of the text is `title: TEXT`, `box NAME COLUMN ROW[-ROW] COLOUR: HEADING | LINE | ...`, or
`arrow A -> B: LINE | ...` (`<->` points both ways) between two boxes of one row or one column. A text that does not fit
its place is a ValueError, so nothing is cut off. The pictures have a light and a dark form, by what the reader's system
prefers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

IMAGES = Path(__file__).parent.parent / "docs" / "images"

MARGIN, TITLE = 20, 34  # px, as all below
WIDTH, HEIGHT = 216, 88  # of a box in one cell
ACROSS, DOWN = 134, 52  # between boxes: room for what is written at arrows
LINE, HEADING_SIZE, TEXT_SIZE, LABEL_SIZE = 17, 15, 12.5, 12
EM = 0.55  # width of a letter for each px of its size: more than the fonts of common systems take
HEAD = 8  # length of an arrow's head

STYLE = """
  .paper { fill: #ffffff; stroke: #d0d7de }
  text { fill: #1f2937 } .label { fill: #475569 } .heading, .title { font-weight: 600 }
  .line { stroke: #64748b; stroke-width: 1.6 } .head { fill: #64748b }
  .blue { fill: #eef2ff; stroke: #6366f1 } .green { fill: #ecfdf5; stroke: #10b981 }
  .orange { fill: #fff7ed; stroke: #f97316 } .grey { fill: #f3f4f6; stroke: #9ca3af }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #161b22; stroke: #3d444d }
    text { fill: #e6edf3 } .label { fill: #aeb9c5 }
    .line { stroke: #8b98a5 } .head { fill: #8b98a5 }
    .blue { fill: #1e2447; stroke: #818cf8 } .green { fill: #0c2f25; stroke: #34d399 }
    .orange { fill: #3a2213; stroke: #fb923c } .grey { fill: #22272e; stroke: #768390 }
  }
"""


@dataclass(frozen=True)
class Box:
    column: int
    rows: tuple[int, int]  # first and last
    colour: str
    lines: list[str]  # its heading, and what stands below

    @property
    def left(self) -> int:
        return MARGIN + (self.column - 1) * (WIDTH + ACROSS)

    @property
    def right(self) -> int:
        return self.left + WIDTH

    @property
    def top(self) -> int:
        return MARGIN + TITLE + (self.rows[0] - 1) * (HEIGHT + DOWN)

    @property
    def bottom(self) -> int:
        return MARGIN + TITLE + self.rows[1] * HEIGHT + (self.rows[1] - 1) * DOWN


@dataclass(frozen=True)
class Arrow:
    start: str
    end: str
    both_ways: bool
    lines: list[str]


def picture(source: str) -> str:
    """The SVG that a text describes. ValueError for a line that is not understood, or a text that is too long."""
    title, boxes, arrows = _read(source)
    width = max(box.right for box in boxes.values()) + MARGIN
    height = max(box.bottom for box in boxes.values()) + MARGIN
    parts = [_text(title, MARGIN, MARGIN + 14, width - 2 * MARGIN, HEADING_SIZE, "title", anchor="start")]
    for arrow in arrows:
        parts += _arrow(arrow, boxes[arrow.start], boxes[arrow.end], width)
    for box in boxes.values():
        parts += _box(box)
    said = [
        f"{boxes[arrow.start].lines[0]} to {boxes[arrow.end].lines[0]}: {' '.join(arrow.lines)}." for arrow in arrows
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="t d"'
            ' font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">',
            f'<title id="t">{escape(title)}</title>',
            f'<desc id="d">{escape(" ".join(said))}</desc>',
            f"<style>{STYLE}</style>",
            f'<rect class="paper" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _read(source: str) -> tuple[str, dict[str, Box], list[Arrow]]:
    title, boxes, arrows = "", {}, []
    for line in filter(None, map(str.strip, source.splitlines())):
        what, _, text = line.partition(":")
        lines = [each.strip() for each in text.split("|")]
        if what == "title":
            title = text.strip()
        elif found := re.fullmatch(r"box (\S+) +(\d+) +(\d+)(?:-(\d+))? +(\w+)", what):
            name, column, first, last, colour = found.groups()
            boxes[name] = Box(int(column), (int(first), int(last or first)), colour, lines)
        elif found := re.fullmatch(r"arrow (\S+) (<?->) (\S+)", what):
            arrows.append(Arrow(found[1], found[3], found[2] == "<->", lines))
        else:
            raise ValueError(f"neither title, box nor arrow: {line}")
    return title, boxes, arrows


def _box(box: Box) -> list[str]:
    middle, height = (box.left + box.right) // 2, box.bottom - box.top
    first = box.top + (height - LINE * len(box.lines)) / 2 + 13
    return [
        f'<rect class="{box.colour}" x="{box.left}" y="{box.top}" width="{WIDTH}" height="{height}" rx="8"/>',
        _text(box.lines[0], middle, first, WIDTH - 16, HEADING_SIZE, "heading"),
        *(
            _text(line, middle, first + LINE * row, WIDTH - 16, TEXT_SIZE, "detail")
            for row, line in enumerate(box.lines[1:], 1)
        ),
    ]


def _arrow(arrow: Arrow, start: Box, end: Box, width: int) -> list[str]:
    """Line, heads and label: level between boxes of one row, the label above; else upright, the label at its right.

    `width` is the picture's, in px.
    """
    if start.column == end.column:
        x, sign = start.left + WIDTH // 2, 1 if start.top < end.top else -1
        begin, finish = (start.bottom, end.top) if sign > 0 else (start.top, end.bottom)
        points = [(x, begin), (x, finish)]
        middle = (begin + finish) / 2 + 4 - LINE * (len(arrow.lines) - 1) / 2
        labels = [
            _text(
                line,
                x + 10,
                middle + LINE * row,
                min(WIDTH // 2 + ACROSS, width - x) - 20,
                LABEL_SIZE,
                "label",
                anchor="start",
            )
            for row, line in enumerate(arrow.lines)
        ]
    else:
        row = max(start.rows[0], end.rows[0])
        if row > min(start.rows[1], end.rows[1]):
            raise ValueError(f"{arrow.start} and {arrow.end} share neither a row nor a column")
        y, sign = MARGIN + TITLE + (row - 1) * (HEIGHT + DOWN) + HEIGHT // 2 + 8, 1 if start.left < end.left else -1
        points = [(start.right, y), (end.left, y)] if sign > 0 else [(start.left, y), (end.right, y)]
        middle = (points[0][0] + points[1][0]) / 2
        labels = [
            _text(line, middle, y - 8 - LINE * (len(arrow.lines) - 1 - row), ACROSS - 8, LABEL_SIZE, "label")
            for row, line in enumerate(arrow.lines)
        ]
    (x1, y1), (x2, y2) = points
    heads = [_head((x1, y1), (x2, y2))] + ([_head((x2, y2), (x1, y1))] if arrow.both_ways else [])
    return [f'<line class="line" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>', *heads, *labels]


def _head(start: tuple[float, float], end: tuple[float, float]) -> str:
    """The head at `end` of a level or upright line."""
    (x1, y1), (x2, y2) = start, end
    along = (x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1)
    foot = x2 - HEAD * along[0], y2 - HEAD * along[1]
    wing = HEAD / 2 * along[1], HEAD / 2 * along[0]
    corners = [end, (foot[0] + wing[0], foot[1] + wing[1]), (foot[0] - wing[0], foot[1] - wing[1])]
    return f'<polygon class="head" points="{" ".join(f"{x:g},{y:g}" for x, y in corners)}"/>'


def _text(text: str, x: float, y: float, room: float, size: float, kind: str, anchor: str = "middle") -> str:
    if len(text) * size * EM > room:
        raise ValueError(f"{text!r} is {len(text) * size * EM:.0f} px wide and has {room:.0f}")
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}">{escape(text)}</text>'


def pictures() -> dict[Path, str]:
    """The file of each picture, and what it holds."""
    return {
        text.with_suffix(".svg"): picture(text.read_text(encoding="utf-8")) for text in sorted(IMAGES.glob("*.txt"))
    }


if __name__ == "__main__":
    from rendered import print_or_write  # beside this file: tests that import this one need not find it

    for file, svg in pictures().items():
        print_or_write(svg, file, __doc__)
