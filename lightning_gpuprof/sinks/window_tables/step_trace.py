"""Tables of a window's steps on the host and on the devices."""

from typing import NamedTuple

from msgspec.structs import replace

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.phases import PHASE_TERMS, PHASES, Phase, words_of
from lightning_gpuprof.model.trace.step_trace import StepDevice, StepRow, StepTrace
from lightning_gpuprof.sinks.tables import COUNT, PERCENT, US_AS_MS, Column, Table, bar, name

MAX_STEPS = 20
NAME_CELLS = 24

_PHASE_COLUMNS = 7
"""Phases with a column of their own in the table of steps: more do not fit a terminal."""
_OTHER = "unknown phase: Python outside of named ranges, or operators after the backward"
_ABSENT = "The window has no timed events."
_INFLATED = "host time, inflated by tracing: compare the parts; take times from untraced steps"


def step_phase_table(trace: StepTrace) -> Table:
    """The mean step on the main thread: its phases, which sum to it, with their range over the steps."""
    mean = trace.mean or (trace.steps[0] if trace.steps else None)
    rows: list[_PhaseTime] = []
    if mean is not None:
        for phase in _recorded_phases(trace):
            of_steps = [row.phases_us.get(phase, 0.0) for row in trace.steps]
            mean_us = mean.phases_us.get(phase, 0.0)
            rows.append(_PhaseTime(words_of(phase), PHASE_TERMS[phase], mean_us, of_steps, phase))
        rows.append(_PhaseTime("other", _OTHER, mean.other_us, [row.other_us for row in trace.steps], "loop"))
        rows.append(_PhaseTime("sum", "", mean.total_us, [row.total_us for row in trace.steps], ""))

    def share(row: _PhaseTime) -> float | None:
        return row.mean_us / mean.total_us if mean is not None and mean.total_us else None

    steps = len(trace.steps)
    what = f"mean of {numbers.counted(steps, 'step')}" if trace.has_steps else "the window has no steps"
    return Table.of(
        f"Step time on the main thread ({what})" if rows else "Steps on the main thread",
        rows,
        Column(
            "phase", lambda row: row.phase, help="from named ranges, or else from operators", hover=lambda row: row.help
        ),
        bar(lambda row: share(row) if row.key else 0.0, lambda row: row.key),
        Column("mean", lambda row: row.mean_us, US_AS_MS, help=_INFLATED),
        Column("share", share, PERCENT, help="of the step"),
        Column("shortest", lambda row: min(row.steps_us), US_AS_MS),
        Column("longest", lambda row: max(row.steps_us), US_AS_MS),
        absent=_ABSENT,
        foot=1 if rows else 0,
    )


def _recorded_phases(trace: StepTrace) -> list[Phase]:
    return [phase for phase in PHASES if any(phase in row.phases_us for row in trace.steps)]


def step_host_table(trace: StepTrace) -> Table:
    """Each step on the main thread: phases that sum to it; first the mean."""
    largest = {phase: max(row.phases_us.get(phase, 0.0) for row in trace.steps) for phase in _recorded_phases(trace)}
    kept = sorted(largest, key=lambda phase: -largest[phase])[:_PHASE_COLUMNS]
    phases = [phase for phase in largest if phase in kept]
    return Table.of(
        "Steps on the main thread, ms",
        _shown_steps(trace),
        Column("step", lambda row: row.name, name(NAME_CELLS)),
        Column("total", lambda row: row.total_us, _MS, help=_INFLATED),
        *(_of_phase(phase) for phase in phases),
        Column(
            "other",
            lambda row: row.other_us + sum(time for phase, time in row.phases_us.items() if phase not in phases),
            _MS,
            help=_OTHER if len(phases) == len(largest) else f"all other phases, and: {_OTHER}",
        ),
        Column("launched", lambda row: round(row.kernels_launched), COUNT, help="kernels launched in the step"),
        absent=_ABSENT,
    )


def _shown_steps(trace: StepTrace) -> list[StepRow]:
    """The mean of several steps, and the longest steps in their order."""
    mean = [trace.mean] if trace.mean and len(trace.steps) > 1 else []
    by_length = sorted(range(len(trace.steps)), key=lambda at: -trace.steps[at].total_us)
    return [*mean, *(trace.steps[at] for at in sorted(by_length[:MAX_STEPS]))]


def step_device_table(trace: StepTrace) -> Table:
    """Each step on each device, from the begin to the end of the step on the host; first the mean."""
    rows = [(row, device) for row in _shown_steps(trace) for device in row.devices]
    columns: list[Column[tuple[StepRow, StepDevice]]] = [Column("step", lambda row: row[0].name, name(NAME_CELLS))]
    if any(len(row.devices) > 1 for row, _ in rows):
        columns.append(Column("GPU", lambda row: row[1].device, name(12)))
    columns += [
        Column("busy", lambda row: row[1].busy_us, US_AS_MS, help="kernels, copies or memsets on any stream"),
        Column("idle", lambda row: row[1].idle_us, US_AS_MS, help="the rest of the step"),
        Column(
            "busy share",
            lambda row: row[1].busy_us / row[0].total_us if row[0].total_us else None,
            PERCENT,
            help="of the step",
        ),
        Column("compute", lambda row: row[1].compute_us, US_AS_MS, help="kernels other than communication"),
        Column("copies", lambda row: row[1].memcpy_us, US_AS_MS, help="copies and memsets"),
    ]
    if any(device.communication_us for _, device in rows):
        columns += [
            Column(
                "communication",
                lambda row: row[1].communication_us,
                US_AS_MS,
                help="kernels of NCCL or RCCL, waiting included",
            ),
            Column(
                "exposed",
                lambda row: row[1].exposed_communication_us,
                US_AS_MS,
                help="communication not covered by computation",
            ),
        ]
    absent = _ABSENT if not trace.steps else "The window has no device activity."
    return Table.of("Steps on the GPU", rows, *columns, absent=absent)


class _PhaseTime(NamedTuple):
    """Of a phase, in the mean step and in each."""

    phase: str
    help: str
    mean_us: float
    steps_us: list[float]
    key: str


_MS = replace(US_AS_MS, unit="")


def _of_phase(phase: Phase) -> Column[StepRow]:
    return Column(words_of(phase), lambda row: row.phases_us.get(phase, 0.0), _MS, help=PHASE_TERMS[phase])
