"""The report's ``memory``: who holds what, when, and what grows."""

import itertools
from collections.abc import Sequence

import msgspec
import numpy as np

from lightning_gpuprof.analyze.journal_columns import Ints, Journal
from lightning_gpuprof.analyze.statistics import Floats
from lightning_gpuprof.analyze.trend import trend
from lightning_gpuprof.model.journal import Sample
from lightning_gpuprof.model.memory import (
    HOLDERS,
    MEMORY_PHASES,
    DeviceMemory,
    Growth,
    Held,
    Memory,
    MemoryPhase,
    PhaseMemory,
)

SOURCE = "memory"
FIRST_STEPS = 3
"""Steps that are warm-up in any case: the optimizer's states are made in them."""

MIN_ACROSS_EPOCHS = 3
"""Readings whose position in the epoch before was read, too, from which growth across epochs is known. Heuristic."""


def memory(journal: Journal, steady_from: int | None, process_rss_peak_bytes: float | None) -> Memory:
    """Summarise memory.

    Args:
        journal: One rank's journal.
        steady_from: First steady batch, or None.
        process_rss_peak_bytes: Of the host's samples.

    Returns:
        In bytes; one entry per device whose allocator was read, none on a CPU.
    """
    held = _held(journal.samples)
    samples = [s for s in journal.samples if s.source == SOURCE and not s.subject.startswith("held ")]
    by_device: dict[str, list[_Reading]] = {}
    for sample in sorted(samples, key=lambda s: s.t_ns):
        device, _, phase = sample.subject.rpartition(" ")
        known = next((p for p in MEMORY_PHASES if p == phase), None)
        if known is not None and device:
            by_device.setdefault(device, []).append(_Reading(sample, known))
    devices, growth = [], []
    for device, readings in by_device.items():
        begin = _steady_begin(readings, steady_from)
        later = [r for r in readings if r.batch >= begin]
        total = journal.conditions.get(f"memory.{device}.total_bytes")
        devices.append(_device(device, readings, later, held, total if isinstance(total, int) else None))
        steps, values, points = _points_over_steps(later, "allocated_bytes")
        epochs, across = _across_epochs(journal, steps, values, points)
        growth += [
            msgspec.structs.replace(row, epochs=epochs, bytes_per_step_across_epochs=across)
            for row in _grown(f"{device} allocated", steps, values, points)
        ]
    growth += _host_growth(journal, steady_from)
    return Memory(
        process_rss_peak_bytes=process_rss_peak_bytes,
        devices=tuple(devices),
        held=held,
        growth=tuple(growth),
        histories=tuple(journal.memory_histories),
        out_of_memory=journal.out_of_memory,
    )


class _Reading(msgspec.Struct, frozen=True):
    sample: Sample
    phase: MemoryPhase

    @property
    def batch(self) -> float:
        return self.get("batch_index") or 0.0

    def get(self, name: str) -> float | None:
        return self.sample.values.get(name)


def _held(samples: Sequence[Sample]) -> tuple[Held, ...]:
    rows = []
    for sample in samples:
        if sample.source == SOURCE and sample.subject.startswith("held "):
            _, device, dtype = sample.subject.split(" ", 2)
            found = {name: int(sample.values.get(name) or 0) for name in (f"{holder}_bytes" for holder in HOLDERS)}
            row = Held(device=device, dtype=dtype, **found)
            known = sample.values.get("gradients_bytes") is not None
            rows.append(row if known else msgspec.structs.replace(row, gradients_bytes=None))
    return tuple(sorted(rows, key=lambda row: -row.total_bytes))


def _steady_begin(readings: Sequence[_Reading], steady_from: int | None) -> float:
    first = min(r.batch for r in readings) + FIRST_STEPS
    return first if steady_from is None else max(first, float(steady_from))


def _device(
    name: str, readings: Sequence[_Reading], later: Sequence[_Reading], held: Sequence[Held], total: int | None
) -> DeviceMemory:
    allocated_peak = max(r.get("allocated_peak_bytes") or 0.0 for r in readings)
    reserved_peak = max(_values(readings, "reserved_peak_bytes"), default=None)
    highest = max(readings, key=lambda r: r.get("allocated_bytes") or 0.0)
    split, reserved = highest.get("inactive_split_bytes"), highest.get("reserved_bytes")
    steps = _steps_between(later)
    phases = _phases(readings, later or readings)
    live = _gradients_live(later)
    activations = _activations(phases, held, live) if later else None
    return DeviceMemory(
        name=name,
        total_bytes=total,
        samples=len(readings),
        allocated_peak_bytes=allocated_peak,
        reserved_peak_bytes=reserved_peak,
        peak_ratio=reserved_peak / total if reserved_peak is not None and total else None,
        headroom_bytes=total - reserved_peak if reserved_peak is not None and total else None,
        inactive_split_at_peak_bytes=split,
        fragmentation_ratio=split / reserved if split is not None and reserved else None,
        unused_ratio=(reserved_peak - allocated_peak) / reserved_peak if reserved_peak else None,
        retries_count=_counter_rise(readings, "retries_count"),
        retries_steady_count=_counter_rise(later, "retries_count"),
        ooms_count=_counter_rise(readings, "ooms_count"),
        device_allocs_steady_count=_counter_rise(later, "device_allocs_count"),
        device_frees_steady_count=_counter_rise(later, "device_frees_count"),
        steady_steps=steps,
        allocations_per_step=_per_step(later, "allocations_total_count"),
        activations_bytes=activations,
        activations_ratio=activations / allocated_peak if activations is not None and allocated_peak else None,
        gradients_live_in_forward=live,
        peak_phase=_peak_phase(readings, allocated_peak),
        phases=phases,
    )


def _phases(readings: Sequence[_Reading], later: Sequence[_Reading]) -> tuple[PhaseMemory, ...]:
    rises = _rises(readings)
    ends: dict[MemoryPhase, list[_Reading]] = {}
    for reading in later:
        ends.setdefault(reading.phase, []).append(reading)
    present = [phase for phase in MEMORY_PHASES if phase in ends]
    medians = {phase: _median(ends[phase], "allocated_bytes") or 0.0 for phase in present}
    rows = []
    for place, phase in enumerate(present):
        rows.append(
            PhaseMemory(
                phase=phase,
                samples=len(ends[phase]),
                allocated_bytes=medians[phase],
                reserved_bytes=_median(ends[phase], "reserved_bytes"),
                active_bytes=_median(ends[phase], "active_bytes"),
                inactive_split_bytes=_median(ends[phase], "inactive_split_bytes"),
                growth_bytes=medians[phase] - medians[present[place - 1]] if len(present) > 1 else None,
                peak_rise_bytes=rises.get(phase),
            )
        )
    return tuple(rows)


def _neighbours(readings: Sequence[_Reading]) -> list[tuple[_Reading, _Reading]]:
    """Readings between which lies one phase of one step and nothing else."""
    order = {phase: place for place, phase in enumerate(MEMORY_PHASES)}
    found = []
    for before, reading in itertools.pairwise(readings):
        same = before.batch == reading.batch
        if reading.phase == "step":  # it is read when the next step begins, in the name of that step
            if before.phase != "step" and before.batch == reading.batch - 1:
                found.append((before, reading))
        elif same and (before.phase == "step" or order[before.phase] < order[reading.phase]):
            found.append((before, reading))
    return found


def _rises(readings: Sequence[_Reading]) -> dict[MemoryPhase, float]:
    rises: dict[MemoryPhase, float] = {}
    for before, reading in _neighbours(readings):
        a, b = before.get("allocated_peak_bytes"), reading.get("allocated_peak_bytes")
        if a is not None and b is not None:
            rises[reading.phase] = rises.get(reading.phase, 0.0) + max(0.0, b - a)
    return rises


def _peak_phase(readings: Sequence[_Reading], peak: float) -> MemoryPhase | None:
    for before, reading in _neighbours(readings):
        a, b = before.get("allocated_peak_bytes"), reading.get("allocated_peak_bytes")
        if a is not None and b is not None and a < b == peak:
            return reading.phase
    return None


def _gradients_live(later: Sequence[_Reading]) -> bool | None:
    seen = [v for r in later if r.phase == "forward" and (v := r.get("gradients_live_count")) is not None]
    return sum(seen) > len(seen) / 2 if seen else None


def _activations(phases: Sequence[PhaseMemory], held: Sequence[Held], live: bool | None) -> float | None:
    """What is allocated at the end of forward beside what model and optimizers hold on the device."""
    forward = next((row.allocated_bytes for row in phases if row.phase == "forward"), None)
    mine = [row for row in held if row.device.startswith(("cuda", "xpu", "hip"))]
    if forward is None or not mine:
        return None
    known = [row.gradients_bytes for row in mine if row.gradients_bytes is not None]
    gradients = sum(known)
    stay = sum(row.total_bytes for row in mine) - gradients
    if (live is None and gradients) or (live and not known):
        return None
    return max(0.0, forward - stay - (gradients if live else 0))


def _points_over_steps(later: Sequence[_Reading], name: str) -> tuple[Floats, Floats, Ints]:
    points = [(r.batch, v, MEMORY_PHASES.index(r.phase)) for r in later if (v := r.get(name)) is not None]
    table = np.array(points, np.float64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2].astype(np.int64)


def _across_epochs(journal: Journal, batches: Floats, values: Floats, points: Ints) -> tuple[int | None, float | None]:
    """In how many epochs values were read, and the median slope from each epoch to the same position in the next.

    Each value is compared with the epoch before at its position, between the two readings there that are next to it.
    """
    steps = journal.steps
    if not len(steps) or not len(batches):
        return None, None
    place = np.clip(np.searchsorted(steps.batch, batches), 0, len(steps) - 1)
    _, first, of_step = np.unique(steps.epoch, return_index=True, return_inverse=True)
    begin, epoch = steps.batch[first].astype(np.float64), of_step[place]
    slopes: list[float] = []
    for point in np.unique(points):
        mine = np.flatnonzero(points == point)
        for one, two in itertools.pairwise(np.split(mine, np.flatnonzero(np.diff(epoch[mine])) + 1)):
            begin_one, begin_two = begin[epoch[one[0]]], begin[epoch[two[0]]]
            before, now = batches[one] - begin_one, batches[two] - begin_two
            inside = (now >= before[0]) & (now <= before[-1])
            risen = values[two][inside] - np.interp(now[inside], before, values[one])
            slopes += (risen / (begin_two - begin_one)).tolist()
    return len(np.unique(epoch)), float(np.median(slopes)) if len(slopes) >= MIN_ACROSS_EPOCHS else None


def _host_growth(journal: Journal, steady_from: int | None) -> list[Growth]:
    steps = journal.steps
    if not len(steps):
        return []
    begin = steps.batch[0] + FIRST_STEPS if steady_from is None else steady_from
    found: list[Growth] = []
    for subject in ("process", "workers"):
        points = [
            (s.t_ns, v)
            for s in journal.samples
            if s.source == "host" and s.subject == subject and s.t_ns <= steps.end_ns
            if (v := s.values.get("rss_bytes")) is not None
        ]
        table = np.array(points, np.float64).reshape(-1, 2)
        place = np.searchsorted(steps.start_ns, table[:, 0], side="right") - 1
        batch = np.where(place < 0, -1, steps.batch[np.maximum(place, 0)])
        chosen = batch >= begin
        if not table[chosen, 1].any():  # no workers
            continue
        found += _grown(f"{subject} rss", batch[chosen].astype(np.float64), table[chosen, 1])
    return found


def _grown(what: str, steps: Floats, values: Floats, points: Ints | None = None) -> list[Growth]:
    """The growth of a quantity, or nothing if there are too few samples."""
    found = trend(steps, values, points)
    if found is None:
        return []
    level = float(np.median(values))
    half = found.slope * float(steps[-1] - steps[0]) / 2
    return [
        Growth(
            what=what,
            samples=len(values),
            steps=int(steps[-1] - steps[0]),
            first_bytes=max(0.0, level - half),
            last_bytes=max(0.0, level + half),
            bytes_per_step=found.slope,
            p_value=found.p_value,
        )
    ]


def _values(readings: Sequence[_Reading], name: str) -> list[float]:
    return [v for r in readings if (v := r.get(name)) is not None]


def _median(readings: Sequence[_Reading], name: str) -> float | None:
    values = _values(readings, name)
    return float(np.median(values)) if values else None


def _counter_rise(readings: Sequence[_Reading], name: str) -> int | None:
    """By how much a counter rose between the first and the last reading."""
    values = _values(readings, name)
    return int(values[-1] - values[0]) if len(values) > 1 else None


def _per_step(readings: Sequence[_Reading], name: str) -> float | None:
    """A counter's rise over the steps between the first and the last reading at the end of the same phase."""
    same = [r for r in readings if r.phase == readings[0].phase]
    rise, steps = _counter_rise(same, name), _steps_between(same)
    return rise / steps if rise is not None and steps else None


def _steps_between(readings: Sequence[_Reading]) -> int | None:
    return int(readings[-1].batch - readings[0].batch) if len(readings) > 1 else None
