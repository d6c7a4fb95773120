"""What the rules about a GPU share: which GPUs can be judged, and how low clocks are reported."""

from abc import ABC, abstractmethod

from lightning_gpuprof.model.finding import SEVERITIES, Evidence, Finding, Severity
from lightning_gpuprof.model.gpu import Gpu as Gpu
from lightning_gpuprof.model.gpu import GpuClocks as GpuClocks
from lightning_gpuprof.model.gpu import HeldClock
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, Cost, Metrics, MissingSignal, NotApplicable, mhz, severity
from lightning_gpuprof.rules.examples import not_evaluated

NO_REASONS = not_evaluated("the driver names no reasons", "does not report", gpu={"reasons_known": False})
"""An example of all rules about clocks."""


def sampled_gpus(metrics: Metrics) -> tuple[Gpu, ...]:
    """The sampled GPUs of the run; raises NotApplicable on the CPU, MissingSignal if none was sampled."""
    if metrics.is_cpu_only:
        raise NotApplicable("the model runs on the CPU")
    if not metrics.gpus:
        reason = next((text for text in metrics.validity.caveats if text.startswith("nvml: ")), "")
        raise MissingSignal(f"no GPU was sampled{f' ({reason})' if reason else ''}")
    return metrics.gpus


class GpuRule(BaseRule, ABC):
    """A rule that judges the GPUs of a run one by one and reports the weightiest of what it finds."""

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge each GPU.

        Returns:
            The finding of the highest severity, of equals that of the first GPU; None if each GPU was judged and none
            has it.

        Raises:
            NotApplicable: No GPU has anything to judge.
            MissingSignal: None has it, and not all could be judged; or as :func:`sampled_gpus`.
        """
        found: list[Finding] = []
        missing: dict[str, list[str]] = {}
        inapplicable: list[NotApplicable] = []
        gpus = sampled_gpus(metrics)
        for gpu in gpus:
            try:
                finding = self.judge(metrics, gpu)
            except NotApplicable as signal:
                inapplicable.append(signal)
            except MissingSignal as signal:
                missing.setdefault(signal.why, []).append(gpu.device.subject or gpu.device.name)
            else:
                found += [] if finding is None else [finding]
        if found:
            return min(found, key=lambda finding: SEVERITIES.index(finding.severity))
        if missing:
            raise MissingSignal("; ".join(f"{', '.join(names)}: {why}" for why, names in missing.items()))
        if len(inapplicable) == len(gpus):
            raise inapplicable[0]
        return None

    @abstractmethod
    def judge(self, metrics: Metrics, gpu: Gpu) -> Finding | None:
        """Judge one GPU.

        Args:
            metrics: The run.
            gpu: One of its GPUs.

        Returns:
            The finding. None: nothing is found.

        Raises:
            MissingSignal: It cannot be judged.
            NotApplicable: It has nothing to judge.
        """


class ClockRule(GpuRule):
    """A rule on what holds the clock of a busy GPU down, and by how much."""

    certainty = 0.9
    explains = claims.CLOCKS

    def clock_facts(self, gpu: Gpu, clocks: GpuClocks, held: HeldClock) -> tuple[Evidence | None, ...]:
        """The clock while it was held down, the full one, and the temperature.

        Args:
            gpu: It is slow.
            clocks: Its clocks.
            held: What holds them down.

        Returns:
            In that order, in MHz and °C; None for what was not measured.
        """
        return (
            self.fact("SM clock while throttled", held.sm_clock_mhz, "MHz"),
            self.fact("full SM clock", clocks.full_mhz, "MHz"),
            self.fact("highest temperature", gpu.device.largest("temperature_c"), "°C"),
        )


def slow_words(clocks: GpuClocks, held: HeldClock) -> str:
    """The end of a sentence: ``: SM clock 900 MHz instead of 1,400 MHz.``.

    Args:
        clocks: Of the GPU.
        held: What holds them down.

    Returns:
        Only the full stop where one of them is not known.
    """
    if held.sm_clock_mhz is None or clocks.full_mhz is None:
        return "."
    return f": SM clock {mhz(held.sm_clock_mhz)} instead of {mhz(clocks.full_mhz)}."


def held_severity(metrics: Metrics, held: HeldClock, cost: Cost | None) -> Severity:
    """Severity by the lower bound of the share of the step that is lost.

    Args:
        metrics: Metrics of the run.
        held: A reason for a low clock, and how often it held.
        cost: What that costs.

    Returns:
        Information where the cost is not known.
    """
    lost = 0.0 if cost is None else cost.ratio * held.lower_ratio / held.ratio
    return severity(lost, metrics.steps.steady_count)
