"""What the rules on kernels share: when they are silent, and how their time is compared with the step."""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING, ClassVar

from lightning_gpuprof.model.device_kernels import DeviceRun as DeviceRun
from lightning_gpuprof.model.device_kernels import DeviceWindow as DeviceWindow
from lightning_gpuprof.model.device_kernels import class_us as class_us
from lightning_gpuprof.model.device_kernels import short_name as short_name
from lightning_gpuprof.rules.base import Cost, FamilyRule, Finding, Metrics, Words, measured
from lightning_gpuprof.rules.examples import not_evaluated

if TYPE_CHECKING:
    from typing_extensions import Unpack

UNTRACED = not_evaluated("there is no trace window", "no trace window", run={"device.type": "cuda"})
"""An example of all rules on kernels."""


class KernelRule(FamilyRule[DeviceRun], ABC):
    """A rule on the kernels of a device: shorter ones would gain nothing where the host is the bottleneck."""

    needs = "gpu"
    what: ClassVar[str] = ""
    """Of a rule with ``least_ratio``: what takes so much of the step."""
    least_ratio: float
    """Share of the step from which it speaks; a threshold of most."""

    def look(self, metrics: Metrics) -> DeviceRun | None:
        """The kernels of all windows, if they set the pace. Otherwise None."""
        run = measured(metrics.device_run)
        if run is None:
            return None
        self.require(metrics, run)
        return None if run.is_host_paced else run

    def require(self, metrics: Metrics, run: DeviceRun) -> None:
        """Raise :class:`~lightning_gpuprof.rules.base.MissingSignal` for what this rule needs of every run.

        Args:
            metrics: Metrics of the run.
            run: Device work of the run, by trace window.
        """

    def is_long(self, time: Cost) -> bool:
        """Whether kernels take enough of the step for certain."""
        return time.lower_ms >= self.least_ratio * time.step_ms

    def of_kernels(
        self, run: DeviceRun, *, time: Cost | None = None, cost: Cost | None = None, **words: Unpack[Words]
    ) -> Finding:
        """A finding with the time of the kernels and the step time; information where nothing is saved for certain.

        Args:
            run: Its windows.
            time: Of the kernels, compared with ``least_ratio``; those that overlap may add up to more than the step.
            cost: What a fix saves of it; None: not known.
            **words: Without time and step time.

        Returns:
            Its evidence begins with the time, if that is given, and ends with the step time.
        """
        length = None if time is None else self.evidence("least_ratio", min(1.0, time.ratio), self.what)
        words["evidence"] = (length, *words["evidence"], self.fact("step time", run.period_ms, "ms"))
        return self.finding(cost=cost, **words)
