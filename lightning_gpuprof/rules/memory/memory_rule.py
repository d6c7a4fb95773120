"""What families of rules about a GPU's memory share: who fills it, and what steady steps ask of the device."""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING

from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.model.finding import SEVERITIES, Evidence, Finding, Severity
from lightning_gpuprof.model.memory import DeviceMemory as DeviceMemory
from lightning_gpuprof.model.memory import MemoryUse as MemoryUse
from lightning_gpuprof.model.missing import MissingSignal, NotApplicable, measured
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import Cost, FamilyRule, Metrics, Words, counted, has_thresholds, possible, threshold

if TYPE_CHECKING:
    from typing_extensions import Unpack


def allocator(metrics: Metrics) -> DeviceMemory:
    """Torch's allocator on the run's device; raises NotApplicable on the CPU, MissingSignal if none was read."""
    if metrics.memory.devices:
        return metrics.memory.devices[0]
    if metrics.is_cpu_only:
        raise NotApplicable("the model runs on the CPU")
    raise MissingSignal("torch's caching allocator was not read")


_LEAST_KEPT_PER_STEP = 0.5
"""Heuristic: fewer items of one container than this are not gained "in every step"."""


def kept_items(metrics: Metrics) -> str:
    """Which list, dictionary or set of the program gains items in every step, and what to do; empty if none does."""
    items, steps = metrics.number("kept.items") or 0.0, metrics.steps.count
    if not steps or items < _LEAST_KEPT_PER_STEP * steps:
        return ""
    name, kind = metrics.condition("kept.in"), str(metrics.condition("kept.kind"))
    keep = "Append loss.detach() instead of loss, and clear it" if "graphs" in kind else "Limit its size, or clear it"
    return f"{name} gained {items:,.0f} {kind} in {counted(steps, 'step')}. {keep} in on_train_epoch_end."


def memory_use(metrics: Metrics) -> MemoryUse:
    """How full the GPU was; raises as :func:`allocator`, and MissingSignal if its size is not known."""
    allocator(metrics)
    return measured(metrics.holders.use)


@has_thresholds
class ShortMemoryRule(FamilyRule[MemoryUse], ABC):
    """A rule about what fills a GPU whose memory is short: information, as it costs memory and no time."""

    short_ratio: float = threshold(0.80, source="heuristic: of the GPU's memory, so that it matters")

    def look(self, metrics: Metrics) -> MemoryUse:
        """How full the GPU is."""
        return memory_use(metrics)

    def fullness(self, use: MemoryUse) -> Evidence:
        """How full the GPU is, compared with what is short."""
        return self.evidence("short_ratio", use.ratio, "needed memory, share of the GPU")


@has_thresholds
class AllocatorCallsRule(FamilyRule[DeviceMemory], ABC):
    """A rule about calls of the allocator in steady steps."""

    explains = claims.ALLOCATOR

    least_steps: int = threshold(20, source="heuristic: 20 steps")

    def look(self, metrics: Metrics) -> DeviceMemory:
        """Torch's allocator on the GPU.

        Raises as :func:`allocator`, and MissingSignal if fewer than ``least_steps`` steps were counted, or too few are
        steady.
        """
        memory, steps = allocator(metrics), allocator(metrics).steady_steps or 0
        metrics.require_steady()
        if steps < self.least_steps:
            why = f"the allocator's calls were counted over {steps} of the {self.least_steps} steady steps needed"
            raise MissingSignal(why)
        return memory

    def of_calls(self, metrics: Metrics, memory: DeviceMemory, least: Severity, **words: Unpack[Words]) -> Finding:
        """The finding, with what a trace window says about its cost.

        Args:
            metrics: Metrics of the run.
            memory: torch's allocator on the GPU.
            least: Severity by the number of calls; a higher cost raises it.
            **words: Without the number of steady steps.

        Returns:
            As severe as the worse of calls and cost; without a gain if the cost is not known or not worthwhile.
        """
        cost = _cost(metrics)
        levels = (least, "info" if cost is None or not cost.is_worth() else cost.severity)
        words["evidence"] += (Evidence(name="steady steps", value=memory.steady_steps or 0, limit=self.least_steps),)
        return self.finding(severity=min(levels, key=SEVERITIES.index), cost=cost, **words)


def allocs(memory: DeviceMemory) -> int:
    """Calls of cudaMalloc in steady steps."""
    return _counted(memory.device_allocs_steady_count, "calls of cudaMalloc")


def frees(memory: DeviceMemory) -> int:
    """Calls of cudaFree in steady steps."""
    return _counted(memory.device_frees_steady_count, "calls of cudaFree")


def retries(memory: DeviceMemory) -> int:
    """Allocations in steady steps that first had to give cached memory back."""
    return _counted(memory.retries_steady_count, "retries of the allocator")


def _counted(value: int | None, what: str) -> int:
    if value is None or value < 0:  # this torch does not have the counter, or it went back
        raise MissingSignal(f"{what} were not counted")
    return value


def _cost(metrics: Metrics) -> Cost | None:
    """Of the calls of the device's allocator: at most the idle time of untraced steps that is theirs.

    None without a window of ordinary steps.
    """
    step = metrics.device_step
    if metrics.is_cpu_only or not isinstance(step, ExplainedStep):
        return None
    if step.analysis.idle is None or "allocator" in step.analysis.idle.unseen:
        return None
    cost_ms = step.cause_ms("allocator")
    return metrics.cost(cost_ms, step.lower_ms(cost_ms)) if possible(cost_ms) else None
