"""Records `muster demo` as docs/images/demo.svg: its lines come at the pace at which they came in a terminal.

python hack/record_demo.py            run the demo, and print the picture
python hack/record_demo.py --write    run it, and write docs/images/demo.svg

The picture needs no script and no other file: what moves is CSS. Readers who want no motion see the last lines.
"""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from rendered import print_or_write
from rich.text import Text

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "images" / "demo.svg"
COMMAND = "make demo"

COLUMNS, ROWS = 112, 22  # of the terminal that the picture shows
LETTER, LINE, MARGIN, SIZE = 7.5, 18, 16, 12.5  # px
REST_S = 3.0  # the end stands that long before the recording starts again
STYLE = """
  .paper { fill: #ffffff; stroke: #d0d7de }
  text { fill: #1f2937; white-space: pre } .dim { fill: #64748b } .strong { font-weight: 600 }
  .green { fill: #047857 } .cyan { fill: #0e7490 }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #161b22; stroke: #3d444d }
    text { fill: #e6edf3 } .dim { fill: #8b98a5 } .green { fill: #34d399 } .cyan { fill: #67e8f9 }
  }
  @media (prefers-reduced-motion: reduce) { .lines { animation-play-state: paused; animation-delay: -END } }
"""


@dataclass(frozen=True)
class Line:
    """One line of the terminal, and when it was complete, in seconds after the first one."""

    text: Text
    at_s: float


def recorded(command: list[str]) -> list[Line]:
    """The lines that a command writes to a terminal. CalledProcessError when it fails."""
    ours, its = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
    child = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment, cwd=ROOT)
    os.close(its)
    lines, rest, start = [], b"", time.monotonic()
    for part in _parts(ours):
        *complete, rest = (rest + part).split(b"\n")
        lines += [line for each in complete for line in _lines(each, time.monotonic() - start)]
    os.close(ours)
    if child.wait():
        raise subprocess.CalledProcessError(child.returncode, command, "\n".join(each.text.plain for each in lines))
    return lines


def _parts(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux says EIO where the program has ended
            return
        if not part:
            return
        yield part


def _lines(written: bytes, at_s: float) -> list[Line]:
    """The text of a line at its end, which may have been written over from its first column; broken at the edge."""
    text = Text.from_ansi(written.decode().rstrip("\r").rsplit("\r", 1)[-1])
    return [Line(part, at_s) for part in text.divide(range(COLUMNS, len(text), COLUMNS))]


def picture(lines: list[Line], command: str = COMMAND) -> str:
    """The SVG that shows the lines one after the other, in a window of ROWS lines."""
    lines = [Line(Text(f"$ {command}", style="bold"), 0.0), *lines]
    lasts_s = lines[-1].at_s + REST_S
    width, height = 2 * MARGIN + COLUMNS * LETTER, 2 * MARGIN + ROWS * LINE
    style = STYLE.replace("END", f"{lasts_s - 0.01:.2f}s")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" role="img" aria-labelledby="t"'
            ' font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, Liberation Mono, monospace">',
            f'<title id="t">{escape(command)}: {escape(_told(lines))}</title>',
            f"<style>{style}{_steps(lines, lasts_s)}</style>",
            f'<rect class="paper" x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1}" rx="10"/>',
            f'<svg x="{MARGIN}" y="{MARGIN}" width="{COLUMNS * LETTER:g}" height="{ROWS * LINE}">',
            f'<g class="lines" font-size="{SIZE:g}">',
            *(_drawn(each.text, LINE * row) for row, each in enumerate(lines)),
            "</g>",
            "</svg>",
            "</svg>\n",
        ]
    )


def _told(lines: list[Line]) -> str:
    """The steps of the demo, for readers who do not see the picture."""
    return " ".join(each.text.plain.split("  ")[0] + "." for each in lines if each.text.plain[:1].isdigit())


def _steps(lines: list[Line], lasts_s: float) -> str:
    """The animation: whenever lines come, the window moves so that the newest one is its last."""
    shown: dict[str, int] = {}
    for row, each in enumerate(lines):
        shown[f"{100 * each.at_s / lasts_s:.2f}%"] = row + 1
    last = list(shown.values())[-1]
    moves = [f"{at} {{ transform: translateY({LINE * (ROWS - count)}px) }}" for at, count in shown.items()]
    end = f"100% {{ transform: translateY({LINE * (ROWS - last)}px) }}"
    return (
        f"  .lines {{ animation: told {lasts_s:.2f}s steps(1, jump-end) infinite }}\n"
        f"  @keyframes told {{ {' '.join(moves)} {end} }}\n"
    )


def _drawn(text: Text, top: float) -> str:
    """One line: a text of its own for each run of letters with one look."""
    looks = [""] * len(text.plain)
    for start, end, style in [(0, len(looks), text.style), *((s.start, s.end, s.style) for s in text.spans)]:
        for index in range(start, min(end, len(looks))):
            looks[index] = _look(str(style)) or looks[index]
    parts, begin = [], 0
    for index in range(1, len(looks) + 1):
        if index == len(looks) or looks[index] != looks[begin]:
            if run := text.plain[begin:index].strip():
                first = begin + text.plain[begin:index].index(run)
                kind = f' class="{looks[begin]}"' if looks[begin] else ""
                parts.append(
                    f'<text{kind} x="{first * LETTER:g}" y="{top + 14:g}" textLength="{len(run) * LETTER:g}">'
                    f"{escape(run)}</text>"
                )
            begin = index
    return "".join(parts)


def _look(style: str) -> str:
    """The classes of STYLE for a style of rich."""
    names = {"bold": "strong", "dim": "dim", "color(2)": "green", "color(6)": "cyan"}
    return " ".join(names[word] for word in style.split() if word in names)


if __name__ == "__main__":
    made = picture(recorded(shlex.split(f"{Path(sys.executable).parent / 'muster'} demo")))
    print_or_write(made, PICTURE, __doc__)
