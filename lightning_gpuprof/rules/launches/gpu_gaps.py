"""In most steps, the GPU idles for more than a millisecond at a time while the host launches nothing.

## What it means
In the middle of the step, the host does other work: it builds a mask or a graph in numpy, matches boxes, decodes text,
computes a metric, waits for a file or a lock, or asks the driver for memory. The launch queue runs dry.

## How it is measured
The rule takes the longest gaps of a trace window, above 1 ms and 2 % of the step, with the causes `host_work` and
`allocator`: the host launched nothing and was in no fetch, callback, checkpoint or wait for the GPU. They are grouped
by the line, else the function or operator, in which the host was. A group counts if half of the traced steps, and at
least two, have such a gap. The time is scaled to untraced steps as for `sync-points`. It is also the gain.

## When it is wrong
- Only the 20 longest gaps of a window are known, so the time is a lower bound.
- Without stacks (`TraceConfig(with_stack=True)`) the place is an operator, a range or a phase, not a line.

## What to do
Move the work to the GPU, into the Dataset, or out of the step.
"""

from collections.abc import Iterable

from lightning_gpuprof.model.code_place import in_words
from lightning_gpuprof.model.device_step import ExplainedStep, GapPlace
from lightning_gpuprof.model.numbers import listed
from lightning_gpuprof.model.trace.idle import IdleCause
from lightning_gpuprof.rules.base import Advice, Change, Finding, Metrics, MissingSignal, claims, millis, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_applicable, not_evaluated, quiet
from lightning_gpuprof.rules.launches.step_rule import StepRule

_EXPANDABLE = "expandable_segments:True"
_CAUSES: tuple[IdleCause, ...] = ("host_work", "allocator")
"""The others have rules of their own: data, callbacks, waits, launches."""


def _other(ms: float) -> dict[str, float]:
    """Steps of an example: 9 ms of kernels, and what the host does beside launching."""
    return {"kernels": 90, "other_us": 1e3 * ms}


class GpuGaps(StepRule):
    id = "gpu-gaps"
    title = "Host work leaves the GPU idle mid-step"
    explains = claims.HOST_ELSEWHERE

    least_gap_ms: float = threshold(1.0, source="heuristic: 1 ms, and 2 % of the step")
    least_gap_ratio: float = threshold(0.02, source="heuristic: of the step")
    least_steps_ratio: float = threshold(0.5, source="heuristic: of the traced steps")
    least_ratio: float = threshold(0.05, source="heuristic, as for sync-points")

    examples = (
        fires(
            "the host launches nothing for 16 ms",
            "critical",
            "it is in match() (loss.py:31) in forward. The longest gap",
            step=_other(16.0),
        ),
        fires(
            "the host launches nothing for 10.5 ms", "critical", "Move the host's work in match()", step=_other(10.5)
        ),
        quiet("the host launches nothing for 8.2 ms", step=_other(8.2)),
        looks_alike("the queue covers it", step=_other(6.0)),
        looks_alike("the GPU waits for a batch", step={**_other(0.0), "fetch_us": 30_000.0}),
        looks_alike("only tracing makes the gap", step=_other(16.0), period_ms=9.2),
        not_evaluated("one step was traced", "trace at least 2", step=_other(16.0), traced=1),
        not_applicable("the model is on the CPU", "runs on the CPU"),
        not_evaluated("there is no trace window", "no trace window was recorded", run={"device.type": "cuda"}),
    )

    def judge(self, metrics: Metrics, step: ExplainedStep) -> Finding | None:
        least_ms = max(self.least_gap_ms, self.least_gap_ratio * step.period_ms)
        gaps = step.long_gaps(_CAUSES, least_ms)
        owners = [one for one in gaps if one.steps >= max(2.0, self.least_steps_ratio * step.steps)]
        cost_ms = step.estimate_ms(sum(owner.traced_ms for owner in owners))
        cost = metrics.cost(cost_ms, step.lower_ms(cost_ms))
        if not cost.is_worth(self.least_ratio):
            if step.steps < 2 and gaps:
                raise MissingSignal("one traced step does not show whether its gaps come back: trace at least 2")
            return None
        worst = owners[0]
        longest_ms = max(owner.longest_ms for owner in owners)
        named = [_named(owner, step.estimate_ms(owner.traced_ms) if len(owners) > 1 else None) for owner in owners[:3]]
        return self.of_step(
            step,
            cost,
            subject=worst.place,
            summary=f"The GPU idles {cost} while the host launches no kernels: it is in {listed(named)}. "
            f"The longest gap is {millis(longest_ms)}.",
            advice=_advice(metrics, worst),
            evidence=(
                self.evidence("least_ratio", cost.ratio, "long gaps, share of the step"),
                self.fact("gaps per traced step", sum(owner.gaps for owner in owners) / step.steps),
                self.evidence("least_gap_ms", longest_ms, "longest gap", "ms", limit=least_ms),
            ),
            explains=claims.ALLOCATOR if _mostly_allocates(owners) else None,
        )


def _mostly_allocates(owners: Iterable[GapPlace]) -> bool:
    """Whether most of the time is spent in calls of the driver's allocator, which rules on memory explain, too."""
    return sum(owner.traced_ms if owner.allocates else -owner.traced_ms for owner in owners) > 0


def _named(owner: GapPlace, its_ms: float | None) -> str:
    where = f" in {owner.phase}" if owner.phase and owner.phase != owner.place else ""
    return f"{in_words(owner.place)}{where}{'' if its_ms is None else f' ({millis(its_ms)})'}"


def _advice(metrics: Metrics, owner: GapPlace) -> Advice:
    place = in_words(owner.place)
    if not owner.allocates:
        return (f"Move the host's work in {place} to the GPU or into the Dataset, or do it only every N steps.", None)
    text = (
        f"Keep shapes stable and leave torch.cuda.empty_cache() out: {place} asks the driver for memory in every step."
    )
    if _EXPANDABLE in str(metrics.condition("allocator.settings")):
        return text, None
    line = f"PYTORCH_CUDA_ALLOC_CONF={_EXPANDABLE}"
    return f"{text} Also set {line}.", Change(add=(line,), place="in the environment")
