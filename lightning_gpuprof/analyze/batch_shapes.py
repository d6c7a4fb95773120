"""Samples of batch shapes to how many there are, and how the time of their steps follows their size."""

from collections import defaultdict

import numpy as np
from msgspec.structs import replace

from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.analyze.statistics import Floats
from lightning_gpuprof.analyze.steady import MIN_WARMUP_STEPS, Labels
from lightning_gpuprof.model.batch_shapes import BatchShapes
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.model.report import STEP_LABELS

_MIN_COMPARED = 3
"""Points of which an order says anything."""
_COUNTED = tuple(STEP_LABELS.index(label) for label in ("warm-up", "steady"))
"""Labels of the steps that are compared, but for the first: most batches are inspected early."""


def batch_shapes(journal: Journal, labels: Labels) -> BatchShapes | Unmeasured:
    """The shapes of the loader of which most batches were inspected.

    Args:
        journal: Has the samples.
        labels: Of its steps.

    Returns:
        Step times in ms; of fewer than three compared batches only the counts. Unmeasured without steps, or if no batch
        was inspected.
    """
    by_loader: dict[str, list[tuple[float, str, float]]] = defaultdict(list)
    for sample in journal.samples:
        if sample.source != "input" or ".shapes:" not in sample.subject:
            continue
        loader, _, text = sample.subject.partition(".shapes:")
        age_s, elements = sample.values.get("age_s"), sample.values.get("elements_count")
        if age_s is not None and elements is not None:
            by_loader[loader].append((sample.t_ns - age_s * 1e9, text, elements))
    found, steps = max(by_loader.values(), key=len, default=[]), journal.steps
    if not found or not len(steps):
        return Unmeasured(why="no batch was inspected: that needs torch's own DataLoader, and tensors in its batches")
    texts = np.array([text for _, text, _ in found])
    times_ns: Floats = np.array([at_ns for at_ns, _, _ in found])
    sizes: Floats = np.array([elements for _, _, elements in found])
    rows = np.searchsorted(steps.start_ns, times_ns, side="right") - 1
    # A batch is handed over within its own step.
    inside = (rows >= 0) & (times_ns < (steps.start_ns + steps.period_ns)[rows])
    compared = inside & np.isin(labels[rows], _COUNTED) & (rows >= MIN_WARMUP_STEPS)
    seen = BatchShapes(looks=len(found), shapes=len(set(texts.tolist())), compared=int(compared.sum()))
    if seen.compared < _MIN_COMPARED:
        return seen
    size: Floats = sizes[compared]
    step_ms: Floats = steps.period_ns[rows[compared]] / 1e6
    shape = texts[compared].tolist()
    smallest, largest = int(size.argmin()), int(size.argmax())
    predicted_ms = step_ms.mean() + _slope(size, step_ms) * (size - size.mean())
    return replace(
        seen,
        smallest=shape[smallest],
        largest=shape[largest],
        smallest_ms=float(step_ms[smallest]),
        largest_ms=float(step_ms[largest]),
        correlation=_correlation(size, step_ms),
        spread_ratio=float(predicted_ms.std() / step_ms.mean()),
    )


def _correlation(first: Floats, second: Floats) -> float:
    """Of their ranks; 0 where one falls as the other rises, or one is constant."""
    a, b = _ranks(first), _ranks(second)
    return max(0.0, float(np.corrcoef(a, b)[0, 1])) if a.std() > 0 and b.std() > 0 else 0.0


def _ranks(values: Floats) -> Floats:
    """Places in order; what is equal shares the mean of its places."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    of_each: Floats = np.cumsum(counts) - (counts + 1) / 2
    return of_each[place]


def _slope(of: Floats, values: Floats) -> float:
    """Median of the slopes between two of them (Theil, Sen); 0 where all are of one size."""
    first, second = np.triu_indices(len(of), 1)
    apart = of[second] - of[first]
    slopes = (values[second] - values[first])[apart != 0] / apart[apart != 0]
    return float(np.median(slopes)) if len(slopes) else 0.0
