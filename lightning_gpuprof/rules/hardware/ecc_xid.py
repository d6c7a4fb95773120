"""The GPU's memory had errors during this run.

## What it means
ECC memory corrects single errors; an uncorrected one means wrong data, and mostly the end of the process. Remapped rows
and retired pages are memory that went bad; a pending repair needs a reset of the GPU.

## How it is measured
The driver's counters (NVML), last reading minus first. Older counts are no finding, except a pending repair.

## When it is wrong
- GPUs without ECC, or with ECC off, have no counters: nothing to judge if the driver says so, else not evaluated.
- Other errors of the driver (Xid) are in the kernel's log, which is not read.
- If the process was killed, the errors of the last minute may be missing.

## What to do
After uncorrected errors, restart from a checkpoint before them and drain the GPU; otherwise have it reset.
"""

import re

from lightning_gpuprof.model.numbers import listed
from lightning_gpuprof.rules.base import Finding, Metrics, MissingSignal, NotApplicable, Severity, possible, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.hardware.gpu_rule import Gpu, GpuRule

_PENDING = "memory_repair_pending_count"
_WORDS: dict[
    str, tuple[str, Severity]
] = {  # by the driver's name: what people call it, and how bad its rise is; worst first
    "ecc_uncorrected_count": ("uncorrected ECC errors", "critical"),
    "retired_pages_count": ("retired memory pages", "warning"),
    "remapped_rows_count": ("remapped memory rows", "warning"),
    _PENDING: ("a pending memory repair", "warning"),
    "ecc_corrected_count": ("corrected ECC errors", "info"),
}
_ADVICE: dict[Severity, str] = {
    "critical": "Stop using {place}: its memory returned wrong data. Resume from a checkpoint older than the errors, "
    "and have the GPU drained, reset and tested.",
    "warning": "Have {place} drained and reset (root): nvidia-smi -i {place} --gpu-reset. Look for Xid messages of the "
    "driver: dmesg | grep -i xid.",
    "info": "No action is needed for this run: the errors were corrected. Watch their rate: "
    "nvidia-smi -i {place} -q -d ECC.",
}


class EccXid(GpuRule):
    id = "ecc-xid"
    title = "GPU memory reported errors"

    least_errors: int = threshold(1, source="heuristic: any")

    examples = (
        fires("one was not corrected", "critical", "1 uncorrected ECC", gpu={"errors": {"ecc_uncorrected_count": 1}}),
        fires("a row was remapped", "warning", "1 remapped memory row", gpu={"errors": {"remapped_rows_count": 1}}),
        fires("a repair is pending", "warning", "pending memory", gpu={"errors": {_PENDING: 1}}),
        fires("errors were corrected", "info", "7 corrected ECC errors", gpu={"errors": {"ecc_corrected_count": 7}}),
        quiet("all errors are older than the run", gpu={"errors": {}}),
        looks_alike("a link failed", gpu={"errors": {"nvlink_recovery_count": 5}}),
        not_evaluated("there are no counters", "no counters of memory errors", gpu={}),
    )

    def judge(self, metrics: Metrics, gpu: Gpu) -> Finding | None:
        device = gpu.device
        counters = {c.name: c for c in device.errors if c.name in _WORDS and possible(c.first) and possible(c.last)}
        if not counters:
            why = "the GPU or its driver has no counters of memory errors"
            raise NotApplicable("ECC is off on this GPU") if device.facts.ecc is False else MissingSignal(why)
        since = {c.name: c.last if c.name == _PENDING else c.last - c.first for c in counters.values()}
        risen = {name: int(since[name]) for name in _WORDS if since.get(name, 0) >= max(1, self.least_errors)}
        if not risen:
            return None
        worst = _WORDS[next(iter(risen))][1]
        return self.finding(
            severity=worst,
            subject=device.title,
            summary=f"{device.title} had {listed([_said(*item) for item in risen.items()])} during this run.",
            advice=_ADVICE[worst].format(place=device.place),
            evidence=tuple(self.evidence("least_errors", count, _WORDS[name][0]) for name, count in risen.items()),
        )


def _said(name: str, count: int) -> str:
    words = _WORDS[name][0] if count > 1 else re.sub("(error|row|page)s", r"\1", _WORDS[name][0])
    return words if name == _PENDING else f"{count:,} {words}"
