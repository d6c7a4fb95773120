"""Finds long stretches without device work that come back in the steps, and who holds the host meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.trace.idle import IdleCause, IdleGap
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, MissingSignal, gain, severity, threshold, worthwhile
from lightning_gpuprof.rules.launches.device_idle import confidence, explained_step, remark, step_evidence
from lightning_gpuprof.rules.wording import counted, listed, millis

_CAUSES: tuple[IdleCause, ...] = ("host_work", "allocator")
"""The others have rules of their own: data, callbacks, waits, launches."""


@dataclass(frozen=True, kw_only=True)
class _Owner:
    """Long gaps with the same place on the host."""

    place: str
    phase: str
    gaps: int
    steps: int
    """Steps that have one."""
    traced_ms: float
    """Per traced step."""
    longest_ms: float
    allocates: bool


@dataclass(frozen=True, kw_only=True)
class GpuGaps(BaseRule):
    """In most steps the device has nothing to do for over a millisecond at a time: the host is at something else.

    ## What it means

    Within the model's own phases the host does work on the CPU: it builds a mask or a graph in numpy, matches boxes,
    decodes a text, computes a metric, waits for a file or a lock, or asks the driver for memory. The queue runs dry.

    ## How it is measured

    The longest idle stretches of the device in a trace window, of more than 1 ms and 2 % of the period, whose time goes
    to the causes `host_work` and `allocator`: the host launched nothing and was in no fetch, callback, checkpoint or
    wait for the device. They are put together by the line, else the function or operator, that held the host. An owner
    counts if half of the traced steps, and at least two, have such a gap: what happens once is no property of the step.
    The time is scaled to untraced steps as for `sync-points` and has to pass 5 % of the period. The gain is that time.

    ## When it is wrong

    - Only the 20 longest gaps of a window are looked at, so the time is a lower bound.
    - Without stacks (`TraceConfig(with_stack=True)`) the owner is an operator, a range or a phase, not a line.
    - A host that sleeps shows as a gap here only if the device runs dry meanwhile, which is when it costs.

    ## What to do

    Move the work to the device, into the Dataset, or out of the step.

    ## Example

    "At loss.py(31): match the host holds the device up for 4.10 ms of 21.0 ms per step: move it to the device, into the
    Dataset, or run it every N steps"
    """

    id = "gpu-gaps"

    least_gap_ms: float = threshold(1.0, source="the catalogue: 1 ms, and 2 % of the period")
    least_gap_ratio: float = threshold(0.02, source="the catalogue: of the period")
    least_steps_ratio: float = threshold(0.5, source="heuristic: of the traced steps")
    least_ratio: float = threshold(0.05, source="heuristic, as for sync-points")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the longest gaps of the window."""
        step = explained_step(metrics)
        owners = self._owners(step)
        cost_ms = step.estimate_ms(sum(owner.traced_ms for owner in owners))
        lower_ms = step.lower_ms(cost_ms)
        if not worthwhile(cost_ms, step.period_ms) or lower_ms < self.least_ratio * step.period_ms:
            if step.steps < 2 and self._long_gaps(step):
                raise MissingSignal("one traced step does not tell whether its gaps come back: trace at least 2")
            return None
        worst = owners[0]
        told = [f"{_named(owner)} ({millis(step.estimate_ms(owner.traced_ms))})" for owner in owners[:3]]
        return self.finding(
            severity=severity(lower_ms / step.period_ms, metrics.steps.steady_count),
            subject=worst.place,
            summary=(
                f"The device has nothing to do for {millis(cost_ms)} of {millis(step.period_ms)} per step, in gaps of "
                f"up to {millis(max(owner.longest_ms for owner in owners))}, while the host launches nothing: "
                f"{listed(told)}.{remark(step)}"
            ),
            advice=_advice(worst),
            evidence=(
                self.evidence("least_ratio", cost_ms / step.period_ms, "long gaps, share of the step"),
                Evidence(name="gaps per traced step", value=sum(owner.gaps for owner in owners) / step.steps),
                self.evidence(
                    "least_gap_ms",
                    max(owner.longest_ms for owner in owners),
                    "longest gap",
                    "ms",
                    limit=max(self.least_gap_ms, self.least_gap_ratio * step.period_ms),
                ),
                *step_evidence(step),
            ),
            gain=gain(cost_ms, lower_ms, step.period_ms),
            confidence=confidence(step),
            explains=claims.ALLOCATOR if _mostly_allocates(owners) else claims.HOST_ELSEWHERE,
        )

    def _long_gaps(self, step: ExplainedStep) -> list[IdleGap]:
        least_us = max(self.least_gap_ms, self.least_gap_ratio * step.period_ms) * 1e3
        return [gap for gap in step.device.longest if gap.cause in _CAUSES and gap.duration_us > least_us]

    def _owners(self, step: ExplainedStep) -> list[_Owner]:
        by_place: dict[tuple[str, str], list[IdleGap]] = {}
        for gap in self._long_gaps(step):
            by_place.setdefault((_place(gap), gap.phase or ""), []).append(gap)
        owners = [_owner(place, phase, gaps, step.steps) for (place, phase), gaps in by_place.items()]
        least_steps = max(2.0, self.least_steps_ratio * step.steps)
        return sorted((owner for owner in owners if owner.steps >= least_steps), key=lambda owner: -owner.traced_ms)


def _owner(place: str, phase: str, gaps: Iterable[IdleGap], steps: int) -> _Owner:
    gaps = list(gaps)
    return _Owner(
        place=place,
        phase=phase,
        gaps=len(gaps),
        steps=len({gap.step for gap in gaps}),
        traced_ms=sum(gap.causes_us.get(cause, 0.0) for gap in gaps for cause in _CAUSES) / 1e3 / steps,
        longest_ms=max(gap.duration_us for gap in gaps) / 1e3,
        allocates=all(gap.cause == "allocator" for gap in gaps),
    )


def _mostly_allocates(owners: Iterable[_Owner]) -> bool:
    """Whether most of the time is spent in calls of the driver's allocator, which rules on memory explain, too."""
    return sum(owner.traced_ms if owner.allocates else -owner.traced_ms for owner in owners) > 0


def _place(gap: IdleGap) -> str:
    if gap.line is not None:
        return gap.line.frame
    return (gap.host or gap.phase or "the host").removeprefix("[pl][profile]")


def _named(owner: _Owner) -> str:
    where = f" in {owner.phase}" if owner.phase and owner.phase != owner.place else ""
    return f"{owner.place}{where}, {counted(owner.gaps, 'gap')}"


def _advice(owner: _Owner) -> str:
    place = owner.place
    if owner.allocates:
        return (
            f"The driver is asked for memory in every step at {place}: keep shapes stable, leave "
            "torch.cuda.empty_cache() out, and set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
        )
    return f"Look at what the host does at {place}: move it to the device, into the Dataset, or run it every N steps."
