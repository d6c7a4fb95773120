"""The GPU had errors during this run.

## What it means
The driver reports critical errors as Xid: 79 is a GPU that has fallen off the bus, 31 an access to memory that is not
there. ECC memory corrects single errors; an uncorrected one means wrong data, and mostly the end of the process.
Remapped rows and retired pages are memory that went bad; a pending repair needs a reset of the GPU.

## How it is measured
Xid: the driver's events (NVML) since the run began, at each sample. Memory: its counters, last reading minus first.
Older counts are no finding, except a pending repair.

## When it is wrong
- GPUs without ECC, or with ECC off, have no counters: nothing to judge if the driver says so, else not evaluated.
- Xid 13, 31, 43, 45 and 69 are mostly errors of the program, but a broken GPU can cause them, too.
- If the process was killed, the last half second of Xid and the last minute of counters may be missing.

## What to do
After uncorrected errors, restart from a checkpoint before them and drain the GPU; otherwise have it reset. Look for the
cause of a program's Xid with `CUDA_LAUNCH_BLOCKING=1` or `compute-sanitizer`.
"""

import re
from collections import Counter
from collections.abc import Sequence

from lightning_gpuprof.model.device import PROGRAM_XIDS, xid_words
from lightning_gpuprof.model.finding import SEVERITIES
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
_OF_PROGRAM = (
    "Look for an index out of bounds or a faulty kernel: CUDA_LAUNCH_BLOCKING=1 python train.py shows the line, "
    "compute-sanitizer python train.py the kernel. If other programs fail on this GPU as well, have it tested."
)
_BROKEN = (
    "Stop using {place}: have it drained, reset and tested (root): nvidia-smi -i {place} --gpu-reset. Look for the "
    "driver's messages: dmesg | grep -i xid."
)
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
    title = "The GPU reported errors"

    least_errors: int = threshold(1, source="heuristic: any")

    examples = (
        fires("it fell off the bus", "critical", "Xid 79 (GPU has fallen off the bus)", gpu={"xids": (79, 79)}),
        fires("the program reads memory that is not there", "critical", "CUDA_LAUNCH", gpu={"xids": (31, 45)}),
        fires("a row was remapped, says the driver", "warning", "dmesg", gpu={"xids": (63,)}),
        fires(
            "memory errors ended the program",
            "critical",
            "Resume from a checkpoint",
            gpu={"xids": (31,), "errors": {"ecc_uncorrected_count": 1}},
        ),
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
        if not counters and not device.xids:
            why = "the GPU or its driver has no counters of memory errors"
            raise NotApplicable("ECC is off on this GPU") if device.facts.ecc is False else MissingSignal(why)
        least = max(1, self.least_errors)
        xids = {xid: count for xid, count in Counter(device.xids).items() if count >= least}
        since = {c.name: c.last if c.name == _PENDING else c.last - c.first for c in counters.values()}
        risen = {name: int(since[name]) for name in _WORDS if since.get(name, 0) >= least}
        if not xids and not risen:
            return None
        of_xids = _worst([_severity(xid) for xid in xids])
        of_memory = _worst([_WORDS[name][1] for name in risen])
        worst = _worst([of_xids, of_memory])
        if worst == of_memory and risen:
            advice = _ADVICE[worst]
        else:
            advice = _OF_PROGRAM if PROGRAM_XIDS.issuperset(xids) else _BROKEN
        had = [*map(xid_words, xids), *(_said(*item) for item in risen.items())]
        return self.finding(
            severity=worst,
            subject=device.title,
            summary=f"{device.title} reported {listed(had)} during this run.",
            advice=advice.format(place=device.place),
            evidence=(
                *(self.evidence("least_errors", count, f"Xid {xid}") for xid, count in xids.items()),
                *(self.evidence("least_errors", count, _WORDS[name][0]) for name, count in risen.items()),
            ),
        )


def _worst(severities: Sequence[Severity]) -> Severity:
    return min(severities, key=SEVERITIES.index, default="info")


def _severity(xid: int) -> Severity:
    """Rows of memory are remapped, and programs that were ended cleaned up, without harm to this run."""
    return "warning" if xid in (63, 92) else "info" if xid == 45 else "critical"


def _said(name: str, count: int) -> str:
    words = _WORDS[name][0] if count > 1 else re.sub("(error|row|page)s", r"\1", _WORDS[name][0])
    return words if name == _PENDING else f"{count:,} {words}"
