"""Device time by phase of the steady steps, from the spans of sampled steps."""

from collections.abc import Mapping

import numpy as np

from lightning_gpuprof.analyze import cpu_time
from lightning_gpuprof.analyze.cpu_time import MIN_SAMPLES
from lightning_gpuprof.analyze.journal import Journal
from lightning_gpuprof.analyze.steady import Mask
from lightning_gpuprof.model.phases import Phase


def medians_ms(journal: Journal, steady: Mask) -> Mapping[Phase, float]:
    """Median device span of each phase over the measured steady steps; empty if there are fewer than ten.

    A span is measured on the device's clock along the main thread's stream: it ends when the device has done what
    was queued in the phase, and contains the gaps between launches. It is no kernel time.

    Args:
        journal: The journal of one stage.
        steady: Which steps are steady, shape (n,) for n steps.
    """
    device = journal.device
    rows, _ = cpu_time.rows_of(device.batch, journal, steady)
    if len(rows) < MIN_SAMPLES:
        return {}
    return {phase: float(np.median(column[rows])) / 1e6 for phase, column in device.phases(journal.slots).items()}


def caveats(journal: Journal) -> list[str]:
    """Says so where more steps could not be measured than could."""
    device = journal.device
    reasons = {
        "the device was too far behind": device.dropped_backlog,
        "a graph was captured in them": device.dropped_capturing,
        "they had too many parts, or parts on several streams": device.dropped_unusable,
    }
    if sum(reasons.values()) <= len(device.batch):
        return []
    dropped = ", ".join(f"{count} because {why}" for why, count in reasons.items() if count)
    return [f"device spans: {len(device.batch)} step(s) measured, dropped {dropped}"]
