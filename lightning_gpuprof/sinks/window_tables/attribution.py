"""Tables of device time by line, module and phase."""

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.trace.attribution import (
    Attributed,
    Attribution,
    Level,
    LineTime,
    ModuleTime,
    Reason,
    Stacks,
)
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import (
    COUNT,
    NAME,
    PERCENT,
    SENTENCE,
    SIZE,
    US_AS_MS,
    Column,
    Table,
    bar,
    phase_column,
)
from lightning_gpuprof.sinks.window_tables import short_names

MAX_LINES = 20
MAX_MODULES = 20

SMALLEST_LINE_RATIO = 0.001
"""Lines without device time and with less of the host's or of the blocked time have no row."""

_LINE_LIMIT = 60
_MODULE_LIMIT = 60

_DEVICE = "durations of kernels and copies, added up: overlapping ones count twice"
_OF_DEVICE = "share of the window's device time"
_BACKWARD = "the part launched by this code's backward pass"

_REASONS: dict[Reason, str] = {
    "launch_unknown": "launched before the window",
    "not_recorded": "not recorded",
    "forward_unknown": "gradient accumulation or reduction, or a forward pass before the window",
    "outside": "outside of any",
}

_WITHOUT_STACKS = "the window was recorded without stacks (with_stack=True)"
_WITHOUT_MODULES = "the window names none (TraceConfig(modules=100))"

_NO_LINES: dict[Stacks | None, str] = {
    None: f"Lines of code are not known: {_WITHOUT_STACKS}.",
    "operators": "The window's stacks have no code of yours.",
    "python_calls": "The window's stacks have no code of yours.",
}

_NO_MODULES: dict[Stacks | None, str] = {
    None: f"Modules are not known: {_WITHOUT_MODULES}.",
    "operators": "Modules are not known: stacks recorded by torch until 2022 do not name them.",
    "python_calls": "No module was called in the window.",
}

_LEVELS: dict[Level, str] = {"operator": "operator", "module": "module", "line": "line of your code", "phase": "phase"}


def attributed_table(result: Attribution) -> Table:
    """How much of the device time is attributed on each level, and why the rest is not."""

    def why(level: Attributed) -> str:
        return "; ".join(
            f"{numbers.exact_percent(one.device_us / result.device_us)} "
            + (_not_recorded(level.level, result.stacks) if one.reason == "not_recorded" else _REASONS[one.reason])
            for one in level.rest
        )

    return Table.of(
        "Attributed device time",
        result.levels if result.device_us > 0 else (),
        Column("attributed to", lambda level: _LEVELS[level.level]),
        bar(lambda level: level.ratio, "forward"),
        Column("share", lambda level: level.ratio, PERCENT, help=_OF_DEVICE),
        Column("not attributed", why, SENTENCE),
        absent="The window has no device activity.",
    )


def _not_recorded(level: Level, stacks: Stacks | None) -> str:
    if level == "operator":
        return "the trace has no operators"
    if level == "phase":
        return "the trace names no part of the training loop"
    if stacks is None:
        return _WITHOUT_MODULES if level == "module" else _WITHOUT_STACKS
    return "no module was called" if stacks == "python_calls" else "such stacks do not name modules"


def line_table(result: Attribution, limit: int = MAX_LINES) -> Table:
    """Lines of user code by their device time, as line_profiler and Scalene show them.

    Args:
        result: Device time by code.
        limit: Most rows.

    Returns:
        Most device time first; no rows without stacks.
    """
    lines = [line for line in result.lines if _matters(line, result)]
    host = "time in which the main thread was in this code or in libraries that it called"
    what = short_names.line_or_function(*(line.line for line in lines))
    if result.stacks == "operators":
        host = "operators that this line called on the main thread; the trace does not show what else it did"
    copied: tuple[Column[LineTime], ...] = ()
    if any(line.copied_bytes for line in lines):
        copied = (Column("copied", lambda line: line.copied_bytes, SIZE, help="to, from and between devices"),)
    return Table.of(
        f"{what.capitalize()}s of your code",
        lines[:limit],
        Column(
            what,
            lambda line: short_names.code_line(line.line, _LINE_LIMIT),
            help=short_names.line_meaning(tuple(line.line for line in lines)),
            hover=lambda line: short_names.line_hover(line.line, what),
        ),
        Column("hits", lambda line: line.hits, COUNT, help=f"operators called by this {what}, nested ones excluded"),
        Column("host", lambda line: line.host_us, US_AS_MS, help=host),
        Column("device", lambda line: line.device_us, US_AS_MS, help=_DEVICE),
        Column("backward", lambda line: line.backward_us, US_AS_MS, help=_BACKWARD),
        Column(
            "blocked",
            lambda line: line.blocked_us,
            US_AS_MS,
            help="the host waited for the device or for room in its queue",
        ),
        *copied,
        Column("share", lambda line: line.device_ratio, PERCENT, help=_OF_DEVICE),
        absent=_NO_LINES[result.stacks],
    )


def _matters(line: LineTime, result: Attribution) -> bool:
    host_us = sum(one.host_us for one in result.lines)
    return (
        line.device_us > 0
        or line.host_us > SMALLEST_LINE_RATIO * host_us
        or line.blocked_us > SMALLEST_LINE_RATIO * result.blocked_us
    )


def module_table(result: Attribution, limit: int = MAX_MODULES) -> Table:
    """The tree of modules with the time of each.

    Args:
        result: Device time by code.
        limit: Most rows.

    Returns:
        In the order of the tree; modules with little time are left out.
    """
    on_device = result.device_us > 0
    # an outer module mostly has no less time than those in it, so the largest are a tree, too
    smallest = sorted((_module_us(one, on_device) for one in result.modules), reverse=True)[:limit][-1:]
    shown = [one for one in result.modules if _module_us(one, on_device) >= smallest[0]][:limit]
    counted = any(one.parameters is not None for one in shown)
    typed = any(one.type for one in shown)
    by_class = result.stacks is not None and not typed  # else the names are those of our own ranges
    name: Column[ModuleTime] = Column(
        "module",
        lambda one: plain.shorten("· " * (len(one.path) - 1) + plain.name(one.path[-1], _MODULE_LIMIT), _MODULE_LIMIT),
        help=f"the {len(shown)} of {len(result.modules)} with most time"
        + ("; modules of one class are numbered in the order of their first call" if by_class else ""),
        hover=lambda one: plain.name(" / ".join(one.path), 400),
    )
    host = "time of the main thread in its calls, nested modules included"
    columns: tuple[Column[ModuleTime], ...] = (
        bar(lambda one: one.host_ratio, "forward"),
        Column("forward", lambda one: one.host_us, US_AS_MS, help=host),
        Column("backward", lambda one: one.backward_host_us, US_AS_MS, help="in the backward of its operators"),
        Column("self", lambda one: one.own_host_us, US_AS_MS, help="forward, nested modules excluded"),
        Column("share", lambda one: one.host_ratio, PERCENT, help="forward and backward, of the steps"),
    )
    if on_device:
        columns = (
            bar(lambda one: one.device_ratio, "forward"),
            Column("device", lambda one: one.device_us, US_AS_MS, help=f"with nested modules: {_DEVICE}"),
            Column("backward", lambda one: one.backward_us, US_AS_MS, help=_BACKWARD),
            Column("self", lambda one: one.own_us, US_AS_MS, help="nested modules excluded"),
            Column("share", lambda one: one.device_ratio, PERCENT, help=_OF_DEVICE),
            Column("host", lambda one: one.host_us, US_AS_MS, help=host),
        )
    counts: tuple[Column[ModuleTime], ...] = (Column("calls", lambda one: one.calls, COUNT, help="in the window"),)
    if counted:
        counts += (Column("parameters", lambda one: one.parameters, COUNT, help="with nested modules, each once"),)
    names: tuple[Column[ModuleTime], ...] = (name,)
    if typed:
        names += (Column("type", lambda one: plain.name(one.type, _MODULE_LIMIT), NAME, help="class"),)
    return Table.of("Modules", shown, *names, *columns, *counts, absent=_NO_MODULES[result.stacks])


def _module_us(module: ModuleTime, on_device: bool) -> float:
    return module.device_us if on_device else module.host_us + module.backward_host_us


def phase_device_table(result: Attribution) -> Table:
    """The phases in which the device's work was launched."""
    return Table.of(
        "Device time by phase",
        result.phases,
        phase_column(lambda one: one.phase, "phase of the host at launch"),
        bar(lambda one: one.device_ratio, lambda one: one.phase),
        Column("device", lambda one: one.device_us, US_AS_MS, help=_DEVICE),
        Column("share", lambda one: one.device_ratio, PERCENT, help=_OF_DEVICE),
        Column("launched", lambda one: one.kernels, COUNT, help="kernels, copies and memsets"),
        absent="Phases are not known: the trace names no part of the training loop."
        if result.device_us > 0
        else "The window has no device activity.",
    )
