"""What rules on late launches share: how many kernels they are, how they are told, and what makes them fewer."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.model.finding import Evidence
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal, condition, worthwhile
from lightning_gpuprof.rules.launches.device_idle import compiled, explained_step, shapes_vary, step_evidence
from lightning_gpuprof.rules.steps.fused_update import FOREACH, FUSED, can_fuse
from lightning_gpuprof.rules.wording import millis, percent

IDLE_RATIO = 0.15
"""Idle time for want of launches, of the step, from which a run is launch-bound. TraceLens: idle above 15 %."""

_GRAPH_MODES = ("reduce-overhead", "max-autotune")
_IF_IT_HAS = ", if it has that"
_SEPARATE_OPTIMIZER_KERNELS = 4
"""Kernels per parameter group from which an optimizer is not a fused one: the catalogue."""


@dataclass(frozen=True, kw_only=True)
class LateLaunches:
    """Idle time of the device for want of launches, in ms per untraced step."""

    step: ExplainedStep
    idle_ms: float
    lower_ms: float
    kernels: float
    """Per step."""
    mean_kernel_us: float
    python_ratio: float
    """Share of that time in which the host was in no operator and no call, but in Python."""

    @property
    def ratio(self) -> float:
        """Of the period."""
        return self.idle_ms / self.step.period_ms

    @property
    def every_us(self) -> float:
        """Time from one kernel to the next, if they were spread over the step."""
        return self.step.period_ms * 1e3 / self.kernels

    def passes(self, least_ratio: float) -> bool:
        """Whether the lower bound reaches a share of the period and there is enough to gain."""
        period_ms = self.step.period_ms
        return self.lower_ms >= least_ratio * period_ms and worthwhile(self.idle_ms, period_ms)

    @property
    def words(self) -> str:
        """``in 8.10 ms of a step of 12.0 ms (68 %) the device has no work because the next launch comes late``."""
        return (
            f"in {millis(self.idle_ms)} of a step of {millis(self.step.period_ms)} ({percent(self.ratio)}) the device "
            "has no work because the next launch comes late"
        )

    def evidence(self) -> tuple[Evidence, ...]:
        """Numbers about the launches."""
        return (
            Evidence(name="kernels per step", value=self.kernels),
            Evidence(name="mean kernel", value=self.mean_kernel_us, unit="us"),
            Evidence(name="period per kernel", value=self.every_us, unit="us"),
            Evidence(name="host in Python meanwhile", value=self.python_ratio, unit="ratio"),
            *step_evidence(self.step),
        )


def late_launches(metrics: Metrics) -> LateLaunches:
    """How long the device is idle because launches come late.

    Raises:
        MissingSignal: As :func:`~lightning_gpuprof.rules.launches.device_idle.explained_step`; or the window has no
            kernels.
    """
    step = explained_step(metrics)
    kernels = step.window.kernels
    facts = step.analysis.kernels
    if not kernels or facts is None:
        raise MissingSignal("the trace window holds no kernels")
    host = step.device.host
    host_us = host.calls_us + (host.operators_us or 0.0) + host.elsewhere_us
    return LateLaunches(
        step=step,
        idle_ms=step.late_launch_ms,
        lower_ms=step.late_launch_lower_ms,
        kernels=kernels / step.steps,
        mean_kernel_us=facts.total_us / kernels,
        python_ratio=host.elsewhere_us / host_us if host_us > 0 and host.operators_us is not None else 0.0,
    )


def fewer_launches(metrics: Metrics, found: LateLaunches) -> str:
    """What to change so that a step needs fewer launches, with this run's values; sentences."""
    advice = [_compile(metrics, found), _optimizer(metrics, found), _batch(metrics, found)]
    return " ".join(text for text in advice if text)


def compile_call(step: ExplainedStep) -> str:
    """How to compile: CUDA graphs are recorded anew for each shape, so they are only for shapes that stay."""
    varies = shapes_vary(step)
    if varies:
        return "torch.compile(model, dynamic=True), as the shapes of its inputs vary"
    graphs = 'torch.compile(model, mode="reduce-overhead")'
    return graphs if varies is False else f"{graphs}, or with dynamic=True instead if the shapes of its inputs vary"


def _compile(metrics: Metrics, found: LateLaunches) -> str:
    if not compiled(metrics):
        return f"Compile the model before trainer.fit, which leaves launches out: {compile_call(found.step)}."
    if shapes_vary(found.step):
        return "The model is compiled: look for graph breaks and for what runs outside of it."
    mode = str(condition(metrics, "compile.mode") or "default")
    if any(graph in mode for graph in _GRAPH_MODES):
        return "The model is compiled for CUDA graphs already: look for graph breaks and for what runs outside of it."
    return f'The model is compiled with mode {mode!r}: mode="reduce-overhead" replays whole graphs with one launch.'


def _optimizer(metrics: Metrics, found: LateLaunches) -> str:
    attribution = found.step.analysis.attribution
    if attribution is None or condition(metrics, "model.optimizer_fused") is True:
        return ""
    launched = sum(phase.kernels for phase in attribution.phases if phase.phase == "optimizer") / found.step.steps
    groups = condition(metrics, "model.optimizer_param_groups")
    groups = groups if isinstance(groups, int) and groups > 0 else 1
    if launched <= _SEPARATE_OPTIMIZER_KERNELS * groups or launched < 0.1 * found.kernels:
        return ""
    name = str(condition(metrics, "model.optimizer") or "The optimizer")
    fused = can_fuse(metrics)
    if fused is False and (name not in FUSED | FOREACH or condition(metrics, "model.optimizer_foreach") is not False):
        return ""
    way = "foreach=True" if fused is False else "fused=True"
    return (
        f"{name} launches {launched:,.0f} works per step: make it with {way}{'' if fused is not None else _IF_IT_HAS}."
    )


def _batch(metrics: Metrics, found: LateLaunches) -> str:
    size = metrics.loader.batch_size if metrics.loader is not None else None
    room = int(found.step.period_ms / found.step.busy_ms) if found.step.busy_ms > 0 else 0
    if not size or room < 2:
        return ""
    room = min(room, 8)
    return (
        f"Or give each launch more work: batch_size={size * room} instead of {size} needs the same launches, and the "
        f"device has time for {room} times the work in a step."
    )
