"""Finds that a GPU's memory had errors during the run."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.device import ErrorCounter
from lightning_gpuprof.model.finding import Finding, Severity
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.report import Device
from lightning_gpuprof.rules.base import MissingSignal, NotApplicable, possible, threshold
from lightning_gpuprof.rules.hardware import gpus
from lightning_gpuprof.rules.wording import listed

_WORDS: dict[str, tuple[str, Severity]] = {
    "ecc_uncorrected_count": ("uncorrected ECC errors", "critical"),
    "retired_pages_count": ("retired pages of memory", "warning"),
    "remapped_rows_count": ("remapped rows of memory", "warning"),
    "memory_repair_pending_count": ("a repair of memory that waits for a reset", "warning"),
    "ecc_corrected_count": ("corrected ECC errors", "info"),
}
"""What people call a counter, and how bad its rise is; worst first."""

_PENDING = "memory_repair_pending_count"

_ADVICE: dict[Severity, str] = {
    "critical": "Stop using {place}: data in its memory was wrong and could not be corrected. Go back to a checkpoint "
    "from before this run's errors, and have the GPU drained, reset and tested.",
    "warning": "Have {place} drained and reset: nvidia-smi -i {place} --gpu-reset (needs root), and look for Xid "
    "messages of the driver: dmesg | grep -i xid.",
    "info": "Nothing to do for this run: the errors of {place} were corrected. Have the rate watched: nvidia-smi -i "
    "{place} -q -d ECC.",
}


@dataclass(frozen=True, kw_only=True)
class EccXid(gpus.GpuRule):
    """The GPU's memory had errors while this run used it.

    ## What it means

    Memory with ECC corrects single errors and detects worse ones. An uncorrected error means wrong data, and mostly the
    end of the process. A row that was remapped or a page that was retired is memory that has gone bad; a repair that
    waits needs a reset of the GPU before it works.

    ## How it is measured

    The driver's counters (NVML) at the first and last reading of the run. What they had counted before the run is no
    finding, but for a repair that still waits. Uncorrected errors are critical, remapped rows, retired pages and
    waiting repairs a warning, corrected errors information.

    ## When it is wrong

    - GPUs without ECC, or with ECC off, have no counters: where the driver says so there is nothing to judge, else it
      is not evaluated.
    - Other errors of the driver (Xid) are in the kernel's log, which is not read.
    - The last reading may miss what happened in the last minute, if the process was killed.

    ## What to do

    Uncorrected errors: go back to a checkpoint from before, drain the GPU. Else have it reset and watched.

    ## Example

    "NVIDIA H200 (gpu0) had 2 uncorrected ECC errors during this run."
    """

    id = "ecc-xid"

    least_errors: int = threshold(1, source="the rule catalogue: any")

    def judge(self, metrics: Metrics, device: Device) -> Finding | None:
        """Judge the counters of a GPU."""
        counters = {c.name: c for c in device.errors if c.name in _WORDS and possible(c.first) and possible(c.last)}
        if not counters and device.facts.ecc is False:
            raise NotApplicable("ECC is off on this GPU")
        if not counters:
            raise MissingSignal("this GPU, or its driver, has no counters of memory errors")
        risen = {name: count for name in _WORDS if name in counters and (count := self._count(counters[name]))}
        if not risen:
            return None
        worst = _WORDS[next(iter(risen))][1]
        return self.finding(
            severity=worst,
            subject=gpus.title(device),
            summary=f"{gpus.title(device)} had {listed([_said(name, count) for name, count in risen.items()])} during "
            "this run.",
            advice=_ADVICE[worst].format(place=gpus.place(device)),
            evidence=tuple(self.evidence("least_errors", count, _WORDS[name][0]) for name, count in risen.items()),
        )

    def _count(self, counter: ErrorCounter) -> int:
        risen = counter.last if counter.name == _PENDING else counter.last - counter.first
        return int(risen) if risen >= self.least_errors else 0


def _said(name: str, count: int) -> str:
    words = _WORDS[name][0]
    if name == _PENDING:
        return words
    for many, one in (("errors", "error"), ("rows", "row"), ("pages", "page")):
        words = words.replace(many, one) if count == 1 else words
    return f"{count:,} {words}"
