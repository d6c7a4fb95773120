"""Summarises the samples of each GPU: distributions, clock limits, energy, errors, facts."""

import itertools
from collections.abc import Sequence

import msgspec
import numpy as np

from lightning_gpuprof.analyze import statistics
from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.analyze.signals import during_training, values_of
from lightning_gpuprof.model.clock_events import MASK, NO_LIMIT, REASONS
from lightning_gpuprof.model.device import (
    ERROR_COUNTERS,
    XID,
    DeviceBusy,
    DeviceEnergy,
    DeviceFacts,
    ErrorCounter,
    ThrottleShare,
)
from lightning_gpuprof.model.journal import Sample
from lightning_gpuprof.model.report import Device, Distribution

ENERGY = "energy_j"
BUSY_UTILIZATION_RATIO = 0.1
MIN_COVERED_RATIO = 0.5
"""Readings of the energy counter must lie around half of the training at least, to speak of all of it."""

_NO_GAUGES = frozenset({MASK, ENERGY, *ERROR_COUNTERS})


def devices(journal: Journal) -> tuple[Device, ...]:
    """One summary per GPU that was sampled while steps were made, or had a critical error.

    A value that was never read is None.
    """
    always = [s for s in journal.samples if s.source == "nvml" and XID not in s.values]
    of_training = during_training(journal, always) if len(journal.steps) else []
    failed = [s for s in journal.samples if XID in s.values]
    return tuple(
        _device(
            journal,
            subject,
            [s for s in of_training if s.subject == subject],
            [s for s in always if s.subject == subject],
        )
        for subject in sorted({s.subject for s in (*of_training, *failed)}, key=lambda name: (len(name), name))
    )


def _device(journal: Journal, subject: str, own: Sequence[Sample], always: Sequence[Sample]) -> Device:
    # What a GPU does not support is in its first sample only, which may come before the first step.
    names = sorted({name for s in always for name in s.values} - _NO_GAUGES)
    values: dict[str, Distribution | None] = {
        name: statistics.distribution(np.array(values_of(own, name))) for name in names
    }
    facts = _facts(journal, subject)
    distinct, longest = _refreshed(own, facts.utilization_refresh_s)
    busy = [s for s in own if _is_busy(s)]
    return Device(
        name=str(journal.conditions.get(f"{subject}.name") or subject),
        uuid=str(journal.conditions.get(f"{subject}.uuid") or ""),
        samples=len(own),
        values=values,
        subject=subject,
        facts=facts,
        distinct_samples=distinct,
        longest_repeat_samples=longest,
        throttle=_throttle(own, busy),
        busy=DeviceBusy(
            samples=len(busy),
            sm_clock_median_mhz=_median(values_of(busy, "sm_clock_mhz")),
            power_median_w=_median(values_of(busy, "power_w")),
            sm_clock_free_median_mhz=_median(values_of([s for s in busy if _is_free(s)], "sm_clock_mhz")),
        ),
        energy=_energy(journal, always),
        errors=tuple(
            ErrorCounter(name=name, first=read[0], last=read[-1])
            for name in ERROR_COUNTERS
            if (read := values_of(always, name))
        ),
        xids=xids(journal, subject),
    )


def xids(journal: Journal, subject: str | None = None) -> tuple[int, ...]:
    """Codes of the critical errors that the driver reported, of one GPU or of all.

    Args:
        journal: The journal.
        subject: The GPU, as ``gpu0``; None: all.

    Returns:
        In the order of the journal, each as often as it was reported; empty if there were none.
    """
    return tuple(int(s.values[XID] or 0) for s in journal.samples if XID in s.values and subject in (None, s.subject))


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


_OF_TORCH = {
    "multiprocessors_count": "device.multiprocessors",
    "threads_per_multiprocessor_count": "device.threads_per_multiprocessor",
    "threads_per_block_count": "device.threads_per_block",
    "threads_per_warp_count": "device.threads_per_warp",
    "registers_per_multiprocessor_count": "device.registers_per_multiprocessor",
    "shared_memory_per_multiprocessor_bytes": "device.shared_per_multiprocessor_bytes",
    "shared_memory_per_block_bytes": "device.shared_per_block_bytes",
    "l2_cache_bytes": "device.l2_cache_bytes",
}
"""Facts that the driver does not report: torch's, of the GPU that this process trains on."""


def _facts(journal: Journal, subject: str) -> DeviceFacts:
    prefix = f"{subject}."
    given = {name.removeprefix(prefix): value for name, value in journal.conditions.items() if name.startswith(prefix)}
    if journal.conditions.get("device.name") == journal.conditions.get(f"{prefix}name"):
        of_torch = {name: journal.conditions.get(condition) for name, condition in _OF_TORCH.items()}
        given |= {name: value for name, value in of_torch.items() if isinstance(value, int)}
    known = {name: value for name, value in given.items() if name in DeviceFacts.__struct_fields__}
    try:
        return msgspec.convert(known, DeviceFacts, strict=False)  # older journals have counts as 2.0
    except msgspec.ValidationError:  # a damaged line, or another program's fact of the same name
        return DeviceFacts()


def _refreshed(samples: Sequence[Sample], refresh_s: float | None) -> tuple[int | None, int | None]:
    """Samples whose utilization the driver had renewed since the one before, and most equal ones in a row.

    If the driver does not report how often it renews, only a change shows that it did.
    """
    read = [s for s in samples if s.values.get("utilization_ratio") is not None]
    if not read:
        return None, None
    pairs = [(s.values.get("utilization_ratio"), s.values.get("memory_utilization_ratio")) for s in read]
    runs = [len(list(run)) for _, run in itertools.groupby(pairs)]
    if refresh_s:
        times_ns = np.array([s.t_ns for s in read], np.int64)
        periods = (times_ns - times_ns[0]) // max(1, round(refresh_s * 1e9))
        return len(np.unique(periods)), max(runs)
    return len(runs), max(runs)


def _is_busy(sample: Sample) -> bool:
    utilization, mask = sample.values.get("utilization_ratio"), sample.values.get(MASK)
    if utilization is not None:
        return utilization >= BUSY_UTILIZATION_RATIO
    return mask is not None and not int(mask) & REASONS["gpu_idle"]


def _throttle(samples: Sequence[Sample], busy: Sequence[Sample]) -> tuple[ThrottleShare, ...] | None:
    masks, busy_masks = values_of(samples, MASK), values_of(busy, MASK)
    if not masks:
        return None
    shares = [
        ThrottleShare(
            reason=reason,
            ratio=_share(masks, bit),
            busy_ratio=_share(busy_masks, bit) if busy_masks else None,
            sm_clock_median_mhz=_median(values_of([s for s in busy if _mask(s) & bit], "sm_clock_mhz")),
        )
        for reason, bit in REASONS.items()
    ]
    return tuple(sorted((share for share in shares if share.ratio > 0), key=lambda share: -share.ratio))


def _mask(sample: Sample) -> int:
    return int(sample.values.get(MASK) or 0)


def _is_free(sample: Sample) -> bool:
    """Whether the driver reports why clocks are throttled, and none is."""
    limits = (bit for reason, bit in REASONS.items() if reason not in NO_LIMIT)
    return sample.values.get(MASK) is not None and not any(_mask(sample) & bit for bit in limits)


def _share(masks: Sequence[float], bit: int) -> float:
    return sum(bool(int(mask) & bit) for mask in masks) / len(masks)


def _energy(journal: Journal, samples: Sequence[Sample]) -> DeviceEnergy | None:
    """From the counter's readings around and in training; None if it is not there or went back."""
    steps = journal.steps
    read = [(s.t_ns, value) for s in samples if (value := s.values.get(ENERGY)) is not None]
    if len(read) < 2 or not len(steps):
        return None
    begin_ns, end_ns = int(steps.start_ns[0]), steps.end_ns
    times_ns, joules = (np.array(column, np.float64) for column in zip(*read, strict=True))
    first_ns, last_ns = max(begin_ns, times_ns[0]), min(end_ns, times_ns[-1])
    if last_ns <= first_ns or (np.diff(joules) < 0).any():
        return None
    measured_j = float(np.interp(last_ns, times_ns, joules) - np.interp(first_ns, times_ns, joules))
    covered = float(last_ns - first_ns) / (end_ns - begin_ns)
    if covered < MIN_COVERED_RATIO:
        return None
    total_j = measured_j / covered
    return DeviceEnergy(
        total_j=total_j,
        per_step_j=total_j / len(steps),
        mean_w=total_j / ((end_ns - begin_ns) / 1e9),
        covered_ratio=covered,
    )
