"""Labels every step and finds those that stand for the run: after warm-up, untraced, beside no edge and no stall."""

import functools
import itertools
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from lightning_gpuprof.analyze import statistics
from lightning_gpuprof.analyze.journal_columns import Ints, StepColumns
from lightning_gpuprof.analyze.speed_levels import change_points
from lightning_gpuprof.model.journal import DISTURBED, FIRST_OF_EPOCH, LAST_OF_EPOCH, PROFILED
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.report import MIN_STEADY_STEPS, STEP_LABELS, StepLabel

MIN_WARMUP_STEPS = 5
MAX_WARMUP_STEPS = 2000
MAX_WARMUP_RATIO = 0.2
"""Warm-up is at most this part of the run: what is longer is a change of speed level, not warm-up."""
LOOK_AHEAD = 10
TOLERANCE_RATIO = 0.1
"""A median of ten steps that is no further above the level to come has arrived there."""
TOLERANCE_MADS = 1.5 * 1.4826
"""The same for steps that scatter: about four standard errors of such a median."""
SPIKE_MADS = 5 * 1.4826
SPIKE_RATIO = 0.5
"""A step further above the level than either is a spike: recompilation, a growing allocator."""
MIN_LEFT_RATIO = 0.5
"""The neighbours of stalls and edges are left out if at least this part of the others remains."""

MAX_EDGES_RATIO = 1 / 256
"""Of all steps, begins and ends of runs of steady ones up to which these are copied run by run."""

Mask = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.int8]
"""Indices into STEP_LABELS, shape (n,)."""

_CODE: dict[StepLabel, int] = {label: code for code, label in enumerate(STEP_LABELS)}


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which steps count for what; arrays of shape (n,)."""

    labels: Labels
    steady: Mask
    """Those labelled ``steady``."""
    first_steady: int | None
    """Index of the first steady step."""
    level_starts: tuple[int, ...]
    """Indices of the steps at which speed levels begin, the first steady one among them; empty if there is none."""
    runs: tuple[slice, ...] | None = None
    """The steady steps as runs of neighbours; None if these are many."""

    def steady_of(self, column: Ints) -> Ints:
        """A column of shape (n,), of the steady steps only: in a long run a fifth of the time that its mask takes."""
        return (
            column[self.steady] if self.runs is None else np.concatenate([column[:0], *(column[r] for r in self.runs)])
        )

    def counts(self) -> dict[StepLabel, int]:
        """How many steps have each label."""
        return {label: int((self.labels == code).sum()) for label, code in _CODE.items()}

    def saving(self, steps: StepColumns, phases: Mapping[Phase, Ints]) -> Mask:
        """Steps that would be steady without the checkpoint in them.

        Args:
            steps: All steps.
            phases: Exclusive time in ns, arrays of shape (n,).

        Returns:
            Shape (n,); none if checkpoints count as steady because most steps hold one.
        """
        more = _with_next(phases["validation"] > 0) | ((steps.flags & (FIRST_OF_EPOCH | LAST_OF_EPOCH)) != 0)
        found: Mask = (self.labels == _CODE["checkpoint"]) & (phases["checkpoint"] > 0) & ~more
        return found


def select(steps: StepColumns, phases: Mapping[Phase, Ints], compiled: Mask | None = None) -> Selection:
    """Label the steps, and so choose those that statistics rest on.

    A step is left out if it was traced or ran beside the analysis of a trace, if it holds a checkpoint or validation or
    follows on one, and if it is the first or last of an epoch. The step after a stall is slower while caches fill and
    workers, which went on meanwhile, compete with the main thread (measured: 29 % after a checkpoint, 32 % after
    validation, the next one 4 to 5 %). Where so little is left that this would cost more than half of the steps
    (validation every other step, epochs of two), these neighbours and the last steps of epochs count. Where most steps
    hold a checkpoint, that is what the run is like, and they count. Outliers stay
    in: they are a part of the run. In a run so short that fewer than 20 steady steps would be left, steps beside the
    analysis of a trace count: it runs in the kernel's idle class, and the report says so.

    Args:
        steps: All steps.
        phases: Exclusive time in ns, arrays of shape (n,).
        compiled: Steps in which ``torch.compile`` was at work, shape (n,). They are left out, unless half of all steps
            are such: then that is what the run is like.

    Returns:
        One label per step. Without six ordinary steps none is steady, and ``first_steady`` is None.
    """
    if compiled is None or compiled.sum() > MIN_LEFT_RATIO * len(steps):
        compiled = np.zeros(len(steps), np.bool_)
    chosen = _select(steps, phases, DISTURBED, compiled)
    if chosen.steady.sum() < MIN_STEADY_STEPS and (steps.flags & DISTURBED).any():
        return _select(steps, phases, 0, compiled)
    return chosen


def _select(steps: StepColumns, phases: Mapping[Phase, Ints], disturbed: int, compiled: Mask) -> Selection:
    """Label the steps; those with the flag ``disturbed`` are left out."""
    labels = np.full(len(steps), _CODE["steady"], np.int8)
    checkpoint, validation = phases["checkpoint"] > 0, phases["validation"] > 0
    if checkpoint.sum() > MIN_LEFT_RATIO * len(steps):
        checkpoint = np.zeros(len(steps), np.bool_)
    first, last = (steps.flags & FIRST_OF_EPOCH) != 0, (steps.flags & LAST_OF_EPOCH) != 0
    excluded: dict[StepLabel, Mask] = {
        "first-of-epoch": first,
        "validation-adjacent": validation,
        "checkpoint": checkpoint,
        "disturbed": (steps.flags & disturbed) != 0,
        "profiled": (steps.flags & PROFILED) != 0,
        "compiled": compiled,
    }
    neighbours: dict[StepLabel, Mask] = {
        "last-of-epoch": last,
        "validation-adjacent": _with_next(validation),
        "checkpoint": _with_next(checkpoint),
    }
    plain = ~functools.reduce(np.logical_or, excluded.values())
    strict = plain & ~functools.reduce(np.logical_or, neighbours.values())
    if strict.sum() >= MIN_LEFT_RATIO * plain.sum():
        excluded = {"last-of-epoch": last, **excluded, **neighbours}
        plain = strict
    for label in reversed(STEP_LABELS):  # the first that holds counts: it is written last
        if label in excluded:
            labels[excluded[label]] = _CODE[label]
    del checkpoint, validation, first, last, excluded, neighbours, strict  # as below
    period = steps.period_ns[plain]
    changes = change_points(period)
    start = _end_of_warmup(period, changes)
    del period  # of a long run it takes as much memory as what comes next
    chosen = np.flatnonzero(plain)
    first_steady = None if start is None else int(chosen[start])
    before = labels[:first_steady]
    np.minimum(before, _CODE["warm-up"], out=before)
    steady = labels == _CODE["steady"]
    return Selection(
        labels=labels,
        steady=steady,
        first_steady=first_steady,
        runs=_runs(steady),
        level_starts=()
        if start is None
        else tuple(int(chosen[c]) for c in (start, *(c for c in changes if c > start))),
    )


def _runs(mask: Mask) -> tuple[slice, ...] | None:
    edges = np.flatnonzero(np.diff(mask, prepend=False, append=False))
    if len(edges) > len(mask) * MAX_EDGES_RATIO:
        return None
    return tuple(slice(begin, end) for begin, end in edges.reshape(-1, 2).tolist())


def _with_next(mask: Mask) -> Mask:
    wider = mask.copy()
    wider[1:] |= mask[:-1]
    return wider


def _end_of_warmup(period: Ints, changes: Sequence[int]) -> int | None:
    """Index of the first steady one of the ordinary steps.

    Warm-up ends where the step time first is at the level that is to come and quiet: the median of ten steps is at
    most a tenth (or 1.5 robust standard deviations) above it, and among them are no more spikes than later. Levels
    that begin within the first fifth of the run are warm-up too, as long as each is faster than the one before. A run
    that gets slower, or that changes later, has several speed levels and no long warm-up.
    """
    n = len(period)
    if n <= MIN_WARMUP_STEPS:
        return None
    cap = max(MIN_WARMUP_STEPS, min(int(n * MAX_WARMUP_RATIO), MAX_WARMUP_STEPS))
    bounds = [0, *changes, n]
    begin, end = bounds[0], bounds[1]
    for following, stop in itertools.pairwise(bounds[1:]):
        if following > cap or statistics.median(period[following:stop]) >= statistics.median(period[begin:end]):
            break
        begin, end = following, stop
    settled = period[(begin + end) // 2 : end]
    level = statistics.median(settled)
    mad = statistics.median(np.abs(settled - level))
    spike = period[: cap + LOOK_AHEAD] > level + max(SPIKE_MADS * mad, SPIKE_RATIO * level)
    usual = float(np.mean(settled > level + max(SPIKE_MADS * mad, SPIKE_RATIO * level)))
    limit = level + max(TOLERANCE_MADS * mad, TOLERANCE_RATIO * level)
    for start in range(max(MIN_WARMUP_STEPS, begin), cap + 1):
        ahead = slice(start, start + LOOK_AHEAD)
        quiet = spike[ahead].sum() <= np.ceil(3 * LOOK_AHEAD * usual) and (usual >= 0.5 or not spike[start])
        if quiet and np.median(period[ahead]) <= limit:
            return start
    return cap
