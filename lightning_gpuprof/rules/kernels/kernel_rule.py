"""What the rules on kernels share: when they are silent, and how a share of the step is said."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from lightning_gpuprof.model.device_kernels import DeviceRun as DeviceRun
from lightning_gpuprof.model.device_kernels import DeviceWindow as DeviceWindow
from lightning_gpuprof.model.device_kernels import class_us as class_us
from lightning_gpuprof.model.device_kernels import short_name as short_name
from lightning_gpuprof.model.measured_time import Measured as Measured
from lightning_gpuprof.rules.base import BaseRule, Evidence, Finding, Metrics, Words, gain, measured, severity
from lightning_gpuprof.rules.examples import not_evaluated

if TYPE_CHECKING:
    from typing_extensions import Unpack

UNTRACED = not_evaluated("there is no trace window", "no trace window", run={"device.type": "cuda"})
"""An example of all rules on kernels."""


class KernelRule(BaseRule, ABC):
    """A rule on the kernels of a device: shorter ones would gain nothing where the host sets the pace."""

    what: ClassVar[str] = ""
    """Of a rule with ``least_ratio``: what takes so much of the step."""
    least_ratio: float
    """Share of the step from which it speaks; a threshold of most."""

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the kernels of all windows."""
        run = measured(metrics.device_run)
        if run is None:
            return None
        self.require(metrics, run)
        return None if run.is_host_paced else self.judge(metrics, run)

    def require(self, metrics: Metrics, run: DeviceRun) -> None:
        """Raise :class:`~lightning_gpuprof.rules.base.MissingSignal` for what this rule needs of every run.

        Args:
            metrics: Metrics of the run.
            run: Device work of the run, by trace window.
        """

    @abstractmethod
    def judge(self, metrics: Metrics, run: DeviceRun) -> Finding | None:
        """Judge kernels that set the pace.

        Args:
            metrics: Metrics of the run.
            run: Device work of the run, by trace window.
        """

    def is_long(self, run: DeviceRun, time: Measured) -> bool:
        """Whether kernels take enough of the step for certain.

        Args:
            run: Device work of the run, by trace window.
            time: Time of the kernels, ms per step.
        """
        return time.lower_ms >= self.least_ratio * run.period_ms

    def of_kernels(
        self, run: DeviceRun, *, time: Measured | None = None, saved: Measured | None = None, **words: Unpack[Words]
    ) -> Finding:
        """A finding whose severity follows from what is saved for certain; information where nothing is.

        Args:
            run: Its windows.
            time: Of the kernels, held against ``least_ratio``.
            saved: Per step; None: not known, and no gain.
            **words: Without time and step time.
        """
        judged = () if time is None else (self.evidence("least_ratio", share_of_step(time.ms, run), self.what),)
        words["evidence"] = (*judged, *words["evidence"], Evidence(name="step time", value=run.period_ms, unit="ms"))
        return self.finding(
            severity=severity(saved.lower_ms / run.period_ms if saved is not None else 0.0, run.steady_steps),
            gain=gain(saved.ms, saved.lower_ms, run.period_ms) if saved is not None else None,
            **words,
        )


def share_of_step(ms: float, run: DeviceRun) -> float:
    """0 to 1: kernels that overlap may add up to more than the step.

    Args:
        ms: Time of kernels per step in ms.
        run: Device work of the run; only its step time is used.
    """
    return min(1.0, ms / run.period_ms)
