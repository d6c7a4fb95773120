"""Sums over the kernels of every step."""

import itertools

import numpy as np

from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.model.every_kernel import EveryKernel, KernelOfSteps

MAX_ROWS = 100


def every_kernel(journal: Journal) -> EveryKernel | None:
    """The kernels of a run by their time; None if they were not recorded."""
    found = journal.kernels
    if not found.columns:
        return None
    batch, kernel, count, time_ns = np.concatenate(found.columns, axis=1)
    if not len(batch):
        return EveryKernel(steps=0, kernels_per_step=0.0, device_us_per_step=0.0, kernels=(), lost=found.lost)
    # a step's late kernels are in a later block
    low, span = int(batch.min()), int(batch.max()) - int(batch.min()) + 1
    key, row = np.unique(kernel.astype(np.int64) * span + (batch - low), return_inverse=True)
    of_kernel, of_batch = np.divmod(key, span)
    calls = np.bincount(row, weights=count)
    times_us = np.bincount(row, weights=time_ns) / 1000
    steps, all_us = int(np.count_nonzero(np.bincount(of_batch))), float(times_us.sum())
    edges = np.flatnonzero(np.diff(of_kernel, prepend=-1, append=of_kernel[-1] + 1)).tolist()
    rows = []
    for begin, end in itertools.pairwise(edges):
        own, longest = times_us[begin:end], begin + int(times_us[begin:end].argmax())
        rows.append(
            KernelOfSteps(
                name=found.names.get(int(of_kernel[begin]), "unnamed"),
                calls_per_step=float(calls[begin:end].sum()) / steps,
                median_us=float(np.median(own)),
                p95_us=float(np.quantile(own, 0.95)),
                max_us=float(times_us[longest]),
                max_batch=low + int(of_batch[longest]),
                share=float(own.sum()) / all_us if all_us else 0.0,
            )
        )
    rows.sort(key=lambda one: -one.share)
    return EveryKernel(
        steps=steps,
        kernels_per_step=float(calls.sum()) / steps,
        device_us_per_step=all_us / steps,
        kernels=tuple(rows[:MAX_ROWS]),
        lost=found.lost,
    )
