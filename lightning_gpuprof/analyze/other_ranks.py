"""The journals of a job flow in, that of one rank flows out: the work of its other ranks is not that of strangers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from lightning_gpuprof.analyze.journal import Journal
from lightning_gpuprof.model.journal import Sample

_WHOLE = ("process", "workers", "children")
"""What a rank is, by the subjects of its own samples."""
_CLOCKS_APART_NS = 60_000_000_000
"""Machines of one name count from their own starts, which are further apart than the calendar is set right."""

_Floats = NDArray[np.float64]


def attribute_cpu_to_ranks(own: Journal, others: Sequence[Journal]) -> Journal:
    """Take the CPU time that other ranks measured of themselves off that of "other processes" on the CPUs of this one.

    Args:
        own: One rank's journal.
        others: Of other ranks of the job, on whatever machine.

    Returns:
        The journal with ``cpu_ranks_cpus`` beside ``cpu_others_cpus`` in the machine's samples; the same journal where
        no other rank shares CPUs with this one.
    """
    rows = [(at, s) for at, s in enumerate(own.samples) if s.subject == "host" and _others_cpus(s) is not None]
    t_ns = np.array([s.t_ns for _, s in rows], np.int64)
    taken = [found for other in others if (found := _used_by(own, other, t_ns)) is not None]
    if not rows or not taken:
        return own
    samples = list(own.samples)
    for (at, sample), cpus in zip(rows, np.sum(taken, axis=0), strict=True):
        of_all = _others_cpus(sample) or 0.0
        ranks = min(of_all, float(cpus))
        values = {**sample.values, "cpu_others_cpus": of_all - ranks, "cpu_ranks_cpus": ranks}
        samples[at] = msgspec.structs.replace(sample, values=values)
    return replace(own, samples=samples)


def _others_cpus(sample: Sample) -> float | None:
    return sample.values.get("cpu_others_cpus")


def _used_by(own: Journal, other: Journal, t_ns: NDArray[np.int64]) -> _Floats | None:
    """CPUs of this rank that another one used at each time; None where it has none of them, or nothing is known."""
    ours, theirs = _cpu_set(own), _cpu_set(other)
    if not _side_by_side(own, other) or not ours & theirs:
        return None
    used: dict[int, float] = {}
    for sample in other.samples:
        if sample.source == "host" and sample.subject in _WHOLE and (cpus := sample.values.get("cpu_cpus")) is not None:
            used[sample.t_ns] = used.get(sample.t_ns, 0.0) + cpus
    if not used:
        return None
    times = np.array(sorted(used), np.int64)
    there = np.interp(t_ns, times, [used[t] for t in times.tolist()])
    return there * (len(ours & theirs) / len(theirs))  # spread over its CPUs


def _cpu_set(journal: Journal) -> frozenset[str]:
    found = journal.conditions.get("host.cpu_set")
    return frozenset(found.split(",")) if isinstance(found, str) else frozenset()


def _side_by_side(own: Journal, other: Journal) -> bool:
    """Whether both are of one stage, and on one machine."""
    a, b = own.header, other.header
    if (a.host, a.stage, a.world_size) != (b.host, b.stage, b.world_size):
        return False
    return abs((a.epoch_ns - a.start_ns) - (b.epoch_ns - b.start_ns)) < _CLOCKS_APART_NS
