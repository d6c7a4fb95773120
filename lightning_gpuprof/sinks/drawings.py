"""Figures as small SVG that needs no script: what a page from disk, a print and a notebook show.

Shapes are stretched to the width that there is, of a telephone or a sheet; letters, marks and heights stay as they are.
The tab draws the same numbers with Plotly, where they can be zoomed.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from lightning_gpuprof.model.numbers import significant
from lightning_gpuprof.model.phases import PHASE_TERMS, words_of
from lightning_gpuprof.sinks.curve_figure import CurveFigure, Panel
from lightning_gpuprof.sinks.figures import SpreadFigure, StepFigure
from lightning_gpuprof.sinks.html_page import legend, scrolling, term
from lightning_gpuprof.sinks.rank_tables import HeatFigure

WIDTH = 1000
"""Units of a plot's width."""
_NARROW_RATIO = 0.27
"""Pixels to a unit on a telephone: what has no room there is marked, and not shown there."""
MAX_COLUMNS = 320
"""Of more steps the mean of each stretch is drawn, and its longest step as a line above."""
_LEFT = 84
"""Pixels for the labels before a plot."""
_CHARACTER = 8
"""Pixels of a digit."""
_LETTER = 7
"""Pixels of a letter of a label, at most on average."""
_MIN_DRAWN_RATIO = 0.004
"""Phases with less of all steps would be no line thick; the table has them."""
PENS = ("backward", "data_wait", "zero_grad", "callbacks", "forward", "logging")
_DASHES = ("", "7 3", "2 3", "7 3 2 3", "12 3", "12 3 2 3")
_MARKS = {
    "window": "accent",
    "validation": "validation",
    "checkpoint": "checkpoint",
    "epoch": "faint",
    "speed level": "ink",
}


def steps_svg(figure: StepFigure) -> str:
    """Step time over batches, stacked by phase; what happened to the steps below it."""
    known = [
        (batch, period) for batch, period in zip(figure.batch, figure.period_ms, strict=True) if period is not None
    ]
    if not known:
        return ""
    columns = _columns(len(figure.batch))
    times = sorted(period for _, period in known)
    top = min(times[-1], max(2 * times[len(times) // 2], 1.15 * times[int(0.95 * (len(times) - 1))])) * 1.05 or 1.0
    height, lanes = 210, [row for row in figure.marks if row.kind in _MARKS]
    first, last = figure.batch[0], figure.batch[-1] + 1
    x = _scale(first, max(last, first + 1))
    y = _scale(0.0, top, height, 8.0)
    shapes, marks = _grid(y, _ticks(0.0, top), "ms")
    ends = [(x(figure.batch[a]), x(figure.batch[b - 1] + 1)) for a, b in columns]
    base = [0.0] * len(columns)
    all_ms = math.fsum(times)
    phases = [curve for curve in figure.phases if math.fsum(v or 0.0 for v in curve.ms) > _MIN_DRAWN_RATIO * all_ms]
    for curve in phases:
        upper = [low + (_mean(curve.ms[a:b]) or 0.0) for low, (a, b) in zip(base, columns, strict=True)]
        total = sum(upper) - sum(base)
        said = f"{curve.words}: {significant(total / len(columns))} ms on average"
        there = [f"{a:.0f} {max(y(v), 0):.0f}H{b:.0f}" for (a, b), v in zip(ends, upper, strict=True)]
        back = [f"{b:.0f} {max(y(v), 0):.0f}H{a:.0f}" for (a, b), v in zip(ends, base, strict=True)][::-1]
        path = f"M{'L'.join(there)}L{'L'.join(back)}z"  # in steps; clipped by the picture where it is higher
        shapes.append(f'<path d="{path}" fill="var(--{curve.phase})"><title>{said}</title></path>')
        base = upper
    longest = [max((p for p in figure.period_ms[a:b] if p is not None), default=0.0) for a, b in columns]
    line = " ".join(
        f"{x(figure.batch[a]):.0f},{y(min(p, top)):.0f}" for p, (a, _) in zip(longest, columns, strict=True)
    )
    shapes.append(f'<polyline points="{line}" fill="none" stroke="var(--faint)" stroke-width=".6"/>')
    for row in figure.marks:
        if row.kind == "outlier":
            marks += (
                f'<svg x="{_percent(x(batch))}" y="{y(min(ms or top, top)):.0f}"><path d="M0 3l-4 -7h8z" '
                f'fill="var(--critical)"><title>batch {batch}: {significant(ms)} ms</title></path></svg>'
                for batch, ms in zip(row.first, row.ms, strict=True)
            )
    for number, row in enumerate(lanes):
        level, colour = height + 16 + 16 * number, _MARKS[row.kind]
        marks.append(_label(level + 4, row.kind))
        shapes += (
            f'<rect x="{x(a):.1f}" y="{level - 5}" width="{max(3.0, x(b + 1) - x(a)):.1f}" height="9" '
            f'fill="var(--{colour})"><title>{row.kind}, batch {a} to {b}</title></rect>'
            for a, b in zip(row.first, row.last, strict=True)
        )
    bottom = height + 16 * len(lanes) + 8
    marks += _across(x, _ticks(first, last), bottom, "batch")
    return _svg(bottom + 26, shapes, marks) + legend((curve.phase, curve.words) for curve in phases)


def curves_svg(figure: CurveFigure, unit: str = "s") -> str:
    """Panels of samples over the time since the start.

    Args:
        figure: The panels.
        unit: Of what is across; what is no time is counted, so that it has whole numbers.

    Returns:
        A drawing for each panel under its title.
    """
    low, high = figure.limits_s
    x = _scale(low, high if high > low else low + 1)
    ticks = [tick for tick in _ticks(low, high) if unit == "s" or tick == int(tick)]
    axis = _across(x, ticks, 72, unit)
    return "".join(_panel(panel, x, axis if panel is figure.panels[-1] else []) for panel in figure.panels)


def _panel(panel: Panel, x: Callable[[float], float], axis: Sequence[str]) -> str:
    values = [v for line in panel.lines for v in line.values if v is not None]
    most = max([*values, 0.0]) * 1.05 or 1.0
    y = _scale(0.0, most, 68.0, 6.0)
    names = " · ".join(line.name for line in panel.lines)
    title = escape(f"{panel.title}, {panel.unit}: {names}")
    shapes, marks = _grid(y, _ticks(0.0, most, 2), "")
    for number, line in enumerate(panel.lines):
        runs: list[list[str]] = [[]]
        for moment, value in zip(line.t_s, line.values, strict=True):
            if value is None:
                runs.append([])
            else:
                runs[-1].append(f"{x(moment):.0f},{y(value):.0f}")
        dash = f' stroke-dasharray="{_DASHES[number % 6]}"' if number % 6 else ""
        for run in runs:
            if run:
                shapes.append(
                    f'<polyline points="{" ".join(_thinned(run))}" fill="none" stroke="var(--{PENS[number % 6]})" '
                    f'stroke-width="1.4"{dash}><title>{escape(line.name)}</title></polyline>'
                )
    return f'<p class="panel">{title}</p>\n{_svg(94 if axis else 74, shapes, [*marks, *axis])}'


def _thinned(points: Sequence[str]) -> list[str]:
    """Points that are drawn on another one are left out."""
    return list(dict.fromkeys(points)) if len(points) > 1 else [points[0], points[0]]


def spread_svg(figure: SpreadFigure) -> str:
    """For each phase a bar from p05 to p95 with a line at the median."""
    most = max(row.p95 for row in figure.rows) * 1.03
    x = _scale(0.0, most)
    shapes, marks = [], []
    for number, row in enumerate(figure.rows):
        level = 6 + 24 * number
        ends = f"p05 {significant(row.p05)} ms, median {significant(row.median)}, p95 {significant(row.p95)}"
        marks.append(_label(level + 13, row.words))
        shapes.append(
            f'<rect x="{x(row.p05):.1f}" y="{level}" width="{max(1.0, x(row.p95) - x(row.p05)):.1f}" height="16" '
            f'fill="var(--{row.phase})"><title>{row.words}: {ends}</title></rect>'
            f'<path d="M{x(row.median):.1f} {level - 2}v20" stroke="var(--ink)" stroke-width="2"/>'
        )
    bottom = 6 + 24 * len(figure.rows)
    left = max(_LEFT, _LETTER * max(len(row.words) for row in figure.rows))
    return _svg(bottom + 24, shapes, [*marks, *_across(x, _ticks(0.0, most), bottom, "ms")], left)


def heat_html(figure: HeatFigure) -> str:
    """Ranks by phases as a table whose cells have the colour of the difference from the median rank."""
    most = max((abs(v or 0.0) for row in figure.apart_ms for v in row), default=0.0) or 1.0
    others = {title: _apart(values) for title, values in figure.others.items()}
    known = {words_of(phase): said for phase, said in PHASE_TERMS.items()}
    head = "".join(
        f'<th scope="col" class="n">{term(name, known.get(name, "time of the rank, ms"))}</th>'
        for name in figure.columns
    )
    head += "".join(f'<th scope="col" class="n">{escape(title)}</th>' for title in others)
    rows = []
    for at, (rank, times, apart) in enumerate(zip(figure.ranks, figure.ms, figure.apart_ms, strict=True)):
        values = [(ms, (d or 0.0) / most) for ms, d in zip(times, apart, strict=True)]
        values += [(figure.others[title][at], ratios[at]) for title, ratios in others.items()]
        cells = "".join(
            f'<td class="n" style="background:color-mix(in srgb, var(--{"more" if ratio > 0 else "less"}) '
            f'{100 * abs(ratio):.0f}%, transparent)">{significant(value)}</td>'
            for value, ratio in values
        )
        rows.append(f'<tr><th scope="row">{escape(rank)}</th>{cells}</tr>\n')
    top = f'<thead><tr><th scope="col"><span class="hidden">rank</span></th>{head}</tr></thead>'
    area = scrolling("Ranks by phase, ms")
    return f'{area}<table class="heat">{top}\n<tbody>{"".join(rows)}</tbody></table></div>\n'


def _apart(values: Sequence[float | None]) -> list[float]:
    """Differences from the median, over the largest of them, or over a tenth of the median: noise has no colour."""
    known = [value for value in values if value is not None]
    usual = statistics.median(known)
    most = max(0.1 * abs(usual), *(abs(value - usual) for value in known)) or 1.0
    return [0.0 if value is None else (value - usual) / most for value in values]


def roofline_svg(figure: Any) -> str:
    """Plotly's data of a roofline, both axes logarithmic."""
    found = [(trace, list(zip(trace["x"], trace["y"], strict=True))) for trace in figure["data"]]
    points = [(px, py) for _, pairs in found for px, py in pairs if px and py]
    if not points:
        return ""
    logs = [[math.log10(v) for v in axis] for axis in zip(*points, strict=True)]
    height = 360.0
    x = _scale(min(logs[0]) - 0.1, max(logs[0]) + 0.1)
    y = _scale(min(logs[1]) - 0.1, max(logs[1]) + 0.2, height, 8.0)
    shapes, marks = [], []
    for power in range(math.ceil(min(logs[1])), math.floor(max(logs[1])) + 1):
        shapes.append(_line(y(power)))
        marks.append(_label(y(power) + 4, f"1e{power}"))
    for power in range(math.ceil(min(logs[0])), math.floor(max(logs[0])) + 1):
        marks.append(_text(x(power), height + 16, significant(10.0**power), "middle"))
    for trace, pairs in found:
        drawn = [(x(math.log10(a)), y(math.log10(b))) for a, b in pairs if a and b]
        if "lines" in trace["mode"]:
            path = " ".join(f"{a:.0f},{b:.0f}" for a, b in drawn)
            shapes.append(f'<polyline points="{path}" fill="none" stroke="var(--faint)" stroke-width="1.6"/>')
            marks.append(_text(drawn[-1][0], drawn[-1][1] - 5, trace["text"][-1], "end"))
            continue
        sizes = trace["marker"]["size"]
        for (a, b), size, said in zip(drawn, sizes, trace["text"], strict=True):
            title = said.replace("<br>", "\n").replace("<b>", "").replace("</b>", "")
            marks.append(
                f'<circle cx="{_percent(a)}" cy="{b:.0f}" r="{size / 2:.1f}" fill="{escape(trace["marker"]["color"])}" '
                f'fill-opacity=".65"><title>{title}</title></circle>'
            )
    marks.append(_text(WIDTH / 2, height + 34, "arithmetic intensity, FLOP per byte (up: FLOP/s)", "middle"))
    kinds = [(trace["name"], trace["marker"]["color"]) for trace, _ in found if "lines" not in trace["mode"]]
    items = "".join(f'<li><i style="background:{escape(colour)}"></i>{escape(name)}</li>' for name, colour in kinds)
    return _svg(height + 44, shapes, marks) + f'<ul class="colours">{items}</ul>\n'


def _columns(count: int) -> list[tuple[int, int]]:
    stretch = math.ceil(count / MAX_COLUMNS)
    return [(at, min(at + stretch, count)) for at in range(0, count, stretch)]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _scale(low: float, high: float, start: float = 0.0, end: float = WIDTH) -> Callable[[float], float]:
    factor = (end - start) / (high - low) if high > low else 0.0
    return lambda value: start + (value - low) * factor


def _ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between two others."""
    rough = (high - low) / count
    if rough <= 0:
        return [low]
    power: float = 10.0 ** math.floor(math.log10(rough))
    step = next(n * power for n in (1, 2, 5, 10) if n * power >= rough * (1 - 1e-9))
    return [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _line(y: float) -> str:
    return f'<path d="M0 {y:.0f}H{WIDTH}" stroke="var(--line)"/>'


def _grid(y: Callable[[float], float], ticks: Sequence[float], unit: str) -> tuple[list[str], list[str]]:
    """Lines, and their values before the plot."""
    labels = [_label(y(tick) + 4, f"{significant(tick)} {unit}".rstrip()) for tick in ticks]
    return [_line(y(tick)) for tick in ticks], labels


def _across(x: Callable[[float], float], ticks: Sequence[float], top: float, unit: str) -> list[str]:
    """Ticks at their places and the unit at the right end, where it stands instead of a tick."""
    shown, narrow_end = [], -math.inf
    for tick in ticks:
        half = _CHARACTER * len(label := significant(tick)) / 2
        free = _CHARACTER * (len(unit) + 2) + half
        narrow = _NARROW_RATIO * x(tick)
        has_room = narrow < _NARROW_RATIO * WIDTH - free and narrow - half > narrow_end
        narrow_end = narrow + half if has_room else narrow_end
        if x(tick) < WIDTH - free:
            shown.append(_text(x(tick), top + 16, label, "middle", wide=not has_room))
    return [*shown, _text(WIDTH, top + 16, unit, "end")]


def _percent(x: float) -> str:
    return f"{100 * x / WIDTH:.2f}%"


def _text(x: float, y: float, text: str, anchor: str, *, wide: bool = False) -> str:
    only = ' class="wide"' if wide else ""
    return f'<text x="{_percent(x)}" y="{y:.0f}" text-anchor="{anchor}"{only}>{escape(text)}</text>'


def _label(y: float, text: str) -> str:
    """Before the plot."""
    return f'<text x="-6" y="{y:.0f}" text-anchor="end">{escape(text)}</text>'


def _svg(height: float, shapes: Iterable[str], marks: Iterable[str], left: float = _LEFT) -> str:
    return stretched(height, "".join(shapes), "".join(marks), left=left)


def stretched(height: float, shapes: str, marks: str, *, left: float = 0.0, kind: str = "") -> str:
    """A picture as wide as there is room.

    Args:
        height: Pixels.
        shapes: Are stretched, from :data:`WIDTH` units.
        marks: Letters and marks, which are not; they stand at percents of the width.
        left: Pixels before the plot.
        kind: A further class.

    Returns:
        An ``svg`` element, hidden from screen readers. Nothing is escaped.
    """
    return (
        f'<svg class="drawn{kind and f" {kind}"}" style="--left:{left:.0f}px;height:{height:.0f}px" aria-hidden="true">'
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" preserveAspectRatio="none" width="100%" height="{height:.0f}">'
        f"{shapes}</svg>{marks}</svg>\n"
    )
