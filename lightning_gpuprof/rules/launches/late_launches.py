"""What rules on late launches share: how many kernels there are, how that is said, and what makes them fewer."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.rules.base import Change, Evidence, Metrics, MissingSignal, condition, of_each_step, worthwhile
from lightning_gpuprof.rules.launches.step_rule import compiled, explained_step, shapes_vary
from lightning_gpuprof.rules.torch_advice import FOREACH, FUSED, can_fuse, compile_line

IDLE_RATIO = 0.15
"""Time waiting for launches, of the step, from which a run is launch-bound. TraceLens: idle above 15 %."""

_GRAPH_MODES = ("reduce-overhead", "max-autotune")
_SEPARATE_OPTIMIZER_KERNELS = 4
"""Kernels per parameter group from which an optimizer is not a fused one: the catalogue."""


@dataclass(frozen=True, kw_only=True)
class LateLaunches:
    """Time for which the device waits for launches, in ms per untraced step."""

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
        """Of the step time."""
        return self.idle_ms / self.step.period_ms

    @property
    def every_us(self) -> float:
        """Time from one kernel to the next, if they were spread over the step."""
        return self.step.period_ms * 1e3 / self.kernels

    def passes(self, least_ratio: float) -> bool:
        """Whether the lower bound reaches a share of the step time and there is enough to gain."""
        period_ms = self.step.period_ms
        return self.lower_ms >= least_ratio * period_ms and worthwhile(self.idle_ms, period_ms)

    @property
    def words(self) -> str:
        """``8.10 ms of each 12.0 ms step (68 %) for the next launch``."""
        return f"{of_each_step(self.idle_ms, self.step.period_ms)} for the next launch"

    def evidence(self) -> tuple[Evidence, ...]:
        """Numbers about the launches, beside those of the step."""
        return (
            Evidence(name="kernels per step", value=self.kernels),
            Evidence(name="mean kernel", value=self.mean_kernel_us, unit="us"),
            Evidence(name="step time per kernel", value=self.every_us, unit="us"),
            Evidence(name="host in Python while the GPU waits", value=self.python_ratio, unit="ratio"),
        )


def late_launches(metrics: Metrics) -> LateLaunches:
    """How long the device is idle because launches come late.

    Raises:
        MissingSignal: As :func:`~lightning_gpuprof.rules.launches.device_idle.explained_step`; or the window has no
            kernels.
    """
    step = explained_step(metrics)
    if not step.window.kernels or step.analysis.kernels is None:
        raise MissingSignal("the trace window holds no kernels")
    return LateLaunches(
        step=step,
        idle_ms=step.late_launch_ms,
        lower_ms=step.late_launch_lower_ms,
        kernels=step.kernels_per_step,
        mean_kernel_us=step.mean_kernel_us,
        python_ratio=step.python_ratio,
    )


def fewer_launches(metrics: Metrics, found: LateLaunches) -> tuple[str, Change | None]:
    """What to change so that a step needs fewer launches, with this run's values: sentences, and the first as data.

    Args:
        metrics: Metrics of the run.
        found: How long the device waits for launches.
    """
    given = [_compile(metrics, found), _optimizer(metrics, found), _batch(metrics, found)]
    advice = [one for one in given if one is not None]
    return " ".join(text for text, _ in advice), next((change for _, change in advice if change is not None), None)


def compile_words(metrics: Metrics, step: ExplainedStep) -> tuple[str, str]:
    """The line that compiles the model, and why so: CUDA graphs are recorded anew for each shape.

    Args:
        metrics: The run.
        step: Its device's step.
    """
    varies = shapes_vary(step)
    line, how = compile_line(metrics, ", dynamic=True" if varies else ', mode="reduce-overhead"')
    if varies:
        return line, f" The shapes of its inputs vary.{how}"
    return line, how + ("" if varies is False else " Use dynamic=True instead if the shapes of its inputs vary.")


def _compile(metrics: Metrics, found: LateLaunches) -> tuple[str, Change | None]:
    if not compiled(metrics):
        line, why = compile_words(metrics, found.step)
        return f"Compile the model before trainer.fit: {line}.{why}", Change(add=(line,))
    mode = str(condition(metrics, "compile.mode") or "default")
    if shapes_vary(found.step) or any(graph in mode for graph in _GRAPH_MODES):
        return "Look for graph breaks and for what runs outside of the compiled model.", None
    change = Change(call="torch.compile", arguments={"mode": "reduce-overhead"}, before={"mode": mode})
    text = f'Replay whole graphs with one launch: torch.compile(model, mode="reduce-overhead") instead of {mode!r}.'
    return text, change


def _optimizer(metrics: Metrics, found: LateLaunches) -> tuple[str, Change | None] | None:
    attribution = found.step.analysis.attribution
    if attribution is None or condition(metrics, "model.optimizer_fused") is True:
        return None
    launched = sum(phase.kernels for phase in attribution.phases if phase.phase == "optimizer") / found.step.steps
    groups = condition(metrics, "model.optimizer_param_groups")
    groups = groups if isinstance(groups, int) and groups > 0 else 1
    if launched <= _SEPARATE_OPTIMIZER_KERNELS * groups or launched < 0.1 * found.kernels:
        return None
    name = str(condition(metrics, "model.optimizer") or "")
    fused = can_fuse(metrics)
    if fused is False and (name not in FUSED | FOREACH or condition(metrics, "model.optimizer_foreach") is not False):
        return None
    way = "foreach" if fused is False else "fused"
    if fused is None:
        return (
            f"Make the optimizer with {way}=True, if it has that: it launches {launched:,.0f} kernels per step.",
            None,
        )
    change = Change(call=f"torch.optim.{name}", arguments={way: True})
    return (
        f"Update all parameters at once: {change.added[0]}. {name} launches {launched:,.0f} kernels per step.",
        change,
    )


def _batch(metrics: Metrics, found: LateLaunches) -> tuple[str, Change | None] | None:
    size = metrics.loader.batch_size if metrics.loader is not None else None
    room = int(found.step.period_ms / found.step.busy_ms) if found.step.busy_ms > 0 else 0
    if not size or room < 2:
        return None
    change = Change(call="DataLoader", arguments={"batch_size": size * min(room, 8)}, before={"batch_size": size})
    text = f"Or give each launch more to do: {change.added[0]} instead of {size}. A step needs the same launches."
    return text, change
