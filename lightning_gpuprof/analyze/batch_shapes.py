"""Samples of batch shapes to how many there are, and how the time of their steps follows their size."""

from collections import defaultdict

import numpy as np

from lightning_gpuprof.analyze.journal import Journal
from lightning_gpuprof.analyze.statistics import Floats
from lightning_gpuprof.analyze.steady import Mask
from lightning_gpuprof.model.batch_shapes import BatchShapes
from lightning_gpuprof.model.missing import Unmeasured

_MIN_COMPARED = 3
"""Points of which a line says anything."""


def batch_shapes(journal: Journal, steady: Mask) -> BatchShapes | Unmeasured:
    """The shapes of the loader of which most batches were inspected.

    Args:
        journal: Has the samples.
        steady: Which steps are.
    """
    by_loader: dict[str, list[tuple[float, str, float]]] = defaultdict(list)
    for sample in journal.samples:
        if sample.source != "input" or ".shapes:" not in sample.subject:
            continue
        loader, _, text = sample.subject.partition(".shapes:")
        age_s, size = sample.values.get("age_s"), sample.values.get("elements_count")
        if age_s is not None and size is not None:
            by_loader[loader].append((sample.t_ns - age_s * 1e9, text, size))
    found, steps = max(by_loader.values(), key=len, default=[]), journal.steps
    if not found or not len(steps):
        return Unmeasured(why="no batch was inspected: that needs torch's own DataLoader, and tensors in its batches")
    texts = [text for _, text, _ in found]
    times_ns, elements = np.array([at for at, _, _ in found]), np.array([size for _, _, size in found])
    rows = np.searchsorted(steps.start_ns, times_ns, side="right") - 1
    # A batch is handed over within its own step.
    compared = (rows >= 0) & (times_ns < (steps.start_ns + steps.period_ns)[rows]) & steady[rows]
    period_ms = steps.period_ns[rows[compared]] / 1e6
    fit_ratio, offset_ms, slope_ms = _line(elements[compared], period_ms)
    predicted_ms = offset_ms + slope_ms * elements
    mean_ms = float(predicted_ms.mean())
    smallest, largest = int(elements.argmin()), int(elements.argmax())
    return BatchShapes(
        looks=len(found),
        shapes=len(set(texts)),
        smallest=texts[smallest],
        largest=texts[largest],
        compared=int(compared.sum()),
        fit_ratio=fit_ratio,
        spread_ratio=float(predicted_ms.std()) / mean_ms if mean_ms > 0 else 0.0,
        smallest_ms=float(predicted_ms[smallest]),
        largest_ms=float(predicted_ms[largest]),
    )


def _line(elements: Floats, period_ms: Floats) -> tuple[float, float, float]:
    """Share of the variance that the least-squares line explains, and its offset and slope; flat where it falls."""
    if len(elements) < _MIN_COMPARED or not elements.std() > 0 or not period_ms.std() > 0:
        return 0.0, float(period_ms.mean()) if len(period_ms) else 0.0, 0.0
    slope_ms, offset_ms = np.polyfit(elements, period_ms, 1)
    if slope_ms <= 0:
        return 0.0, float(period_ms.mean()), 0.0
    return float(np.corrcoef(elements, period_ms)[0, 1]) ** 2, float(offset_ms), float(slope_ms)
