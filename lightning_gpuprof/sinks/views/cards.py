"""The four ways into a run that MindInsight's overview has: step trace, operators, data preparation, timeline."""

from __future__ import annotations

from html import escape

from lightning_gpuprof.model.report import Report
from lightning_gpuprof.model.trace.operators import OperatorType
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.sinks import numbers, plain, tables
from lightning_gpuprof.sinks.html_page import bdi

NO_WINDOW = "no window"


def cards(report: Report) -> str:
    """One number each, and a link to its view; where nothing was traced, two of them say so."""
    shown = (_step_trace(report), _operators(report), _data_preparation(report), _timeline(report))
    return f'<nav class="ways" aria-label="Views of a run">\n{"".join(shown)}</nav>\n'


def _card(anchor: str, title: str, value: str, note: str) -> str:
    """A card; ``note`` is HTML."""
    return (
        f'<a class="way" href="#{anchor}"><span class="title">{escape(title)}</span>'
        f'<span class="value">{escape(value)}</span><span class="note">{note}</span></a>\n'
    )


def _step_trace(report: Report) -> str:
    period = report.steps.period_ms
    if period is None:
        return _card("steps", "Step trace", "not measured", "no step was steady")
    return _card("steps", "Step trace", numbers.quantity("period_ms", period.median), "median period of a step")


def _operators(report: Report) -> str:
    window = next((w for w in reversed(report.windows) if w.top_operators or _types(w)), None)
    if window is None:
        return _card("operators", "Operators", NO_WINDOW, "no operator was traced")
    shares, what = _shares(window)
    if not shares:
        top = window.top_operators[0]
        value = numbers.quantity("total_ms", top.total_us / 1e3)
        return _card("operators", "Operators", value, f"host time of {bdi(plain.name(top.name, 40))}, the largest")
    name, share = max(shares, key=lambda pair: pair[1])
    return _card(
        "operators", "Operators", numbers.percent(share), f"{what} is {bdi(plain.name(name, 40))}, the largest"
    )


def _types(window: WindowFacts) -> tuple[OperatorType, ...]:
    found = window.analysis.operators if window.analysis is not None else None
    return found.types if found is not None else ()


def _shares(window: WindowFacts) -> tuple[list[tuple[str, float]], str]:
    """Types of operators with what they take of all operators' time, on the device if any of it is known."""
    device = [(row.type, row.device_ratio) for row in _types(window) if row.device_ratio is not None]
    if device:
        return device, "of the operators' device time"
    host = [(row.type, row.host_ratio) for row in _types(window) if row.host_ratio is not None]
    return host, "of the operators' own host time"


def _data_preparation(report: Report) -> str:
    wait = next((row for row in report.phases if row.phase == "data_wait"), None)
    if wait is None:
        return _card("input", "Data preparation", "not measured", "there are no steps")
    of_step = tables.share_of_step(report, wait)
    said = f"of {'the time of all steps' if of_step is None else 'a step'} waiting for batches"
    if report.input is not None:
        said += f"; limit: {escape(report.input.verdict)}"
    return _card("input", "Data preparation", numbers.percent(wait.share if of_step is None else of_step), said)


def _timeline(report: Report) -> str:
    window = next((w for w in reversed(report.windows) if w.events), None)
    if window is None:
        return _card("timeline", "Timeline", NO_WINDOW, "nothing was traced")
    steps = f"steps {escape(tables.window_steps(window))}"
    busy = _busy(window)
    if busy is None:
        return _card("timeline", "Timeline", f"{numbers.count(window.events)} events", f"in {steps}")
    return _card("timeline", "Timeline", numbers.percent(busy), f"of the window the device was busy, {steps}")


def _busy(window: WindowFacts) -> float | None:
    """Of the device that was busiest."""
    return max((d.busy_us / d.window_us for d in window.devices if d.window_us > 0), default=None)
