"""The time in which a rank waits for others inside its own phases."""

import numpy as np

from lightning_gpuprof.analyze.journal_columns import Ints, Journal
from lightning_gpuprof.model.journal import GRADIENT_WAIT
from lightning_gpuprof.model.phases import WORKING_PHASES, Phase

MIN_LOOKS = 20
"""Looks at the main thread that separate waiting from work. Heuristic."""

DDP = "DDPStrategy"
"""Its ranks meet in the backward, and where buffers are broadcast before the forward."""


def waits_of(journal: Journal) -> dict[Phase, Ints]:
    """Time in ns for which each step waits for other ranks, shape (n,), by the phases of which it is known.

    The end of the backward, where reductions are waited for, is timed in each step. Of other phases it is the share of
    the looks that found the main thread in a collective, the same in each step: all-gathers of FSDP in forward and
    backward, reductions of tensor-parallel layers. Nothing on a device, where the host does not wait for ranks but for
    it.
    """
    if journal.header.world_size < 2 or journal.conditions.get("device.type") != "cpu":
        return {}
    ddp = journal.conditions.get("trainer.strategy") == DDP
    working = {slot.id: slot.step_phase for slot in journal.slots if slot.step_phase in WORKING_PHASES}
    looks = {slot: seen for slot, seen in journal.looks.items() if slot in working}
    seen = sum(looks.values()) >= MIN_LOOKS * journal.look_weight
    if not ddp and not seen:
        return {}
    ends = [slot.id for slot in journal.slots if slot.action == GRADIENT_WAIT and slot.region == "main"]
    known: tuple[Phase, ...] = tuple(p for p in WORKING_PHASES if p != "backward" or ends)
    none = np.zeros(len(journal.steps), np.int64)
    found: dict[Phase, Ints] = {}
    for phase in known:
        of_phase = [slot for slot, its in working.items() if its == phase and slot not in ends]
        looked = sum(looks.get(slot, 0) for slot in of_phase)
        ratio = sum(journal.in_collectives.get(slot, 0) for slot in of_phase) / looked if seen and looked else 0.0
        end_ns = sum((journal.steps.charged.get(slot, none) for slot in ends), none) if phase == "backward" else none
        found[phase] = end_ns + (ratio * (journal.phases[phase] - end_ns)).astype(np.int64)
    return found
