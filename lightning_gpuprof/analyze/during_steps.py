"""Selects the samples that cover mostly steps: not setup, validation or checkpoints."""

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

import numpy as np

from lightning_gpuprof.analyze.journal_columns import Ints, Journal, sorting
from lightning_gpuprof.analyze.statistics import Floats
from lightning_gpuprof.model.journal import Sample

_MIN_RATIO = 0.5
"""Of the time since the sample before that has to be in steps."""


class StepTime:
    """Where the steps lie on the run's clock."""

    def __init__(self, journal: Journal) -> None:
        steps = journal.steps
        start_ns = steps.start_ns[: len(steps)]
        order = sorting(start_ns)
        self._start_ns = start_ns[order]
        self._period_ns = steps.period_ns[order]
        self._batch = steps.batch[order]
        self._epoch = steps.epoch[order]

    @cached_property
    def _before_ns(self) -> Ints:
        """Time in steps before each."""
        before_ns = np.cumsum(self._period_ns, dtype=np.int64)
        before_ns -= self._period_ns
        return before_ns

    def until_ns(self, t_ns: int) -> int:
        """Time in steps from the start of the run to a moment."""
        row = int(np.searchsorted(self._start_ns, t_ns, "right")) - 1
        if row < 0:
            return 0
        return int(self._before_ns[row]) + min(t_ns - int(self._start_ns[row]), int(self._period_ns[row]))

    def at(self, t_ns: int) -> tuple[int, int] | None:
        """Batch and epoch of the step at a moment; None between two steps."""
        row = int(np.searchsorted(self._start_ns, t_ns, "right")) - 1
        if row < 0 or t_ns > int(self._start_ns[row] + self._period_ns[row]):
            return None
        return int(self._batch[row]), int(self._epoch[row])

    def batches(self, t_ns: Ints) -> Floats:
        """Where moments are in the steps, as batches with fractions, shape (n,); between two steps it stands still."""
        if not len(self._start_ns):
            return np.zeros(len(t_ns))
        row = np.searchsorted(self._start_ns, t_ns, "right") - 1
        inside = np.maximum(row, 0)
        part = np.clip((t_ns - self._start_ns[inside]) / np.maximum(self._period_ns[inside], 1), 0.0, 1.0)
        return np.where(row < 0, float(self._batch[0]), self._batch[inside] + part)


def host_samples(journal: Journal) -> dict[str, list[tuple[Sample, float]]]:
    """The host's samples during the steps, by subject, in order, each with the seconds since the one before.

    A sample's rates are of the time since the one before; at least half of that has to be in steps. The seconds of a
    subject's first sample are 0: it has no rates.
    """
    time = StepTime(journal)
    several: dict[str, list[Sample]] = defaultdict(list)
    for sample in journal.samples:
        if sample.source == "host":
            several[sample.subject].append(sample)
    return {subject: found for subject, own in several.items() if (found := list(_within_steps(own, time)))}


def _within_steps(samples: Iterable[Sample], time: StepTime) -> Iterable[tuple[Sample, float]]:
    last_ns: int | None = None
    for sample in samples:
        if last_ns is None:
            if time.at(sample.t_ns) is not None:
                yield sample, 0.0
        elif sample.t_ns > last_ns:
            inside_ns = time.until_ns(sample.t_ns) - time.until_ns(last_ns)
            if inside_ns >= _MIN_RATIO * (sample.t_ns - last_ns):
                yield sample, (sample.t_ns - last_ns) / 1e9
        last_ns = sample.t_ns
