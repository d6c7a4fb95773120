"""Where all of the wall time went: its parts, the phases of the steps, and each callback's hooks."""

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from lightning_gpuprof.analyze import statistics
from lightning_gpuprof.analyze.callback_names import callback_names
from lightning_gpuprof.analyze.journal_columns import Ints, Journal
from lightning_gpuprof.analyze.statistics import Floats
from lightning_gpuprof.analyze.steady import Mask
from lightning_gpuprof.model.journal import Slot
from lightning_gpuprof.model.phases import PHASES, STEP_PARTS, Part, Phase, SegmentKind, Stage, parts_of
from lightning_gpuprof.model.report import CallbackRow, PhaseRow, Wall

_PART_OF_SEGMENT: dict[SegmentKind, Part] = {
    "setup": "setup",
    "epoch_gap": "epoch_gap",
    "teardown": "teardown",
    "unmeasured": "unexplained",
}


def part(slot: Slot, kind: SegmentKind, stage: Stage) -> Part:
    """The part of the wall time that a slot's time in a segment or step belongs to.

    Args:
        slot: Names phase, hook and region of the time.
        kind: What the segment is; ``step`` for a step's time.
        stage: The stage that was measured.

    Returns:
        One of ``PARTS``; ``unexplained`` for an unmeasured segment, whatever its slot.
    """
    if kind == "unmeasured":
        return "unexplained"
    if slot.phase == "checkpoint":
        return "checkpoint"
    if slot.region == "sanity":
        return "sanity"
    if slot.region == "validation":
        return "validation"
    return STEP_PARTS[stage] if kind == "step" else _PART_OF_SEGMENT[kind]


def wall(journal: Journal) -> Wall:
    """Wall time of the stage in parts; what no record accounts for is ``unexplained``."""
    stage = journal.header.stage
    ns: dict[Part, int] = defaultdict(int, dict.fromkeys(parts_of(stage), 0))
    for slot, kind, spent in journal.time_of_slots:
        ns[part(slot, kind, stage)] += spent
    total = journal.end_ns - journal.header.start_ns
    ns["unexplained"] += total - sum(ns.values())
    return Wall(total_s=total / 1e9, parts={name: spent / 1e9 for name, spent in ns.items()})


def phase_rows(
    phases: Mapping[Phase, Ints], steady: Mask, cpu_ms: Mapping[Phase, float], device_ms: Mapping[Phase, float]
) -> tuple[PhaseRow, ...]:
    """One row per phase; shares are of the time of all steps and sum to 1.

    Args:
        phases: Exclusive time in ns, arrays of shape (n,).
        steady: Steps for the medians.
        cpu_ms: Median main-thread CPU time; empty if it was not measured.
        device_ms: Median device span; empty if it was not measured.

    Returns:
        In the order of ``PHASES``; times per step, in ms, are of the steady steps, and None if there are none.
    """
    count = int(steady.sum())
    few, others = np.flatnonzero(steady)[statistics.thinned(count)], np.flatnonzero(~steady)
    few_ms: dict[Phase, Floats] = {}
    totals: dict[Phase, int] = {}
    means_ms: dict[Phase, float] = {}
    for phase in PHASES:
        column = phases[phase]  # once: a long run's is unpacked
        few_ms[phase] = column[few] / 1e6
        totals[phase] = int(column.sum())
        means_ms[phase] = (totals[phase] - int(column[others].sum())) / count / 1e6 if count else 0.0
        del column  # for the next one
    whole = sum(totals.values())
    ordinary_ms = _ordinary_ms(few_ms)
    rows = []
    for phase, chosen in few_ms.items():
        p05, median, p95 = statistics.quantiles(chosen, (0.05, 0.5, 0.95)) if count else (None, None, None)
        rows.append(
            PhaseRow(
                phase=phase,
                median_ms=median,
                p95_ms=p95,
                p05_ms=p05,
                mean_ms=means_ms[phase] if count else None,
                total_s=totals[phase] / 1e9,
                share=totals[phase] / whole if whole else 0.0,
                ordinary_ms=ordinary_ms.get(phase),
                cpu_ms=cpu_ms.get(phase),
                device_ms=device_ms.get(phase),
            )
        )
    return tuple(rows)


def _ordinary_ms(phases_ms: Mapping[Phase, Floats]) -> dict[Phase, float]:
    """The phases of an ordinary step, which sum to the median step time; empty if there is no step."""
    steps = sum(phases_ms.values(), np.zeros(len(phases_ms["loop"])))
    if len(steps) == 0:
        return {}
    first, median, third = statistics.quantiles(steps, (0.25, 0.5, 0.75))
    middle = ((steps >= first) & (steps <= third)) | (len(steps) == 2)  # both quartiles lie between two
    mean = float(steps[middle].mean())
    means = ((phase, float(its[middle].mean())) for phase, its in phases_ms.items())
    return {phase: its * median / mean if mean > 0 else 0.0 for phase, its in means}


def callback_rows(journal: Journal, total_s: float) -> tuple[CallbackRow, ...]:
    """Exclusive time of each hook of each callback over the whole run.

    Args:
        journal: The journal of one stage.
        total_s: Wall time of the stage, for the shares.

    Returns:
        Largest first, without hooks that took no time; shares are 0 to 1, and 0 if the total is 0.
    """
    ns: dict[tuple[str, str], int] = defaultdict(int)
    names = callback_names(journal.slots)
    for slot, _, spent in journal.time_of_slots:
        if slot.callback and spent:
            ns[names[slot.callback], slot.hook] += spent
    rows = [
        CallbackRow(name=name, hook=hook, total_s=spent / 1e9, share=spent / 1e9 / total_s if total_s else 0.0)
        for (name, hook), spent in ns.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.total_s))
