"""One rank needs much more GPU memory than another, and its GPU limits the batch size of all.

## What it means
Ranks with the same part of the model need about the same memory. If one needs more, its GPU is full first, while the
others have room. Often it is rank 0: it gathers outputs, or all ranks put tensors on the first GPU of the host.

## How it is measured
Each rank leaves the peak of torch's allocator in its summary, and what is in use on its GPU beyond that (NVML: CUDA's
context, NCCL, other processes). Where the second is not known of all ranks, only the first is compared. The rule speaks
if the fullest and the emptiest GPU differ by a fifth of the fullest. It is a warning if they differ by three tenths and
the fullest is nearly full. Memory costs no time, so there is no gain. Ranks of another pipeline stage are left out.

## When it is wrong
- If the lengths of batches vary, peaks differ by chance, the more so in a short run.
- What is in use beyond torch's allocator may be another program's (`gpu-shared`).

## What to do
Load checkpoints with `map_location="cpu"`, create tensors on `self.device`, and move what is gathered to the host.
"""

import statistics

from lightning_gpuprof.model.missing import NotApplicable
from lightning_gpuprof.model.rank_memory import RankMemory, RankNeed
from lightning_gpuprof.rules.base import (
    BaseRule,
    Finding,
    Metrics,
    MissingSignal,
    gib,
    measured,
    percent,
    possible,
    threshold,
)
from lightning_gpuprof.rules.examples import fires, looks_alike, not_applicable, not_evaluated, quiet

_GATHERED = {"tensors_gib": (30.0, 20.0, 20.0, 20.0)}
_FIRST_GPU = {"tensors_gib": (20.0,) * 4, "outside_gib": (14.0, 1.0, 1.0, 1.0)}


class RankMemoryImbalance(BaseRule):
    id = "rank-memory-imbalance"
    title = "Ranks need unequal GPU memory"
    needs = "ranks"
    certainty = 0.8

    least_ratio: float = threshold(0.20, source="TraceML: ranks differ by 0.20")
    warning_ratio: float = threshold(0.30, source="TraceML: ranks differ by 0.30")
    short_ratio: float = threshold(0.80, source="heuristic: of the GPU's memory, so that it matters")

    examples = (
        fires(
            "rank 0 gathers 10 GiB",
            "info",
            "Rank 0 needs 30 GiB ... rank 1 20 GiB ... Find what",
            rank_memory=_GATHERED,
        ),
        fires(
            "the ranks hold 13 GiB on the first GPU",
            "warning",
            'Load checkpoints with torch.load(..., map_location="cpu") ... 13 GiB',
            rank_memory=_FIRST_GPU,
        ),
        quiet("the ranks need the same", rank_memory={"tensors_gib": (20.0, 21.0, 20.0, 20.0)}),
        quiet("there is one rank"),
        looks_alike("each pipeline stage has its own layers", rank_memory={"tensors_gib": (30.0, 30.0), "ranks": 4}),
        not_evaluated("other ranks left no peak", "1 rank of 4", rank_memory={"tensors_gib": (30.0,), "ranks": 4}),
        not_applicable("the model runs on the CPU", "on the CPU", rank_memory={**_GATHERED, "device": "cpu"}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        if not metrics.is_distributed:
            return None
        if metrics.is_cpu_only:
            raise NotApplicable("the model runs on the CPU")
        if metrics.rank_memory is None:
            raise MissingSignal("the ranks were not compared")
        found = measured(metrics.rank_memory)
        fullest, emptiest = found.fullest, found.emptiest
        most, least = fullest.gpu.needed_bytes, emptiest.gpu.needed_bytes
        if not (possible(most) and possible(least)) or most == 0:
            raise MissingSignal("the peak of the allocator is not a valid number")
        ratio, total = (most - least) / most, fullest.gpu.total_bytes
        if ratio < self.least_ratio:
            return None
        filled = most / total if total is not None and possible(total) and total > 0 else None
        is_short = ratio >= self.warning_ratio and filled is not None and filled >= self.short_ratio
        advice = _of_its_own(fullest) if (outside := _beyond_others(found)) is None else _of_others(fullest, outside)
        return self.finding(
            severity="warning" if is_short else "info",
            subject=f"rank {fullest.rank}",
            summary=(
                f"Rank {fullest.rank} needs {gib(most)} of GPU memory, rank {emptiest.rank} {gib(least)}: "
                f"{percent(ratio)} less. The fullest GPU limits the batch size of all ranks."
            ),
            advice=advice,
            evidence=(
                self.evidence(
                    "warning_ratio" if is_short else "least_ratio", ratio, "difference, share of the fullest GPU's need"
                ),
                self.fact(f"peak of tensors of rank {fullest.rank}", fullest.gpu.tensors_bytes, "bytes"),
                self.fact(f"in use on its GPU beyond torch of rank {fullest.rank}", fullest.gpu.outside_bytes, "bytes"),
                None if filled is None else self.evidence("short_ratio", filled, "needed memory, share of its GPU"),
            ),
        )


def _beyond_others(found: RankMemory) -> float | None:
    """What is in use on the fullest GPU beyond torch and the median of the others; None: its own tensors are more."""
    fullest = found.fullest.gpu
    others = [one.gpu for one in found.ranks if one.gpu is not fullest]
    tensors = fullest.tensors_bytes - statistics.median(one.tensors_bytes for one in others)
    outside = (fullest.outside_bytes or 0.0) - statistics.median(one.outside_bytes or 0.0 for one in others)
    return outside if outside > tensors else None


def _of_others(fullest: RankNeed, outside: float) -> str:
    return (
        'Load checkpoints with torch.load(..., map_location="cpu"), and create tensors on self.device rather than on '
        f'"cuda:0": on the GPU of rank {fullest.rank}, {gib(outside)} are not its own tensors. `nvidia-smi` lists '
        "whose they are."
    )


def _of_its_own(fullest: RankNeed) -> str:
    return (
        f"Find what only rank {fullest.rank} keeps on its GPU: outputs gathered from all ranks, a copy of the weights, "
        "work behind `is_global_zero`. Move it to the host. If batches differ in length, give all ranks the same."
    )
