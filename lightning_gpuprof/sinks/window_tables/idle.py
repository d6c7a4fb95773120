"""The idle time of a window's devices flows in, tables of why, when and how long flow out."""

from __future__ import annotations

from lightning_gpuprof.model.trace.idle import (
    IDLE_CAUSE_TERMS,
    DeviceIdle,
    Idle,
    IdleCause,
    IdleGap,
    StepIdle,
)
from lightning_gpuprof.sinks import numbers, plain
from lightning_gpuprof.sinks.tables import Cell, Column, Table
from lightning_gpuprof.sinks.window_tables import kernel_text, source_line

STEP_CAUSES = 4
"""Causes that have a column of their own in the table of steps."""

_NAME_CELLS = 24
_LINE_CELLS = 38
_WORK_CELLS = 27
_OPERATOR_CELLS = 20
_OTHER = "other"
_PREFIX = "ProfilerStep#"

_WORDS: dict[IdleCause, str] = {
    "host_sync": "host sync",
    "between_steps": "between steps",
    "host_work": "host work",
    "launch": "slow launches",
    "launch_latency": "launch latency",
    "back_to_back": "back to back",
}


def cause_word(cause: IdleCause) -> str:
    """The cause as people read it."""
    return _WORDS.get(cause, cause)


def cause_table(device: DeviceIdle) -> Table:
    """Why the device was idle, longest first; the causes sum to the last row."""
    longest = device.causes[0].idle_ratio if device.causes else 0.0
    rows = [
        (
            Cell(text=cause_word(row.cause), term=IDLE_CAUSE_TERMS[row.cause]),
            Cell(text="", ratio=row.idle_ratio / longest, key=row.cause),
            Cell(text=numbers.fixed(row.idle_us / 1e3)),
            Cell(text=numbers.percent(row.idle_ratio)),
            Cell(text=numbers.percent(row.window_ratio)),
            Cell(text=numbers.count(row.gaps)),
        )
        for row in device.causes
    ]
    if rows:
        rows.append(
            (
                Cell(text="all idle time", term="the window without the time in which at least one stream worked"),
                Cell(text="", ratio=0.0),
                Cell(text=numbers.fixed(device.idle_us / 1e3)),
                Cell(text=numbers.percent(1.0)),
                Cell(text=numbers.percent(device.idle_ratio)),
                Cell(text=numbers.count(device.gaps)),
            )
        )
    return Table(
        title=f"Why {_device(device)} was idle",
        columns=(
            Column(title="cause", term="each moment of idle time has one cause: the causes sum to all of it"),
            Column(title="", bar=True),
            Column(title="idle", unit="ms", term="time in which no stream of the device worked", numeric=True),
            Column(title="of idle", term="share of all idle time; the shares sum to 100 %", numeric=True),
            Column(
                title="of window",
                term=f"share of {numbers.significant(device.window_us / 1e3)} ms, from the first start to the last end "
                "of the device's work",
                numeric=True,
            ),
            Column(title="gaps", term="gaps with some time of this cause; a gap can have several", numeric=True),
        ),
        rows=tuple(rows),
        absent=f"{_device(device)} was never idle from its first work to its last.",
        foot=1 if rows else 0,
    )


def host_table(device: DeviceIdle) -> Table:
    """What the host did while it launched too slowly or was at other work."""
    host = device.host
    recorded = host.operators_us is not None
    parts = (
        ("CUDA or HIP calls", host.calls_us, "launches and other calls of the runtime and driver"),
        ("operators", host.operators_us or 0.0, "operators of torch, outside of such calls"),
        (
            "Python and others" if recorded else "anything else",
            host.elsewhere_us,
            f"outside of {'both' if recorded else 'such calls; operators were not recorded'}: Python, or work that "
            "leaves no record",
        ),
    )
    total_us = sum(spent_us for _, spent_us, _ in parts)
    rows = tuple(
        (
            Cell(text=name, term=term),
            Cell(text="", ratio=spent_us / total_us, key="launch"),
            Cell(text=numbers.fixed(spent_us / 1e3)),
            Cell(text=numbers.percent(spent_us / total_us)),
        )
        for name, spent_us, term in parts
        if total_us > 0 and (recorded or name != "operators")
    )
    return Table(
        title=f"What the host did while {_device(device)} waited for a launch",
        columns=(
            Column(title="host in"),
            Column(title="", bar=True),
            Column(title="idle", unit="ms", term="sums to host work and slow launches; profiling adds", numeric=True),
            Column(title="share", numeric=True),
        ),
        rows=rows,
        absent=f"{_device(device)} waited neither for slow launches nor for other work of the host.",
    )


def step_table(device: DeviceIdle, limit: int = 20) -> Table:
    """Busy share of each step, and its idle time by the device's largest causes.

    Args:
        device: The device.
        limit: Most rows.
    """
    named = _largest_of_steps(device.steps)
    shown = device.steps[:limit]
    first = f", the first {len(shown)} of {numbers.count(len(device.steps))}" if len(shown) < len(device.steps) else ""
    table = Table(
        title=f"Idle time in each step, inside the window of {_device(device)}{first}",
        columns=(
            Column(title="step", term="ProfilerStep range, by the host's time: the device may still run earlier work"),
            Column(title="length", unit="ms", term="on the host; inflated by profiling", numeric=True),
            Column(title="busy", term="share of the step in which at least one stream worked", numeric=True),
            Column(title="idle", unit="ms", term="the rest; the columns behind it sum to it", numeric=True),
            *(Column(title=cause_word(cause), term=IDLE_CAUSE_TERMS[cause], numeric=True) for cause in named),
            Column(title=_OTHER, term="all other causes", numeric=True),
        ),
        rows=tuple(
            (
                Cell(text=plain.name(step.step.removeprefix(_PREFIX), 12)),
                Cell(text=numbers.fixed(step.step_us / 1e3)),
                Cell(text=numbers.percent(step.busy_ratio)),
                Cell(text=numbers.fixed(step.idle_us / 1e3)),
                *(Cell(text=numbers.fixed(step.causes_us.get(cause, 0.0) / 1e3)) for cause in named),
                Cell(text=numbers.fixed(sum(us for c, us in step.causes_us.items() if c not in named) / 1e3)),
            )
            for step in shown
        ),
        absent="The trace holds no steps (ProfilerStep ranges), so idle time is not told by step.",
    )
    all_named = all(cause in named for step in device.steps for cause in step.causes_us)
    return table.without(_OTHER) if all_named else table


def longest_table(device: DeviceIdle, limit: int = 10) -> Table:
    """The longest gaps, with what the host did and in which line.

    Args:
        device: The device.
        limit: Most rows.
    """
    shown = device.longest[:limit]
    return Table(
        title=f"Longest gaps of {_device(device)}",
        columns=(
            _AT,
            _LENGTH,
            Column(title="cause", term="the cause with most of the gap's time"),
            Column(title="step", term="in which the host was at the middle of its part of the gap"),
            Column(
                title="host in", term="innermost operator, range, call or function that held the host for most of it"
            ),
            Column(title="line", term=source_line.meaning(tuple(gap.line for gap in shown if gap.line))),
        ),
        rows=tuple(
            (
                *_when(gap),
                Cell(text=cause_word(gap.cause), term=_mixture(gap)),
                Cell(text=plain.name(gap.step.removeprefix(_PREFIX), 12) if gap.step else numbers.ABSENT),
                Cell(text=_host(gap), term=_held(gap)),
                source_line.cell(gap.line, _LINE_CELLS) if gap.line else Cell(text=numbers.ABSENT),
            )
            for gap in shown
        ),
        absent=f"{_device(device)} was never idle from its first work to its last.",
    )


def neighbour_table(device: DeviceIdle, limit: int = 10) -> Table:
    """The longest gaps, with the work before and after and who launched it.

    Args:
        device: The device.
        limit: Most rows.
    """
    return Table(
        title=f"Work around the longest gaps of {_device(device)}",
        columns=(
            _AT,
            _LENGTH,
            Column(title="work before"),
            Column(title="work after"),
            Column(title="operator", term="that launched the work after the gap"),
            Column(title="thread", term="that launched it"),
        ),
        rows=tuple(
            (
                *_when(gap),
                Cell(text=kernel_text.work(gap.before, _WORK_CELLS)),
                Cell(text=kernel_text.work(gap.after, _WORK_CELLS)),
                Cell(text=_name(gap.operator, _OPERATOR_CELLS)),
                Cell(text=_name(gap.launch_thread and gap.launch_thread.rpartition("/")[2], 12)),
            )
            for gap in device.longest[:limit]
        ),
        absent=f"{_device(device)} was never idle from its first work to its last.",
    )


def unseen_sentence(idle: Idle) -> str:
    """Which causes the trace could not show, empty if it could show all."""
    if not idle.unseen:
        return ""
    words = ", ".join(cause_word(cause) for cause in idle.unseen)
    return f"The trace has no record of: {words}. If there was such time, it counts as host work or slow launches."


_AT = Column(title="at", unit="ms", term="from the start of the device's first work", numeric=True)
_LENGTH = Column(title="length", unit="ms", numeric=True)


def _when(gap: IdleGap) -> tuple[Cell, Cell]:
    return Cell(text=numbers.fixed(gap.start_us / 1e3)), Cell(text=numbers.fixed(gap.duration_us / 1e3))


def _mixture(gap: IdleGap) -> str:
    """``data 56.8 ms, slow launches 0.5 ms``."""
    largest = sorted(gap.causes_us.items(), key=lambda item: -item[1])
    return ", ".join(f"{cause_word(cause)} {numbers.fixed(us / 1e3)} ms" for cause, us in largest)


def _host(gap: IdleGap) -> str:
    return kernel_text.host(gap.host, _NAME_CELLS) if gap.host else gap.phase or numbers.ABSENT


def _held(gap: IdleGap) -> str:
    return f"{numbers.percent(gap.host_ratio)} of the time that the host was late" if gap.host else ""


def _largest_of_steps(steps: tuple[StepIdle, ...]) -> list[IdleCause]:
    total_us: dict[IdleCause, float] = {}
    for step in steps:
        for cause, us in step.causes_us.items():
            total_us[cause] = total_us.get(cause, 0.0) + us
    return sorted(total_us, key=lambda cause: -total_us[cause])[:STEP_CAUSES]


def _name(text: str | None, limit: int) -> str:
    return plain.name(text, limit) if text else numbers.ABSENT


def _device(device: DeviceIdle) -> str:
    shown = plain.name(device.device, 40)
    return f"GPU {shown}" if shown.isdecimal() else shown
