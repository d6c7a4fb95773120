"""Mean phase times since the last log interval, for the trainer's loggers, on the trainer's own step axis."""

from __future__ import annotations

from collections.abc import Sequence

from lightning_gpuprof.capture.step_clock import ClosedStep
from lightning_gpuprof.model.journal import PROFILED, Sample, Slot
from lightning_gpuprof.model.phases import PHASES

NS_PER_MS = 1e6


def step_scalars(steps: Sequence[ClosedStep], slots: Sequence[Slot], samples_per_step: int | None) -> dict[str, float]:
    """Means over steps that were not traced.

    Args:
        steps: Finished steps since the last interval.
        slots: The clock's slots.
        samples_per_step: Samples per step over all ranks, if known.

    Returns:
        ``gpuprof/step_ms``, ``gpuprof/<phase>_ms`` for phases with time, ``gpuprof/samples_per_s``;
        empty without steps.
    """
    plain = [s for s in steps if not s.flags & PROFILED]
    if not plain:
        return {}
    n = len(plain)
    by_phase = dict.fromkeys(PHASES, 0)
    width = len(plain[-1].charged)
    rows = [s.charged if len(s.charged) == width else s.charged + [0] * (width - len(s.charged)) for s in plain]
    for slot, column in zip(slots, zip(*rows, strict=True), strict=False):
        by_phase[slot.step_phase] += sum(column)
    total_ns = sum(s.end_ns - s.start_ns for s in plain)
    scalars = {"gpuprof/step_ms": total_ns / n / NS_PER_MS}
    scalars |= {f"gpuprof/{phase}_ms": ns / n / NS_PER_MS for phase, ns in by_phase.items() if ns}
    if samples_per_step and total_ns:
        scalars["gpuprof/samples_per_s"] = samples_per_step * n / (total_ns / 1e9)
    return scalars


def device_scalars(latest: Sequence[Sample]) -> dict[str, float]:
    """The newest reading of each GPU: ``gpuprof/<gpu>/<value with unit>``; nothing for what was not read."""
    return {
        f"gpuprof/{sample.subject}/{name}": value
        for sample in latest
        for name, value in sample.values.items()
        if value is not None
    }
