"""Points out that the steps before the run is steady take long."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    condition,
    possible,
    run_s,
    threshold,
    worthwhile_gain,
)
from lightning_gpuprof.rules.wording import counted, percent, seconds


@dataclass(frozen=True, kw_only=True)
class SlowFirstSteps(BaseRule):
    """The steps before the run is steady take long.

    ## What it means

    The first steps compile (`torch.compile`, Triton kernels), try algorithms (cuDNN's benchmark), grow the allocator
    and load libraries. In a long run that is nothing; a short run, or one that is restarted often, pays it each time.

    ## How it is measured

    What the steps of the warm-up took more than as many steady ones, without waiting for data, validation, checkpoints
    and traced steps. It is told from 60 s on, or from 5 s on if it is 2 % of the run. It is information only: it
    happens once.

    ## When it is wrong

    - The run at hand may be a short trial of a long one: then it does not matter.
    - Steps that become faster within the first fifth of the run count as warm-up.

    ## What to do

    Keep what was compiled: `TORCHINDUCTOR_CACHE_DIR` on a disk that survives the job, `TRITON_CACHE_DIR` likewise;
    compile the repeated block of a model instead of the whole.

    ## Example

    "The first 12 steps take 95 s more than steady ones, 9 % of the run; 88 s of it torch.compile."
    """

    id = "slow-first-steps"

    least_ratio: float = threshold(0.02, source="catalogue: of the run")
    least_s: float = threshold(5.0, source="heuristic: below it no run is short enough to care")
    always_s: float = threshold(60.0, source="catalogue")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the warm-up."""
        total_s = run_s(metrics)
        steps, excess_s = metrics.evenness.warmup_steps, metrics.evenness.warmup_excess_s
        if steps is None or excess_s is None or not possible(abs(excess_s)):
            raise MissingSignal("the run never became steady")
        ratio = excess_s / total_s
        if steps < 1 or not (excess_s >= self.always_s or (excess_s >= self.least_s and ratio >= self.least_ratio)):
            return None
        excess_ms, period_ms = excess_s * 1e3 / metrics.steps.count, total_s * 1e3 / metrics.steps.count
        compiled_s = metrics.compile.compile_s if metrics.compile is not None else 0.0
        told = f"; torch.compile was at work for {seconds(compiled_s)}" if compiled_s >= 0.1 * excess_s else ""
        return self.finding(
            severity="info",
            subject="torch.compile" if compiled_s >= 0.5 * excess_s else "warm-up",
            summary=(
                f"The first {counted(steps, 'step')} take {seconds(excess_s)} more than steady ones, "
                f"{percent(ratio)} of "
                f"the run{told}."
            ),
            advice=_advice(metrics, compiled_s, excess_s),
            evidence=(
                self.evidence("least_ratio", ratio, "warm-up above steady steps, of the run"),
                Evidence(name="warm-up above steady steps", value=excess_s, unit="s", limit=self.least_s),
                Evidence(name="compiling", value=compiled_s, unit="s"),
            ),
            gain=worthwhile_gain(excess_ms, excess_ms, period_ms),
            confidence=0.6,
            explains=claims.WARM_UP,
        )


def _advice(metrics: Metrics, compiled_s: float, excess_s: float) -> str:
    if compiled_s >= 0.5 * excess_s:
        return (
            "Keep what was compiled from run to run: TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR in a folder that "
            "survives the job; or compile the block that repeats instead of the whole model."
        )
    if condition(metrics, "flags.cudnn_benchmark") is True:
        return (
            "Trainer(benchmark=True) tries algorithms in the first steps of each shape: leave it out for short runs, "
            "or "
            "keep shapes the same."
        )
    return "Look at the first steps in a trace window: GpuProfiler(windows=[(1, 3)])."
