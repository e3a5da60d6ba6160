"""The plots of a report, drawn by matplotlib: as SVG for the page, whose colours they take to follow light and dark, in
two widths; and as PNG.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from muster_pipeline.report.text import amount

SERIES = ("#0072b2", "#d55e00", "#009e73", "#b8458f", "#8a6d00", "#3f8fbf")
"""Okabe and Ito's colours, which all people tell apart; some are darker here, for contrast on white."""
OTHERS, INK, MUTED, GRID = "#8b939d", "#1b2026", "#5a6470", "#d9dee4"
_NAMES = {**{colour: f"--s{number}" for number, colour in enumerate(SERIES, 1)}}
_NAMES |= {OTHERS: "--others", INK: "--ink", MUTED: "--muted", GRID: "--grid"}

WIDE, NARROW = 9.6, 4.3
"""Inches; a page shows one of the two, at about its natural size, so that texts keep theirs."""
_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "font.family": ["DejaVu Sans"],
    "svg.fonttype": "none",
    "text.parse_math": False,  # a client may call its group $x$
    "text.color": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.labelcolor": INK,
}


@dataclass(frozen=True)
class Plot:
    """`draw` puts it on a figure; its second argument says whether that is a narrow one. `summary`: for those who
    cannot see it.
    """

    slug: str
    title: str
    summary: str
    draw: Callable[[Figure, bool], None]
    height: float = 3.0


def render_svg(plot: Plot, narrow: bool) -> str:
    """An `<svg>` for a page that sets the variables --s1 to --s6, --others, --ink, --muted and --grid."""
    salt = f"{plot.slug}-{'narrow' if narrow else 'wide'}"  # ids of several plots on a page must differ
    with _style({"svg.hashsalt": salt}):
        figure = _figure(plot, narrow)
        out = io.StringIO()
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(out, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r"#[0-9a-f]{6}\b", lambda match: f"var({_NAMES[match[0]]})" if match[0] in _NAMES else match[0], text)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    shape = "narrow" if narrow else "wide"
    return text.replace("<svg", f'<svg class="{shape}" aria-hidden="true" focusable="false"', 1)


def render_png(plot: Plot) -> bytes:
    """Draw the plot as a PNG on white, with its title, to be shown without the page."""
    with _style({"figure.facecolor": "white"}):
        figure = _figure(plot, narrow=False)
        figure.suptitle(plot.title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        out = io.BytesIO()
        canvas: Any = FigureCanvasAgg(figure)
        canvas.print_png(out, pil_kwargs={"optimize": True})
    return out.getvalue()


@contextmanager
def _style(more: dict[Any, Any]) -> Iterator[None]:
    with mpl.rc_context({**_STYLE, **more}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a group may be named in any script; the page shows it
        yield


def _figure(plot: Plot, narrow: bool) -> Figure:
    figure = Figure(figsize=(NARROW if narrow else WIDE, plot.height), dpi=100, layout="constrained")
    plot.draw(figure, narrow)
    return figure


def by_time(axes: Any, first_ms: int, last_ms: int, narrow: bool) -> None:
    """The x axis as moments in UTC, with as many texts as there is room for."""
    span = max(last_ms - first_ms, 1)
    axes.set_xlim(first_ms - span * 0.01, last_ms + span * 0.01)
    axes.xaxis.set_major_locator(_Moments(4 if narrow else 8))
    pattern = "%H:%M:%S" if span < 600_000 else "%H:%M" if span < 36 * 3_600_000 else "%b %d"
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: datetime.fromtimestamp(value / 1000, UTC).strftime(pattern))
    )
    if span < 36 * 3_600_000:
        days = [datetime.fromtimestamp(each / 1000, UTC).strftime("%b %d") for each in (first_ms, last_ms)]
        axes.set_xlabel("UTC, " + " to ".join(dict.fromkeys(days)))
    axes.grid(visible=False, axis="x")


def amounts(axis: Any, ticks: int = 5) -> None:
    axis.set_major_locator(MaxNLocator(ticks, integer=True))
    axis.set_major_formatter(FuncFormatter(lambda value, _: amount(value)))


class _Moments(MaxNLocator):
    """Ticks at whole minutes, hours and days."""

    _STEPS_S = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000)

    def __init__(self, ticks: int) -> None:
        super().__init__(ticks)
        self._ticks = ticks

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        step = next((s * 1000 for s in self._STEPS_S if (vmax - vmin) / (s * 1000) <= self._ticks), 31_536_000_000)
        first = -(-vmin // step)
        return [step * (first + number) for number in range(int((vmax - first * step) // step) + 1)]
