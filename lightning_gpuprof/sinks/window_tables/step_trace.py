"""The step trace of a window flows in, tables of its steps on the host and on the devices flow out."""

from __future__ import annotations

from lightning_gpuprof.model.phases import PHASE_TERMS, PHASES, Phase
from lightning_gpuprof.model.trace.step_trace import StepDevice, StepRow, StepTrace
from lightning_gpuprof.sinks import numbers, plain
from lightning_gpuprof.sinks.tables import Cell, Column, Table

MOST_STEPS = 20
NAME_CELLS = 24

_PHASE_COLUMNS = 7
"""Phases with a column of their own in the table of steps: more do not fit a terminal."""
_OTHER = "nothing tells the phase: Python code outside of named ranges, or operators after the backward"
_ABSENT = "The window holds nothing with a time."
_INFLATED = "host time, inflated by profiling: compare the parts, take times from steps that are not traced"


def step_phase_table(trace: StepTrace) -> Table:
    """The mean step on the training thread: its phases, which sum to it, with their range over the steps."""
    mean = trace.mean or (trace.steps[0] if trace.steps else None)
    rows: list[tuple[Cell, ...]] = []
    if mean is not None:
        for phase in _told(trace):
            of_steps = [row.phases_us.get(phase, 0.0) for row in trace.steps]
            rows.append(_phase_cells(phase, PHASE_TERMS[phase], mean.phases_us.get(phase, 0.0), mean, of_steps, phase))
        rows.append(_phase_cells("other", _OTHER, mean.other_us, mean, [row.other_us for row in trace.steps], "loop"))
        rows.append(_phase_cells("sum", "", mean.total_us, mean, [row.total_us for row in trace.steps], ""))
    steps = len(trace.steps)
    what = f"mean of {steps} step{'s' if steps > 1 else ''}" if trace.has_steps else "the window has no steps"
    return Table(
        title=f"Where a step's time went on the training thread ({what})" if rows else "Steps on the training thread",
        columns=(
            Column(title="phase", term="disjoint; where nothing names it, it is told by the operators that run"),
            Column(title="", bar=True),
            Column(title="mean", unit="ms", term=_INFLATED, numeric=True),
            Column(title="share", term="of the step", numeric=True),
            Column(title="shortest", unit="ms", term="of all steps", numeric=True),
            Column(title="longest", unit="ms", term="of all steps", numeric=True),
        ),
        rows=tuple(rows),
        absent=_ABSENT,
        foot=1 if rows else 0,
    )


def _told(trace: StepTrace) -> list[Phase]:
    told = {phase for row in trace.steps for phase in row.phases_us}
    return [phase for phase in PHASES if phase in told]


def _phase_cells(
    name: str, term: str, time_us: float, mean: StepRow, of_steps: list[float], key: str
) -> tuple[Cell, ...]:
    share = time_us / mean.total_us if mean.total_us else None
    return (
        Cell(text=name, term=term),
        Cell(text="", ratio=(share or 0.0) if key else 0.0, key=key),
        Cell(text=numbers.fixed(time_us / 1000)),
        Cell(text=numbers.percent(share)),
        Cell(text=numbers.fixed(min(of_steps) / 1000)),
        Cell(text=numbers.fixed(max(of_steps) / 1000)),
    )


def step_host_table(trace: StepTrace, limit: int = MOST_STEPS) -> Table:
    """Each step on the training thread: phases that sum to it; first the mean.

    Args:
        trace: The steps.
        limit: Most steps, the longest; they stay in their order.
    """
    largest = {phase: max(row.phases_us.get(phase, 0.0) for row in trace.steps) for phase in _told(trace)}
    kept = sorted(largest, key=lambda phase: -largest[phase])[:_PHASE_COLUMNS]
    phases = [phase for phase in largest if phase in kept]
    shown = _shown(trace, limit)
    return Table(
        title="Steps on the training thread, ms",
        columns=(
            Column(title="step"),
            Column(title="total", term=_INFLATED, numeric=True),
            *(Column(title=phase, term=PHASE_TERMS[phase], numeric=True) for phase in phases),
            Column(
                title="other",
                term=_OTHER if len(phases) == len(largest) else f"all other phases, and: {_OTHER}",
                numeric=True,
            ),
            Column(title="launched", term="kernels whose launch began in the step", numeric=True),
        ),
        rows=tuple(_host_cells(row, phases) for row in shown),
        absent=_ABSENT,
    )


def _shown(trace: StepTrace, limit: int) -> list[StepRow]:
    """The mean of several steps, and the longest steps in their order."""
    mean = [trace.mean] if trace.mean and len(trace.steps) > 1 else []
    by_length = sorted(range(len(trace.steps)), key=lambda at: -trace.steps[at].total_us)
    return [*mean, *(trace.steps[at] for at in sorted(by_length[:limit]))]


def _host_cells(row: StepRow, phases: list[Phase]) -> tuple[Cell, ...]:
    other_us = row.other_us + sum(time for phase, time in row.phases_us.items() if phase not in phases)
    return (
        Cell(text=plain.name(row.name, NAME_CELLS)),
        Cell(text=numbers.fixed(row.total_us / 1000)),
        *(Cell(text=numbers.fixed(row.phases_us.get(phase, 0.0) / 1000)) for phase in phases),
        Cell(text=numbers.fixed(other_us / 1000)),
        Cell(text=numbers.count(round(row.kernels_launched))),
    )


def step_device_table(trace: StepTrace, limit: int = MOST_STEPS) -> Table:
    """Each step on each device, from the begin to the end of the step on the host; first the mean.

    Args:
        trace: The steps.
        limit: Most steps, the longest; they stay in their order.
    """
    shown = _shown(trace, limit)
    several = any(len(row.devices) > 1 for row in shown)
    communicates = any(device.communication_us for row in shown for device in row.devices)
    columns = [
        Column(title="step"),
        *([Column(title="GPU")] if several else []),
        Column(title="busy", unit="ms", term="kernels, copies or memsets, on any stream", numeric=True),
        Column(title="idle", unit="ms", term="nothing of it; busy and idle are the step", numeric=True),
        Column(title="busy share", term="of the step", numeric=True),
        Column(title="compute", unit="ms", term="kernels that do not communicate", numeric=True),
        Column(title="copies", unit="ms", term="copies and memsets", numeric=True),
    ]
    if communicates:
        columns += [
            Column(title="communication", unit="ms", term="kernels of NCCL or RCCL, with their waits", numeric=True),
            Column(title="exposed", unit="ms", term="communication while nothing computes", numeric=True),
        ]
    rows = tuple(_device_cells(row, device, several, communicates) for row in shown for device in row.devices)
    absent = _ABSENT if not trace.steps else "The window holds no device work."
    return Table(title="Steps on the GPU", columns=tuple(columns), rows=rows, absent=absent)


def _device_cells(row: StepRow, device: StepDevice, several: bool, communicates: bool) -> tuple[Cell, ...]:
    times = [device.compute_us, device.memcpy_us]
    if communicates:
        times += [device.communication_us, device.exposed_communication_us]
    return (
        Cell(text=plain.name(row.name, NAME_CELLS)),
        *([Cell(text=plain.name(device.device, 12))] if several else []),
        Cell(text=numbers.fixed(device.busy_us / 1000)),
        Cell(text=numbers.fixed(device.idle_us / 1000)),
        Cell(text=numbers.percent(device.busy_us / row.total_us if row.total_us else None)),
        *(Cell(text=numbers.fixed(time / 1000)) for time in times),
    )
