"""Where all of the wall time went: its parts, the phases of the steps, and each callback's hooks."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from lightning_gpuprof.analyze.journal import Ints, Journal
from lightning_gpuprof.analyze.steady import Mask
from lightning_gpuprof.model.journal import Slot
from lightning_gpuprof.model.phases import PARTS, PHASES, Part, Phase, SegmentKind
from lightning_gpuprof.model.report import CallbackRow, PhaseRow, Wall

_PART_OF_SEGMENT: dict[SegmentKind, Part] = {
    "setup": "setup",
    "step": "train",
    "epoch_gap": "epoch_gap",
    "teardown": "teardown",
    "unmeasured": "unexplained",
}


def _part(slot: Slot, kind: SegmentKind) -> Part:
    if kind == "unmeasured":
        return "unexplained"
    if slot.phase == "checkpoint":
        return "checkpoint"
    if slot.region == "sanity":
        return "sanity"
    if slot.region == "validation" or slot.phase == "validation":
        return "validation"
    return _PART_OF_SEGMENT[kind]


def wall(journal: Journal) -> Wall:
    """Wall time of the fit in parts; what no record accounts for is ``unexplained``."""
    ns: dict[Part, int] = dict.fromkeys(PARTS, 0)
    for slot, column in journal.steps.charged.items():
        ns[_part(journal.slots[slot], "step")] += int(column.sum())
    for segment in journal.segments:
        for slot, spent in segment.charged.items():
            if slot < len(journal.slots):
                ns[_part(journal.slots[slot], segment.kind)] += spent
    total = journal.end_ns - journal.header.start_ns
    ns["unexplained"] += total - sum(ns.values())
    return Wall(total_s=total / 1e9, parts={part: ns[part] / 1e9 for part in PARTS})


def phase_rows(phases: dict[Phase, Ints], steady: Mask) -> tuple[PhaseRow, ...]:
    """One row per phase; shares are of the time of all steps and sum to 1."""
    totals = {phase: int(phases[phase].sum()) for phase in PHASES}
    whole = sum(totals.values())
    rows = []
    for phase in PHASES:
        chosen = phases[phase][steady] / 1e6
        rows.append(
            PhaseRow(
                phase=phase,
                median_ms=float(np.median(chosen)) if len(chosen) else None,
                p95_ms=float(np.quantile(chosen, 0.95)) if len(chosen) else None,
                total_s=totals[phase] / 1e9,
                share=totals[phase] / whole if whole else 0.0,
            )
        )
    return tuple(rows)


def callback_rows(journal: Journal, total_s: float) -> tuple[CallbackRow, ...]:
    """Exclusive time of each hook of each callback over the whole run, largest first."""
    ns: dict[tuple[str, str], int] = defaultdict(int)

    def add(slot_id: int, spent: int) -> None:
        slot = journal.slots[slot_id]
        if slot.callback and spent:
            ns[display_name(slot.callback), slot.hook] += spent

    for slot_id, column in journal.steps.charged.items():
        add(slot_id, int(column.sum()))
    for segment in journal.segments:
        for slot_id, spent in segment.charged.items():
            if slot_id < len(journal.slots):
                add(slot_id, spent)
    rows = [
        CallbackRow(name=name, hook=hook, total_s=spent / 1e9, share=spent / 1e9 / total_s if total_s else 0.0)
        for (name, hook), spent in ns.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.total_s))


def display_name(state_key: str) -> str:
    """A callback's class out of its state key, which may carry its arguments: ``ModelCheckpoint{'monitor': …}``."""
    return state_key.split("{", 1)[0]
