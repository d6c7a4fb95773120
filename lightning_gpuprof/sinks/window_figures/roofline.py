"""The data of the roofline figure: operators under the ceilings of their types."""

import math
from collections.abc import Sequence

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.trace.roofline import Ceiling, Roofline, RooflineRow
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import GB_PER_S, TFLOPS
from lightning_gpuprof.sinks.window_tables.short_names import flops

MAX_MARKERS = 120
"""Operators with the most device time that are drawn."""
NAME_CELLS = 60

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

_KINDS: tuple[tuple[str, str, str], ...] = (
    # hues that people with any colour vision tell apart (after Okabe and Ito), and a shape for each
    ("gemm", "#0072b2", "circle"),
    ("convolution", "#d55e00", "square"),
    ("attention", "#009e73", "diamond"),
    ("norm/reduction", "#cc79a7", "triangle-up"),
    ("elementwise", "#e69f00", "triangle-down"),
    ("embedding", "#56b4e9", "pentagon"),
    ("other", "#6e7781", "x"),
)
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
_DECADES = range(21)
"""Powers of ten that FLOP/s can have."""
_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_INK = "#7d8590"
"""Readable on light and on dark paper."""
_DECADE = 10.0
_SMALLEST, _LARGEST = 7.0, 34.0
"""Diameters of markers in pixels; the area stands for the device time."""


def roofline_figure(roofline: Roofline) -> dict[str, Json] | None:
    """A figure for Plotly: intensity across, FLOP/s up, both logarithmic.

    Each operator with one shape of inputs is a marker whose area is its device time. Ceilings are lines: the slope is
    the memory's bandwidth, the flat part the peak of a type. Operators without FLOPs, as copies, have no place in it.

    Returns:
        ``{"data": […], "layout": {…}}``, or None if no operator has an intensity.
    """
    rows = [row for row in roofline.rows if row.intensity and row.flops_per_s][:MAX_MARKERS]
    if not rows:
        return None
    left = _DECADE ** math.floor(math.log10(min(row.intensity or 1.0 for row in rows)) - 0.1)
    right = _DECADE ** math.ceil(math.log10(max(row.intensity or 1.0 for row in rows)) + 0.1)
    if roofline.bytes_per_s:
        ridges = [ceiling.flops_per_s / roofline.bytes_per_s for ceiling in roofline.ceilings]
        right = max([right, *(3 * ridge for ridge in ridges)])
    data: list[Json] = [
        *(_line(ceiling, number, roofline, left, right) for number, ceiling in enumerate(roofline.ceilings)),
        *(_bandwidth(roofline, left, right) if not roofline.ceilings else ()),
        *_markers(rows),
    ]
    return {"data": data, "layout": _layout(roofline, rows)}


def _line(ceiling: Ceiling, number: int, roofline: Roofline, left: float, right: float) -> Json:
    x, y = [left, right], [ceiling.flops_per_s, ceiling.flops_per_s]
    if roofline.bytes_per_s:
        ridge = ceiling.flops_per_s / roofline.bytes_per_s
        x, y = [left, ridge, right], [left * roofline.bytes_per_s, ceiling.flops_per_s, ceiling.flops_per_s]
    source = "measured" if ceiling.measured else "data sheet"
    name = f"{ceiling.dtype}: {TFLOPS(ceiling.flops_per_s)} TFLOP/s ({source})"
    return _drawn(name, list(x), list(y), _DASHES[number % len(_DASHES)], f"{ceiling.dtype} peak")


def _bandwidth(roofline: Roofline, left: float, right: float) -> Sequence[Json]:
    if not roofline.bytes_per_s:
        return ()
    rate = roofline.bytes_per_s
    return (_drawn(f"memory: {GB_PER_S(rate)} GB/s", [left, right], [left * rate, right * rate], "solid", "memory"),)


def _drawn(name: str, x: list[Json], y: list[Json], dash: str, label: str) -> Json:
    texts: list[Json] = ["" for _ in x]
    texts[-1] = label
    return {
        "type": "scatter",
        "mode": "lines+text",
        "name": name,
        "x": x,
        "y": y,
        "text": texts,
        "textposition": "top left",
        "line": {"color": _INK, "width": 2, "dash": dash},
        "hoverinfo": "name",
    }


def _markers(rows: Sequence[RooflineRow]) -> list[Json]:
    largest = max(row.device_us for row in rows)
    known = {kind for kind, _, _ in _KINDS}
    drawn: list[Json] = []
    for kind, colour, symbol in _KINDS:
        own = [row for row in rows if row.kind == kind or (kind == "other" and row.kind not in known)]
        if not own:
            continue
        drawn.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": kind,
                "x": [row.intensity for row in own],
                "y": [row.flops_per_s for row in own],
                "text": [_hover(row) for row in own],
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {
                    "color": colour,
                    # what cannot be, or does less than is counted, is hollow
                    "symbol": [f"{symbol}-open" if row.faster_than or row.algorithm else symbol for row in own],
                    "size": [_diameter(row.device_us, largest) for row in own],
                    "opacity": 0.65,
                    "line": {"color": "#ffffff", "width": 1},
                },
            }
        )
    return drawn


def _diameter(time_us: float, largest_us: float) -> float:
    share = time_us / largest_us if largest_us else 0.0
    return round(max(_SMALLEST, _LARGEST * math.sqrt(share)), 1)


def _hover(row: RooflineRow) -> str:
    lines = [
        f"<b>{_escaped(row.operator)}</b> {row.dtype or ''}",
        _escaped(row.input_shape),
        f"{numbers.significant(row.device_us / 1000)} ms on the device in {numbers.count(row.calls)} calls",
        f"{flops(row.flops_per_call)} per call",
        f"{TFLOPS(row.flops_per_s)} TFLOP/s, {GB_PER_S(row.bytes_per_s)} GB/s",
    ]
    if row.measured_flops_per_byte is not None:
        measured, most = (numbers.significant(one) for one in (row.measured_flops_per_byte, row.flops_per_byte))
        lines.append(f"{measured} FLOP per byte as measured by ncu, {most} by the inputs' shapes")
    if row.algorithm:
        lines.append(f"{row.algorithm}: does fewer FLOPs than are counted")
    elif row.faster_than == "compute":
        lines.append("faster than the device can compute: the FLOPs or their type are wrong")
    elif row.faster_than == "memory":
        lines.append("faster than the memory: from the cache, or the bytes are wrong")
    elif row.ceiling_ratio is not None:
        lines.append(f"{numbers.exact_percent(row.ceiling_ratio)} of what {row.bound} allows")
    return "<br>".join(lines)


def _escaped(text: str) -> str:
    """Plotly reads a few tags in texts."""
    return plain.name(text, NAME_CELLS).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _layout(roofline: Roofline, rows: Sequence[RooflineRow]) -> dict[str, Json]:
    shown = sum(row.device_us for row in rows)
    known = sum(row.device_us for row in roofline.rows)
    held = f"{numbers.exact_percent(shown / known if known else None)} of the device time of operators with known work"
    title = f"Roofline, {plain.name(roofline.device, NAME_CELLS)}" if roofline.device else "Roofline"
    axis: dict[str, Json] = {"type": "log", "exponentformat": "SI", "dtick": 1, "gridcolor": "rgba(127,127,127,0.25)"}
    return {
        "title": {"text": f"{_escaped(title)}<br><sub>{held}; area: device time; hollow: no valid share</sub>"},
        "xaxis": {**axis, "title": {"text": "arithmetic intensity, FLOP per byte"}},
        "yaxis": {
            **axis,
            "title": {"text": "FLOP/s"},
            "tickvals": [_DECADE**n for n in _DECADES],
            # Plotly's own names end at T, after which it writes powers
            "ticktext": [f"{10 ** (n % 3)}{_PREFIXES[n // 3]}" for n in _DECADES],
        },
        "legend": {"orientation": "h", "y": -0.2, "itemsizing": "constant"},
        "hovermode": "closest",
        "height": 560,
        "margin": {"l": 70, "r": 20, "t": 70, "b": 60},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": _INK},
    }
