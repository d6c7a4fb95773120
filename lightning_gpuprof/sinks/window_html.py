"""Parts of HTML that the page of a run and that of a trace share: operators, idle time, roofline, timeline, opening."""

import shlex
from collections.abc import Sequence
from html import escape

import msgspec

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.phases import words_of
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.model.trace.by_step import ByStep
from lightning_gpuprof.model.trace.idle import IDLE_CAUSE_TERMS, DeviceIdle
from lightning_gpuprof.model.trace.operators import OperatorDetail, Operators
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.curve_figure import CurveFigure, Line, Panel
from lightning_gpuprof.sinks.drawings import PENS, curves_svg, roofline_svg
from lightning_gpuprof.sinks.html_page import bdi, figure, legend, stack, table_html, term
from lightning_gpuprof.sinks.window_figures.roofline import roofline_figure
from lightning_gpuprof.sinks.window_figures.timeline import Moment, timeline_figure
from lightning_gpuprof.sinks.window_tables.idle import cause_word
from lightning_gpuprof.sinks.window_tables.memory import place_of
from lightning_gpuprof.sinks.window_tables.operators import NAME_CELLS, operators_by_shape
from lightning_gpuprof.sinks.window_tables.timeline import step_name, timeline_table

TOP_TYPES = 8
"""Types that have a colour of their own."""
TOP_OPERATORS = 20
TOP_LINES = 5
"""Operators with a line over the steps."""
_RADIUS = 15.9155
"""A circle of this radius is 100 long: shares are lengths in percent."""
_MIN_RATIO = 0.001


def operators_html(analysis: TraceAnalysis) -> str:
    """The ring, the bars and the lines over the steps; empty if the window has no operators."""
    found = analysis.operators
    if found is None or not found.operators:
        return ""
    on_device = found.device_us is not None and bool(found.attributed_device_us)
    return _types(found, on_device) + _bars(found, on_device) + _lines(analysis.by_step)


def _types(found: Operators, on_device: bool) -> str:
    """Shares of the types; what is beyond the first ones, or was launched by no operator, is the last piece."""
    ratios = [(row.type, (row.device_ratio if on_device else row.host_ratio) or 0.0) for row in found.types]
    ratios = sorted((row for row in ratios if row[1] >= _MIN_RATIO), key=lambda row: -row[1])[:TOP_TYPES]
    if not ratios:
        return ""
    shown = [(f"kind_{number}", plain.name(name, NAME_CELLS), ratio) for number, (name, ratio) in enumerate(ratios, 1)]
    rest = 1 - sum(ratio for _, ratio in ratios)
    if rest >= _MIN_RATIO:
        shown.append(("faint", "all others, and kernels of no operator" if on_device else "all others", rest))
    what = "device" if on_device else "host"
    words = ", ".join(f"{name} {numbers.exact_percent(ratio)}" for _, name, ratio in shown)
    colours = legend((key, f"{bdi(name)} {numbers.exact_percent(ratio)}") for key, name, ratio in shown)
    return (
        f"<h4>Types of operators <small>share of {what} time</small></h4>\n"
        f'<div class="ring"><svg viewBox="0 0 42 42" role="img" aria-label="{escape(f"By {what} time: {words}")}">'
        f"{_ring(shown)}</svg>\n{colours}</div>\n"
    )


def _ring(shown: Sequence[tuple[str, str, float]]) -> str:
    pieces = []
    before = 0.0
    for key, name, ratio in shown:
        length = 100 * ratio
        drawn = max(length - 0.4, 0.1)
        pieces.append(
            f'<circle cx="21" cy="21" r="{_RADIUS}" pathLength="100" style="stroke:var(--{key})" '
            f'stroke-dasharray="{drawn:.2f} {100 - drawn:.2f}" stroke-dashoffset="{25 - before:.2f}">'
            f"<title>{escape(name)} {numbers.exact_percent(ratio)}</title></circle>"
        )
        before += length
    return "".join(pieces)


def _bars(found: Operators, on_device: bool) -> str:
    def spent_us(row: OperatorDetail) -> float:
        return (row.device_self_us if on_device else row.host_self_us) or 0.0

    rows = sorted(found.operators, key=lambda row: -spent_us(row))[:TOP_OPERATORS]
    rows = [row for row in rows if spent_us(row) > 0]
    if not rows:
        return ""
    largest = spent_us(rows[0])
    total = found.device_us if on_device else found.host_self_us
    items = []
    for row in rows:
        spent = spent_us(row)
        phase = escape(words_of(row.phase))
        head = (
            f'<span class="name">{bdi(plain.name(row.operator, NAME_CELLS))} <small>{phase}</small></span>'
            f'<span><span class="bar" style="width:{100 * spent / largest:.2f}%"></span></span>'
            f'<span class="n">{numbers.fixed(spent / 1000)} ms</span>'
            f'<span class="n">{numbers.exact_percent(spent / total if total else None)}</span>'
            f'<span class="n">{numbers.count(row.occurrences)} calls</span>'
        )
        inside = _shapes(found, row)
        if inside:
            items.append(f"<li><details><summary>{head}</summary>\n{inside}</details></li>\n")
        else:
            items.append(f'<li><div class="head">{head}</div></li>\n')
    side = "device" if on_device else "host"
    meaning = (
        "self: launched by the operator itself, share of the window's device time"
        if on_device
        else "self time (nested operators excluded), share of all operators; inflated by tracing"
    )
    unfolds = "; click a row for its input shapes" if any("<details>" in item for item in items) else ""
    return (
        f"<h4>The {len(rows)} operators with the most {side} time <small>{escape(meaning + unfolds)}</small></h4>\n"
        f'<ol class="bars">\n{"".join(items)}</ol>\n'
    )


def _lines(found: ByStep | None) -> str:
    """The operators with the most host time from step to step; empty for a single step."""
    rows = () if found is None or len(found.steps) < 2 else found.operators[:TOP_LINES]
    if not rows:
        return ""
    at = [float(number) for number in range(1, len(rows[0].times_us) + 1)]
    names = [plain.name(row.name, NAME_CELLS) for row in rows]
    lines = [
        Line(name=name, batch=[], t_s=at, values=[us / 1000 for us in row.times_us])
        for name, row in zip(names, rows, strict=True)
    ]
    panel = Panel(title="Self time on the host", unit="ms", lines=lines)
    drawn = curves_svg(
        CurveFigure(panels=[panel], limits=[0.0, 0.0], limits_s=[at[0], at[-1]]), unit="step of the window"
    )
    label = "Self time on the host, step by step; all numbers are in the table of operators by step"
    return (
        f"<h4>The {len(rows)} operators with the most host time, step by step</h4>\n"
        f'<div class="figure" role="img" aria-label="{label}">{drawn}</div>\n'
        + legend((pen, bdi(name)) for pen, name in zip(PENS, names, strict=False))
    )


def _shapes(found: Operators, row: OperatorDetail) -> str:
    own = tuple(one for one in found.shapes or () if (one.operator, one.phase) == (row.operator, row.phase))
    if not any(one.input_shape for one in own):
        return ""
    table = operators_by_shape(msgspec.structs.replace(found, shapes=own))
    calls = sum(one.occurrences for one in own)
    note = ""
    if calls < row.occurrences:
        counted = f"{numbers.count(calls)} of {numbers.count(row.occurrences)} calls"
        note = f'<p class="hint">{counted}: those with the shapes that take most time; the trace itself has more.</p>\n'
    return table_html(table.without("operator", "phase", "total")) + note


_BUSY = "time in which at least one stream was busy"


def idle_html(analysis: TraceAnalysis) -> str:
    """One stacked bar for each device with its words and numbers; empty if no device did anything."""
    return "" if analysis.idle is None else "".join(map(_device, analysis.idle.devices))


def _device(device: DeviceIdle) -> str:
    if device.window_us <= 0:
        return ""
    busy = device.busy_us / device.window_us
    parts = [("busy", "busy", busy, _BUSY)]
    parts += [
        (f"idle_{row.cause}", cause_word(row.cause), row.window_ratio, IDLE_CAUSE_TERMS[row.cause])
        for row in device.causes
    ]
    name = plain.device(device.device)
    window = numbers.seconds(device.window_us / 1e6)
    return (
        f"<p>{bdi(name)}: {window} from the first to the last kernel or copy</p>\n"
        + stack(name, (part[:3] for part in parts))
        + legend((key, f"{term(word, meaning)} {numbers.exact_percent(share)}") for key, word, share, meaning in parts)
    )


_MAX_CHARACTERS = 300
"""File systems allow 255 bytes."""


def opening_html(file: str) -> str:
    """The command that opens a trace in a run's folder in Perfetto, and how to do without it.

    A page asks no other host by itself, so it has no link there.
    """
    if not file:
        return ""
    name = plain.name(file, _MAX_CHARACTERS)
    command = f"gpuprof trace {shlex.quote(name)} --perfetto"
    return (
        '<p class="opening">The whole trace, with our phases and idle causes on top, opens in Perfetto by '
        f"<code>{escape(command)}</code> <span>in the trace's folder. Offline, chrome://tracing loads the file that "
        "this writes.</span></p>\n"
    )


def memory_html(analysis: TraceAnalysis) -> str:
    """What was held over the window, a curve for each device; empty if allocations were not recorded."""
    uses = () if analysis.memory is None else analysis.memory.devices
    panels = [
        Panel(
            title=f"Memory held, {place_of(use)}",
            unit="MiB",
            lines=[
                Line(
                    name="allocated by torch",
                    batch=[],
                    t_s=[us / 1e6 for us in use.curve_us],
                    values=[held / 2**20 for held in use.curve_bytes],
                )
            ],
        )
        for use in uses
    ]
    last_s = max((panel.lines[0].t_s[-1] for panel in panels), default=0.0)
    return curves_svg(CurveFigure(panels=panels, limits=[0.0, 0.0], limits_s=[0.0, last_s])) if panels else ""


def roofline_html(analysis: TraceAnalysis) -> str:
    """The figure; empty if no operator has an intensity."""
    drawing = None if analysis.roofline is None else roofline_figure(analysis.roofline)
    if drawing is None:
        return ""
    label = "Roofline: achieved rates under the ceilings of the device; all numbers are in the table"
    return figure("plotly", drawing, label, roofline_svg(drawing))


def timeline_html(analysis: TraceAnalysis, marked: Sequence[Moment] = ()) -> str:
    """The figure without its table.

    Args:
        analysis: Of a window or a trace.
        marked: Findings to draw in it.

    Returns:
        HTML, a sentence and the figure; empty if there is nothing to draw.
    """
    found = analysis.timeline
    drawing = None if found is None else timeline_figure(found, marked)
    if found is None or drawing is None:
        return ""
    title = timeline_table(found).title
    said = (
        f"{step_name(found)}; recorded with the profiler on, which makes the host's times longer. Events too short to "
        "draw are merged; pale means mostly gaps."
    )
    if found.left_out:
        said += f" {numbers.count(found.left_out)} more threads, streams or devices are left out."
    return f"<p>{bdi(numbers.capital(said))}</p>\n{figure('timeline', drawing, title)}"
