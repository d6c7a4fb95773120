"""Journals for tests: steps of known times, with anything that a test charges to them in addition."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from sample_journals import header

from lightning_gpuprof.analyze import metrics as analyze_metrics
from lightning_gpuprof.analyze.journal_columns import CpuColumns, Journal, StepColumns
from lightning_gpuprof.model.journal import FIRST_OF_EPOCH, Conditions, Footer, Notice, Sample, Segment, Slot
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.phases import Stage

MS = 1_000_000
SLOTS = [
    Slot(id=0, action="other", phase="loop"),
    Slot(id=1, action="fetch", phase="data_wait"),
    Slot(id=2, action="step", phase="forward"),
    Slot(id=3, action="hook", phase="callbacks", callback="Slow{'every': 3}", hook="on_train_batch_end"),
    Slot(id=4, action="own", phase="callbacks", callback="GpuProfiler", hook="step boundary"),
    Slot(id=5, action="val", phase="validation", region="validation"),
    Slot(id=6, action="save", phase="checkpoint"),
    Slot(id=7, action="run_training_epoch", phase="loop"),
    Slot(id=8, action="sanity", phase="validation", region="sanity"),
]


def ints(values: object) -> np.ndarray:
    return np.asarray(values, np.int64)


def journal(
    n: int = 100,
    *,
    warmup: int = 0,
    epochs: int = 1,
    finished: bool = True,
    stage: Stage = "fit",
    forward_ms: object = None,
) -> Journal:
    """Steps of 10 ms: 4 fetch, 5 forward (or as given), 1 callback; warm-up steps take 20 ms longer in forward."""
    forward = np.full(n, 5 * MS) if forward_ms is None else ints(np.asarray(forward_ms) * MS)
    forward[:warmup] += 20 * MS
    charged = {1: ints(np.full(n, 4 * MS)), 2: ints(forward), 3: ints(np.full(n, 1 * MS))}
    period = ints(sum(charged.values()))
    setup_ns = 100 * MS
    start = ints(setup_ns + np.r_[0, np.cumsum(period)[:-1]])
    flags = np.zeros(n, np.int64)
    flags[:: max(1, n // epochs)] = FIRST_OF_EPOCH
    end = int(start[-1] + period[-1]) if n else setup_ns
    return Journal(
        header=header(stage=stage),
        slots=SLOTS,
        steps=StepColumns(
            batch=ints(range(n)),
            start_ns=start,
            period_ns=period,
            first_global_step=0,
            stepped=ints(np.arange(n) > 0),
            epoch=ints(np.arange(n) // max(1, n // epochs)),
            flags=ints(flags),
            charged=charged,
        ),
        cpu=CpuColumns(batch=ints([]), charged={}),
        segments=[Segment(kind="setup", start_ns=0, end_ns=setup_ns, charged={0: 80 * MS, 8: 20 * MS})],
        conditions={"loader.kind": "DataLoader", "loader.batch_size": 32, "loader.num_workers": 0},
        footer=Footer(end_ns=end, status="finished", overhead={"edge_ns": 200.0}) if finished else None,
    )


def charge(of: Journal, slot: int, index: int, ns: int) -> None:
    """Make one step longer by some time in a slot."""
    column = of.steps.charged.setdefault(slot, np.zeros(len(of.steps), np.int64))
    column[index] += ns
    of.steps.period_ns[index] += ns
    of.steps.start_ns[index + 1 :] += ns
    if of.footer is not None:
        of.footer.end_ns += ns


def build(of: Journal) -> Metrics:
    return analyze_metrics.build(of, [])


def sampled(readings: Sequence[object], *, least_steps: int) -> Metrics:
    """A run of steps of 10 ms that had these readings, a sample of each subject in each half second."""
    times = sorted({one.t_ns for one in readings if isinstance(one, Sample)})
    of = journal(max(least_steps, 50 * len(times)))
    for one in readings:
        if isinstance(one, Sample):
            t_ns = times.index(one.t_ns) * 500_000_000
            of.samples.append(Sample(source="nvml", subject=one.subject, t_ns=t_ns, values=one.values))
        elif isinstance(one, Conditions):
            of.conditions.update(one.values)
        elif isinstance(one, Notice):
            of.notices.append(one)
    return build(of)


def wandering(n: int, memory: float, seed: int) -> npt.NDArray[np.float64]:
    """Step times around 100 ms that forget where they were only slowly; ``memory`` 0 are independent ones."""
    noise = np.random.default_rng(seed).normal(size=n)
    found = np.empty(n)
    found[0] = noise[0] / np.sqrt(1 - memory**2)
    for step in range(1, n):
        found[step] = memory * found[step - 1] + noise[step]
    return 100 + found
