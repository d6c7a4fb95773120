"""Large tensors are copied back to the host in every step.

## What it means
Outputs collected with `.cpu()`, logged images, offloaded activations or optimizer states cross the link in every step,
and the kernels behind them wait.

## How it is measured
Trace window: copies from the GPU to the host, and of them what certainly no kernel covers. That is also the gain. The
idle time after the host's waits for them is in `sync-points`.

## When it is wrong
- Offloading by choice (DeepSpeed, FSDP with `cpu_offload`) is such traffic, and saves memory.

## What to do
Reduce on the GPU and copy the result; keep outputs there until the epoch ends; copy to pinned memory with
`non_blocking=True` on a stream of its own.
"""

from lightning_gpuprof.model.code_place import in_words
from lightning_gpuprof.model.device_copies import LEAST_BYTES
from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.rules.base import Finding, Metrics, claims, measured, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, quiet
from lightning_gpuprof.rules.launches.step_rule import StepRule
from lightning_gpuprof.rules.transfers.wait_rule import UNTRACED


def _copied(us: float, nbytes: float, count: int = 1, kind: str = "DtoH (Device -> Pageable)") -> dict[str, object]:
    """Steps of an example: 10 ms of kernels after copies."""
    copy = {"kind": kind, "us": us, "nbytes": int(nbytes), "count": count, "phase": "training_step"}
    return {"kernels": 100, "copy": copy}


class D2hTraffic(StepRule):
    id = "d2h-traffic"
    title = "Results are copied to the host each step"
    explains = claims.COPIES_TO_HOST
    certainty = 0.8

    least_bytes: float = threshold(float(LEAST_BYTES), source="heuristic, as for h2d-pageable: 1 MiB per step")
    least_ratio: float = threshold(0.05, source="TraceLens: copies above 5 %")

    examples = (
        fires("18 MB take 3 ms", "critical", "6 GB/s ... (train.py:61)", saves_ms=3, step=_copied(3000, 18e6)),
        fires("3 MB take 0.6 ms", "info", "Reduce on the GPU", step=_copied(600, 3e6)),
        quiet("3 MB take 0.48 ms", step=_copied(480, 3e6)),
        quiet("nothing is copied", step={}),
        looks_alike("single values are read", step=_copied(20, 4, 50)),
        looks_alike("the batch is copied to the GPU", step=_copied(3000, 18e6, kind="HtoD (Pinned -> Device)")),
        *UNTRACED,
    )

    def judge(self, metrics: Metrics, step: ExplainedStep) -> Finding | None:
        copies = measured(step.copies)
        found = copies.of("DtoH")
        cost = metrics.cost(found.exposed_ms, found.exposed_ms)
        if found.total_bytes < self.least_bytes or not cost.is_worth(self.least_ratio):
            return None
        place = copies.place_to_host
        where = f" in {in_words(place)}" if place else ""
        moved_mb, least_mb = found.total_bytes / 1e6, self.least_bytes / 1e6
        return self.of_step(
            step,
            cost,
            subject=place or "outputs",
            summary=f"The GPU waits {cost} for copies to the host: {found}{where}.",
            advice=f"Reduce on the GPU before copying{where}, and do not collect outputs. Copy the rest into pinned "
            "memory with non_blocking=True.",
            evidence=(
                self.evidence("least_ratio", cost.ratio, "exposed copies to the host"),
                self.evidence("least_bytes", moved_mb, "copied to the host per step", "MB", limit=least_mb),
            ),
        )
