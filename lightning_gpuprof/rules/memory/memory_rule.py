"""What families of rules about a GPU's memory share: who fills it, and what steady steps ask of the device."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.finding import Evidence, Finding, Severity
from lightning_gpuprof.model.memory import DeviceMemory
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, steady_period_ms, threshold
from lightning_gpuprof.rules.memory import gpu_memory


@dataclass(frozen=True, kw_only=True)
class ShortMemoryRule(BaseRule):
    """A rule about what fills a GPU whose memory is short: information, as it costs memory and no time."""

    short_ratio: float = threshold(gpu_memory.SHORT_RATIO, source="heuristic: of the GPU's memory, so that it matters")

    def told(
        self,
        use: gpu_memory.Use,
        *,
        subject: str,
        summary: str,
        advice: str,
        change: Change | None,
        evidence: tuple[Evidence, ...],
        confidence: float,
    ) -> Finding:
        """The finding, with how full the GPU is."""
        return self.finding(
            severity="info",
            subject=subject,
            summary=summary,
            advice=advice,
            change=change,
            evidence=(*evidence, self.evidence("short_ratio", use.ratio, "needed memory, share of the GPU")),
            confidence=confidence,
        )


@dataclass(frozen=True, kw_only=True)
class AllocatorCallsRule(BaseRule):
    """A rule about calls of the allocator in steady steps."""

    least_steps: int = threshold(20, source="the rule catalogue: 20 steps")

    def counted_steps(self, metrics: Metrics) -> tuple[DeviceMemory, int]:
        """The allocator and the steady steps over which its calls were counted.

        Raises:
            MissingSignal: It was not read, or over too few steps.
        """
        memory = gpu_memory.allocator(metrics)
        steady_period_ms(metrics)
        return memory, gpu_memory.require_steady_steps(memory, self.least_steps)

    def told(
        self,
        metrics: Metrics,
        memory: DeviceMemory,
        least: Severity,
        *,
        summary: str,
        advice: str,
        change: Change | None,
        evidence: tuple[Evidence, ...],
        confidence: float,
    ) -> Finding:
        """The finding, with what a trace window says about its cost; ``least`` is its severity by number."""
        gain = gpu_memory.allocator_gain(metrics)
        steps = Evidence(name="steady steps", value=memory.steady_steps or 0, limit=self.least_steps)
        return self.finding(
            severity=gpu_memory.cost_severity(metrics, gain, least),
            subject=memory.name,
            summary=summary,
            advice=advice,
            change=change,
            evidence=(*evidence, steps),
            gain=gain,
            confidence=confidence,
            explains=claims.ALLOCATOR,
        )
