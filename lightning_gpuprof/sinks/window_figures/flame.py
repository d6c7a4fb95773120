"""Flame graphs as small SVG: who took the time, callers above callees.

Of a window by modules of the model where the trace has them, else by phase and operator; on a device it is the device's
time. Of the steps by phase and calls in the user's code.
"""

from collections.abc import Iterator, Mapping
from html import escape

import msgspec

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.phases import PHASES, words_of
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.drawings import WIDTH, stretched

ROW, LETTER = 22.0, 7.4
"""Units of the picture; a letter is taken for wider than it mostly is, so that no name is cut."""
NARROW_RATIO = 0.34
"""Of the width on a telephone: a name that has no room there is not shown there."""
MIN_RATIO = 0.002
"""Of the whole; narrower ones are no line."""
MAX_DEPTH = 12

Path = tuple[str, ...]


class Flame(msgspec.Struct, frozen=True, kw_only=True):
    """Times by path, each with that of what is below it."""

    what: str
    """``device time by module``."""
    total_us: float
    times_us: Mapping[Path, float]


def flame_of(analysis: TraceAnalysis) -> Flame | None:
    """What a flame graph is drawn from; None if the trace has neither modules nor operators."""
    attributed = analysis.attribution
    if attributed is not None and attributed.modules and attributed.device_us > 0:
        times = {row.path[:MAX_DEPTH]: row.device_us for row in attributed.modules if len(row.path) <= MAX_DEPTH}
        return Flame(what="device time by module", total_us=attributed.device_us, times_us=times)
    found = analysis.operators
    if found is None:
        return None
    on_device = any(row.device_self_us for row in found.operators)
    times = {}
    for row in found.operators:
        spent_us = (row.device_self_us if on_device else row.host_self_us) or 0.0
        for path in ((row.phase,), (row.phase, row.operator)):
            times[path] = times.get(path, 0.0) + spent_us
    total_us = sum(us for path, us in times.items() if len(path) == 1)
    what = f"{'device' if on_device else 'host'} time by phase and operator"
    return Flame(what=what, total_us=total_us, times_us=times) if total_us > 0 else None


def flame_of_steps(report: Report) -> Flame | None:
    """All steps by phase and by calls in the user's code; None if none were seen."""
    times: dict[Path, float] = {}
    for row in report.stacks:
        path = (row.phase, *row.frames)[:MAX_DEPTH]
        for depth in range(1, len(path) + 1):
            times[path[:depth]] = times.get(path[:depth], 0.0) + row.total_s * 1e6
    total_us = sum(us for path, us in times.items() if len(path) == 1)
    what = "all steps by phase and line of yours"
    return Flame(what=what, total_us=total_us, times_us=times) if total_us > 0 else None


def flame_html(flame: Flame | None) -> str:
    """The figure under its title; empty if there is nothing to draw."""
    if flame is None:
        return ""
    drawn = list(_bars(flame, (), 0.0))
    depth = max((bar[0] for bar in drawn), default=0) + 1
    whole = numbers.seconds(flame.total_us / 1e6)
    shapes, names = ("".join(parts) for parts in zip(*(_bar(flame, *bar) for bar in drawn), strict=True))
    picture = stretched(depth * ROW, shapes, names, kind="flame")
    label = escape(f"Flame graph: {flame.what}, {whole} in all")
    return (
        f"<h4>Flame graph <small>{flame.what}, {whole} in all</small></h4>\n"
        f'<div class="figure" role="img" aria-label="{label}">{picture}</div>\n'
    )


def _bars(flame: Flame, parent: Path, left_us: float) -> Iterator[tuple[int, Path, float, float]]:
    """Depth, path, begin and length of what is below a path, largest first."""
    depth = len(parent)
    below = [(us, path) for path, us in flame.times_us.items() if len(path) == depth + 1 and path[:depth] == parent]
    for us, path in sorted(below, reverse=True):
        if us >= MIN_RATIO * flame.total_us:
            yield depth, path, left_us, us
            yield from _bars(flame, path, left_us)
            left_us += us


def _bar(flame: Flame, depth: int, path: Path, left_us: float, us: float) -> tuple[str, str]:
    """A bar, and its name if that has room in it."""
    x, width, y = WIDTH * left_us / flame.total_us, WIDTH * us / flame.total_us, depth * ROW
    words = (words_of(path[0]), *path[1:])
    name = plain.name(words[-1])
    said = f"{' > '.join(map(plain.name, words))}: {numbers.seconds(us / 1e6)}, {numbers.percent(us / flame.total_us)}"
    colour = path[0] if path[0] in PHASES and depth == 0 else "operator"
    fitting = (written for written in (name, name.rpartition(" ")[2]) if len(written) * LETTER + 8 < width)
    written = next(fitting, "")
    wide = ' class="wide"' if len(written) * LETTER + 8 > NARROW_RATIO * width else ""
    text = f'<svg x="{100 * x / WIDTH:.2f}%"{wide}><text x="4" y="{y + 15:.0f}">{escape(written)}</text></svg>'
    fill = f"fill:color-mix(in srgb, var(--{colour}) 45%, var(--paper))"
    shape = (
        f'<rect x="{x:.1f}" y="{y:.0f}" width="{max(width - 1, 0.5):.1f}" height="{ROW - 2:.0f}" data-us="{us:.6g}" '
        f'style="{fill}"><title>{escape(said)}</title></rect>'
    )
    return shape, text if written else ""
