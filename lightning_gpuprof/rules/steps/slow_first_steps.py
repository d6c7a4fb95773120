"""The first steps, before the run is steady, take long.

## What it means
The first steps compile (`torch.compile`, Triton kernels), try algorithms (cuDNN's benchmark), grow the allocator and
load libraries. In a long run that is nothing; a short run, or one that is restarted often, pays it each time.

## How it is measured
What the warm-up steps took more than as many steady ones, without waiting for data, validation, checkpoints and traced
steps. Reported from 60 s on, or from 5 s if that is 2 % of the run. Information only: it happens once.

## When it is wrong
- The run may be a short trial of a long one.
- On a machine that others use the first steps may wait for a CPU. Where other programs take a quarter of this run's
  CPUs at that time, the rule is not evaluated.
- Steps that become faster within the first fifth of the run count as warm-up.

## What to do
Keep what was compiled: `TORCHINDUCTOR_CACHE_DIR` on a disk that survives the job, `TRITON_CACHE_DIR` likewise; compile
the repeated block of a model instead of the whole.
"""

from lightning_gpuprof.model.loading import CROWDED_RATIO
from lightning_gpuprof.model.numbers import counted, cpus, percent, possible, seconds
from lightning_gpuprof.rules.base import BaseRule, Finding, Metrics, MissingSignal, claims, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet


class SlowFirstSteps(BaseRule):
    id = "slow-first-steps"
    title = "The first steps are slow"

    least_ratio: float = threshold(0.02, source="heuristic: of the run")
    least_s: float = threshold(5.0, source="heuristic: less matters in no run")
    always_s: float = threshold(60.0, source="heuristic")
    most_taken_ratio: float = threshold(CROWDED_RATIO, source="heuristic: as for workers that others make slow")

    examples = (
        fires("12 take 6 s more", "info", "6.00 s longer ... (28 % ... [(1, 3)]", saves_ms=15.0, warm_up_s=6.0),
        fires("cuDNN tries", "info", "benchmark=True", warm_up_s=6.0, run={"flags.cudnn_benchmark": True}),
        quiet("the steps take 0.3 s more", warm_up_s=0.3),
        looks_alike("the excess is 10 s of 10 minutes", warm_up_s=10.0, steps=12_000),
        not_evaluated("it never became steady", "never became steady"),
        not_evaluated("others computed", "other programs used 2.0 of 4 CPUs", warm_up_s=6.0, taken_in_warm_up=2.0),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        total_s = metrics.run_s
        steps, excess_s = metrics.evenness.warmup_steps, metrics.evenness.warmup_excess_s
        if steps is None or excess_s is None or not possible(abs(excess_s)):
            raise MissingSignal("the run never became steady")
        ratio = excess_s / total_s
        if steps < 1 or not (excess_s >= self.always_s or (excess_s >= self.least_s and ratio >= self.least_ratio)):
            return None
        taken, usable = metrics.evenness.warmup_taken_cpus, metrics.cpu.usable_cpus
        if taken is not None and possible(usable) and taken >= self.most_taken_ratio * usable:
            raise MissingSignal(f"other programs used {taken:.1f} of {cpus(usable)} during the first steps")
        compiled_s = metrics.compile.compile_s if metrics.compile is not None else 0.0
        compiling = f" torch.compile took {seconds(compiled_s)}." if compiled_s >= 0.1 * excess_s else ""
        return self.finding(
            severity="info",
            subject="torch.compile" if compiled_s >= 0.5 * excess_s else "warm-up",
            summary=f"The first {counted(steps, 'step')} take {seconds(excess_s)} longer than steady ones "
            f"({percent(ratio)} of the run).{compiling}",
            advice=_advice(metrics, compiled_s, excess_s),
            evidence=(
                self.evidence("least_ratio", ratio, "excess of the warm-up, share of the run"),
                self.evidence("least_s", excess_s, "excess of the warm-up", "s"),
                self.fact("compiling", compiled_s, "s"),
            ),
            cost=metrics.run_cost(excess_s),
            confidence=0.6,
            explains=claims.WARM_UP,
        )


def _advice(metrics: Metrics, compiled_s: float, excess_s: float) -> str:
    if compiled_s >= 0.5 * excess_s:
        return (
            "Keep compiled code between runs: point TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR to a folder that "
            "survives the job. Or compile the repeated block instead of the whole model."
        )
    if metrics.condition("flags.cudnn_benchmark") is True:
        why = "cuDNN tries algorithms whenever it meets a new shape"
        return f"Leave Trainer(benchmark=True) out of short runs, or keep shapes the same: {why}."
    return "Trace the first steps to see what they do: GpuProfiler(windows=[(1, 3)])"
