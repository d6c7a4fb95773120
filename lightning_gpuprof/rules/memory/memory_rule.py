"""What families of rules about a GPU's memory share: who fills it, and what steady steps ask of the device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.model.finding import SEVERITIES, Evidence, Finding, Gain, Severity
from lightning_gpuprof.model.memory import DeviceMemory as DeviceMemory
from lightning_gpuprof.model.memory_use import MemoryUse as MemoryUse
from lightning_gpuprof.model.missing import MissingSignal, NotApplicable, measured
from lightning_gpuprof.model.signals import is_cpu_only, steady_period_ms
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, Metrics, Words, possible, severity, threshold, worthwhile_gain

if TYPE_CHECKING:
    from typing_extensions import Unpack


def allocator(metrics: Metrics) -> DeviceMemory:
    """Torch's allocator on the device that the run trains on.

    Raises:
        NotApplicable: The model runs on the CPU.
        MissingSignal: No allocator was read.
    """
    if metrics.memory.devices:
        return metrics.memory.devices[0]
    if is_cpu_only(metrics):
        raise NotApplicable("the model runs on the CPU")
    raise MissingSignal("torch's caching allocator was not read")


def memory_use(metrics: Metrics) -> MemoryUse:
    """How full the GPU was.

    Raises:
        MissingSignal: As :func:`allocator`; or the size of the GPU is not known, or a number is impossible.
    """
    allocator(metrics)
    return measured(metrics.holders.use)


@dataclass(frozen=True, kw_only=True)
class ShortMemoryRule(BaseRule, ABC):
    """A rule about what fills a GPU whose memory is short: information, as it costs memory and no time."""

    short_ratio: float = threshold(0.80, source="heuristic: of the GPU's memory, so that it matters")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge what fills the GPU."""
        return self.judge(metrics, memory_use(metrics))

    @abstractmethod
    def judge(self, metrics: Metrics, use: MemoryUse) -> Finding | None:
        """Judge it; whether memory is short is a part of that.

        Args:
            metrics: Metrics of the run.
            use: How full the GPU was at its fullest.
        """

    def of_use(self, use: MemoryUse, **words: Unpack[Words]) -> Finding:
        """The finding, with how full the GPU is.

        Args:
            use: How full the GPU was at its fullest.
            **words: Without that.
        """
        words["evidence"] += (self.evidence("short_ratio", use.ratio, "needed memory, share of the GPU"),)
        return self.finding(**words)


@dataclass(frozen=True, kw_only=True)
class AllocatorCallsRule(BaseRule, ABC):
    """A rule about calls of the allocator in steady steps."""

    explains = claims.ALLOCATOR

    least_steps: int = threshold(20, source="the rule catalogue: 20 steps")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the calls of steady steps.

        Raises:
            NotApplicable: The model runs on the CPU.
            MissingSignal: The allocator was not read, or its calls were counted over fewer than ``least_steps`` steps,
                or too few steps are steady.
        """
        memory, steps = allocator(metrics), allocator(metrics).steady_steps or 0
        steady_period_ms(metrics)
        if steps < self.least_steps:
            raise MissingSignal(
                f"the allocator's calls were counted over {steps} of the {self.least_steps} steady steps needed"
            )
        return self.judge(metrics, memory, steps)

    @abstractmethod
    def judge(self, metrics: Metrics, memory: DeviceMemory, steps: int) -> Finding | None:
        """Judge the calls of so many steady steps.

        Args:
            metrics: Metrics of the run.
            memory: torch's allocator on the GPU.
            steps: Number of steady steps over which its calls were counted.
        """

    def of_calls(self, metrics: Metrics, memory: DeviceMemory, least: Severity, **words: Unpack[Words]) -> Finding:
        """The finding, with what a trace window says about its cost; ``least`` is its severity by number.

        Args:
            metrics: Metrics of the run.
            memory: torch's allocator on the GPU.
            least: Severity by the number of calls; a higher cost raises it.
            **words: Without the number of steady steps.
        """
        gain = _gain(metrics)
        lower_ms = 0.0 if gain is None else gain.saved_lower_ms_per_step or 0.0
        cost = severity(lower_ms / steady_period_ms(metrics), metrics.steps.steady_count)
        words["evidence"] += (Evidence(name="steady steps", value=memory.steady_steps or 0, limit=self.least_steps),)
        return self.finding(severity=min(least, cost, key=SEVERITIES.index), gain=gain, **words)


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


def _gain(metrics: Metrics) -> Gain | None:
    """What steps without calls of the device's allocator gain: at most the idle time of untraced steps that is theirs.

    None if no window of ordinary steps tells, or it is not worthwhile.
    """
    step = metrics.device_step
    if is_cpu_only(metrics) or not isinstance(step, ExplainedStep):
        return None
    if step.analysis.idle is None or "allocator" in step.analysis.idle.unseen:
        return None
    cost_ms = step.cause_ms("allocator")
    return worthwhile_gain(cost_ms, step.lower_ms(cost_ms), step.period_ms) if possible(cost_ms) else None
