"""Points out that a model whose launches come late is not compiled."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, MissingSignal, threshold
from lightning_gpuprof.rules.launches.device_idle import compiled, confidence
from lightning_gpuprof.rules.launches.late_launches import IDLE_RATIO, compile_call, late_launches


@dataclass(frozen=True, kw_only=True)
class CompileAbsent(BaseRule):
    """The device waits for launches, and the model runs without `torch.compile`.

    ## What it means

    `torch.compile` fuses kernels and leaves Python out; with CUDA graphs a whole graph is one launch.

    ## How it is measured

    The idle time of `launch-bound` passes its threshold, and neither the model nor a part of it was compiled at the
    first step, nor did anything compile later. This is a hint: what it gains is the gain of `launch-bound`.

    ## When it is wrong

    - A model with graph breaks or with shapes that change compiles into many parts, or again and again, and gains less.

    ## What to do

    `model = torch.compile(model, mode="reduce-overhead")` before `trainer.fit(model)`; `dynamic=True` if shapes vary.

    ## Example

    "Try torch.compile(model, mode="reduce-overhead"), before trainer.fit: 1,240 launches per step are in its reach"
    """

    id = "compile-absent"

    least_ratio: float = threshold(IDLE_RATIO, source="as launch-bound")

    def check(self, metrics: Metrics) -> Finding | None:
        """Look whether a launch-bound model is compiled."""
        found = late_launches(metrics)
        if not found.passes(self.least_ratio):
            return None
        state = compiled(metrics)
        if state is None:
            raise MissingSignal("whether the model is compiled is not known")
        if state:
            return None
        return self.finding(
            severity="info",
            subject="torch.compile",
            summary=f"The model is not compiled, and {found.words}.",
            advice=(
                f"Try {compile_call(found.step)}, before trainer.fit: {found.kernels:,.0f} launches per step are in "
                "its reach. Compare with gpuprof compare."
            ),
            evidence=(
                self.evidence("least_ratio", found.ratio, "idle for want of launches, share of the step"),
                Evidence(name="compiled", value="no"),
            ),
            confidence=confidence(found.step),
            explains=claims.LATE_LAUNCHES,
        )
