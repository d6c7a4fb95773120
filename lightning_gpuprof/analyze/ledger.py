"""The ledger: disjoint named rows that sum to the wall time, the unexplained rest among them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

import msgspec
import numpy as np

from lightning_gpuprof.analyze.budget import part
from lightning_gpuprof.analyze.callback_names import callback_names
from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.model.journal import FIRST_OF_EPOCH, Slot
from lightning_gpuprof.model.phases import Part, Phase, SegmentKind, logger_of
from lightning_gpuprof.model.report import LedgerRow

UNEXPLAINED: Part = "unexplained"
FIRST_FETCH = "fetch of the first batch"
FETCH = "fetch"
SET_UP = "Lightning's setup, prepare_data, DataModule.setup"
"""What comes before the first callback's ``setup`` has no name of its own."""

_NAMES: dict[str, str] = {
    "other": "Lightning, between named actions",
    "loop": "Lightning, between named actions",
    "evaluation loop": "Lightning's evaluation loop",
    "run_training_epoch": "iter(dataloader): workers start",
    "setup_data": "setup_data: loaders, first iter(dataloader)",
    "iter(dataloader)": "iter(dataloader): workers start",
    "broadcast_sigterm": "ranks agree to go on (SIGTERM broadcast)",
    "self.log": "self.log",
    "after logging": "metrics and loggers after the batch",
    "after forward": "training_step",
    "after backward": "backward",
    "after optimizer": "optimizer step",
    "save_checkpoint": "save checkpoint",
    "optimizer_step": "optimizer step",
    "optimizer_zero_grad": "zero_grad",
    "configure_gradient_clipping": "gradient clipping",
    "lr_scheduler_step": "lr scheduler step",
    "batch_to_device": "batch to device",
}
"""What people call the actions, by the whole action or by what follows its owner."""

_Key = tuple[Part, Phase, str, str]


class _Entry(msgspec.Struct, kw_only=True):
    ns: int = 0
    steps: int = 0
    segments: set[int] = msgspec.field(default_factory=set)


def ledger(journal: Journal) -> tuple[LedgerRow, ...]:
    """Every second of the wall time under the name of what it went to, largest first.

    The last row is what no record explains, also where that is 0.
    """
    entries: dict[_Key, _Entry] = defaultdict(_Entry)
    names = callback_names(journal.slots)
    for key, ns, steps in _slot_sums(journal, names):
        entry = entries[key]
        entry.ns += ns
        entry.steps = max(entry.steps, steps)  # what has one name happens in the same steps
    for index, segment in enumerate(journal.segments):
        for slot_id, ns in segment.charged.items():
            if slot_id < len(journal.slots) and segment.kind != "unmeasured" and ns:
                entry = entries[_key_between(journal, names, journal.slots[slot_id], segment.kind)]
                entry.ns += ns
                entry.segments.add(index)
    total = journal.end_ns - journal.header.start_ns
    explained = sum(entry.ns for entry in entries.values())

    def row(key: tuple[Part, Phase | None, str, str], ns: int, count: int | None) -> LedgerRow:
        share = ns / total if total else 0.0
        return LedgerRow(
            part=key[0], phase=key[1], name=key[2], hook=key[3], total_s=ns / 1e9, share=share, count=count
        )

    rows = [row(key, entry.ns, entry.steps + len(entry.segments)) for key, entry in entries.items() if entry.ns]
    rows.sort(key=lambda found: -found.total_s)
    return (*rows, row((UNEXPLAINED, None, UNEXPLAINED, ""), total - explained, None))


def _slot_sums(journal: Journal, names: Mapping[str, str]) -> Iterator[tuple[_Key, int, int]]:
    """Key, total ns and number of steps of each slot; the fetches of first batches apart from the others."""
    first = np.flatnonzero(journal.steps.flags & FIRST_OF_EPOCH)
    for slot_id in journal.steps.charged:
        slot, column = journal.slots[slot_id], journal.steps.charged[slot_id]
        where = part(slot, "step", journal.header.stage)
        name, hook = _name(names, slot)
        ns, steps = int(column.sum()), int(np.count_nonzero(column))
        if _is_fetch(slot):
            apart = column[first]
            yield (
                (where, slot.phase, _annotated(FIRST_FETCH, slot), hook),
                int(apart.sum()),
                int(np.count_nonzero(apart)),
            )
            ns -= int(apart.sum())
            steps -= int(np.count_nonzero(apart))
        del column  # for the next one
        yield (where, slot.phase, name, hook), ns, steps


def _key_between(journal: Journal, names: Mapping[str, str], slot: Slot, kind: SegmentKind) -> _Key:
    name, hook = _name(names, slot)
    if _is_fetch(slot) and kind != "teardown":
        # A loader without a length is asked for its first batch before the first step.
        name = _annotated(FIRST_FETCH, slot)
    elif slot.action == "other" and kind == "setup":
        name = _annotated(SET_UP, slot)
    return part(slot, kind, journal.header.stage), slot.phase, name, hook


def _is_fetch(slot: Slot) -> bool:
    return slot.phase == "data_wait" and slot.region == "main" and not slot.callback


def _name(names: Mapping[str, str], slot: Slot) -> tuple[str, str]:
    """What a slot's time is called, and the hook: a callback or module with its hook, or what Lightning did."""
    if slot.callback:
        return names[slot.callback], _annotated(slot.hook, slot)
    if slot.phase == "data_wait":
        return _annotated(FETCH, slot), ""
    if logger_of(slot.action):
        return slot.action, ""
    last = slot.hook or slot.action.rpartition(".")[2]
    return _annotated(_NAMES.get(slot.action) or _NAMES.get(last) or last or slot.action, slot), ""


def _annotated(around: str, slot: Slot) -> str:
    """A name, and the user's own region in it, as ``annotate`` gave it."""
    return f"{around} > {slot.annotation}" if slot.annotation else around
