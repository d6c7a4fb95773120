"""The attribution of device time flows in, tables of lines, modules and phases flow out."""

from __future__ import annotations

from lightning_gpuprof.model.phases import PHASE_TERMS
from lightning_gpuprof.model.trace.attribution import Attribution, Level, LineTime, Reason, Stacks
from lightning_gpuprof.sinks import numbers, plain
from lightning_gpuprof.sinks.tables import Cell, Column, Table
from lightning_gpuprof.sinks.window_tables import source_line

MOST_LINES = 20
MOST_MODULES = 30

SMALLEST_LINE_RATIO = 0.001
"""Lines without device time and with less of the host's or of the blocked time have no row."""

_LINE_LIMIT = 38
_MODULE_LIMIT = 46

_DEVICE = "sum of the durations of kernels and copies; work that overlaps counts twice"
_BACKWARD = "the part of the device time that the backward pass of this code launched"

_REASONS: dict[Reason, str] = {
    "launch_unknown": "launched before the window",
    "not_recorded": "not recorded",
    "forward_unknown": "gradients summed or reduced, or forward before the window",
    "outside": "outside of any",
}

_WITHOUT_STACKS = "the window was recorded without stacks (with_stack=True)"

_NO_LINES: dict[Stacks | None, str] = {
    None: f"Lines of code are not known: {_WITHOUT_STACKS}.",
    "operators": "The stacks of the window hold no code of yours.",
    "python_calls": "The stacks of the window hold no code of yours.",
}

_NO_MODULES: dict[Stacks | None, str] = {
    None: f"Modules are not known: {_WITHOUT_STACKS}.",
    "operators": "Modules are not known: the stacks that torch wrote until 2022 do not name them.",
    "python_calls": "No module launched work in the window.",
}

_LEVELS: dict[Level, str] = {"operator": "operator", "module": "module", "line": "line of your code", "phase": "phase"}


def attributed_table(result: Attribution) -> Table:
    """How much of the device time is attributed on each level, and why the rest is not."""
    rows = []
    for level in result.levels:
        why = [
            f"{numbers.percent(one.device_us / result.device_us if result.device_us > 0 else None)} "
            + (_not_recorded(level.level, result.stacks) if one.reason == "not_recorded" else _REASONS[one.reason])
            for one in level.rest
        ]
        rows.append(
            (
                Cell(text=_LEVELS[level.level]),
                Cell(text="", ratio=level.ratio or 0.0, key="forward"),
                Cell(text=numbers.percent(level.ratio)),
                Cell(text=plain.sentence("; ".join(why))),
            )
        )
    return Table(
        title="Device time that is attributed",
        columns=(
            Column(title="to"),
            Column(title="", bar=True),
            Column(title="share", term="of the device time of the window", numeric=True),
            Column(title="the rest", term="why it is attributed to nothing"),
        ),
        rows=tuple(rows) if result.device_us > 0 else (),
        absent="The window holds no work of a device.",
    )


def _not_recorded(level: Level, stacks: Stacks | None) -> str:
    if level == "operator":
        return "the trace holds no operators"
    if level == "phase":
        return "the trace names no part of the training loop"
    if stacks is None:
        return _WITHOUT_STACKS
    return "no module was called" if stacks == "python_calls" else "such stacks do not name modules"


def line_table(result: Attribution) -> Table:
    """Lines of user code by their device time, as line_profiler and Scalene show them."""
    lines = [line for line in result.lines if _matters(line, result)]
    rows = tuple(
        (
            source_line.cell(line.line, _LINE_LIMIT),
            Cell(text=numbers.count(line.hits)),
            Cell(text=numbers.fixed(line.host_us / 1e3)),
            Cell(text=numbers.fixed(line.device_us / 1e3)),
            Cell(text=numbers.fixed(line.backward_us / 1e3)),
            Cell(text=numbers.fixed(line.blocked_us / 1e3)),
            Cell(text=numbers.percent(line.device_ratio)),
        )
        for line in lines[:MOST_LINES]
    )
    host = "the training thread was in this code and in the libraries that it called, but in no other code of yours"
    if any(line.line.means == "call" for line in lines):
        host = "operators of the training thread that this line called; the trace does not say what else it did"
    return Table(
        title="Lines of your code",
        columns=(
            Column(title="line", term=source_line.meaning(tuple(line.line for line in lines))),
            Column(title="hits", term="operators that it called, without those in them", numeric=True),
            Column(title="host", unit="ms", term=host, numeric=True),
            Column(title="device", unit="ms", term=_DEVICE, numeric=True),
            Column(title="backward", unit="ms", term=_BACKWARD, numeric=True),
            Column(title="blocked", unit="ms", term="the host waited for the device, or for its queue", numeric=True),
            Column(title="share", term="of the device time of the window", numeric=True),
        ),
        rows=rows,
        absent=_NO_LINES[result.stacks],
    )


def _matters(line: LineTime, result: Attribution) -> bool:
    host_us = sum(one.host_us for one in result.lines)
    return (
        line.device_us > 0
        or line.host_us > SMALLEST_LINE_RATIO * host_us
        or line.blocked_us > SMALLEST_LINE_RATIO * result.blocked_us
    )


def module_table(result: Attribution) -> Table:
    """The tree of modules with the device time of each; modules with little of it are left out."""
    # an outer module has no less time than those in it, so the largest are a tree, too
    smallest_us = sorted((one.device_us for one in result.modules), reverse=True)[:MOST_MODULES][-1:]
    shown = [one for one in result.modules if one.device_us >= smallest_us[0]]
    rows = tuple(
        (
            Cell(
                text=plain.shorten("· " * (len(one.path) - 1) + plain.name(one.path[-1], _MODULE_LIMIT), _MODULE_LIMIT),
                term=plain.name(" / ".join(one.path), 400),
            ),
            Cell(text="", ratio=one.device_ratio or 0.0, key="forward"),
            Cell(text=numbers.fixed(one.device_us / 1e3)),
            Cell(text=numbers.fixed(one.backward_us / 1e3)),
            Cell(text=numbers.fixed(one.own_us / 1e3)),
            Cell(text=numbers.percent(one.device_ratio)),
        )
        for one in shown[:MOST_MODULES]
    )
    return Table(
        title="Modules",
        columns=(
            Column(
                title="module",
                term="the number tells modules of a class apart, in the order in which they first ran; "
                f"the {len(rows)} of {len(result.modules)} with most device time",
            ),
            Column(title="", bar=True),
            Column(title="device", unit="ms", term=f"with the modules in it: {_DEVICE}", numeric=True),
            Column(title="backward", unit="ms", term=_BACKWARD, numeric=True),
            Column(title="own", unit="ms", term="without the modules in it", numeric=True),
            Column(title="share", term="of the device time of the window", numeric=True),
        ),
        rows=rows,
        absent=_NO_MODULES[result.stacks],
    )


def phase_device_table(result: Attribution) -> Table:
    """The phases in which the device's work was launched."""
    rows = tuple(
        (
            Cell(text=one.phase, term=PHASE_TERMS[one.phase]),
            Cell(text="", ratio=one.device_ratio or 0.0, key=one.phase),
            Cell(text=numbers.fixed(one.device_us / 1e3)),
            Cell(text=numbers.percent(one.device_ratio)),
            Cell(text=numbers.count(one.kernels)),
        )
        for one in result.phases
    )
    return Table(
        title="Device time by phase",
        columns=(
            Column(title="phase", term="of the host when it launched the work"),
            Column(title="", bar=True),
            Column(title="device", unit="ms", term=_DEVICE, numeric=True),
            Column(title="share", term="of the device time of the window", numeric=True),
            Column(title="pieces", term="kernels, copies and memsets", numeric=True),
        ),
        rows=rows,
        absent=(
            "Phases are not known: the trace names no part of the training loop."
            if result.device_us > 0
            else "The window holds no work of a device."
        ),
    )
