"""What rules on late launches share: how many kernels there are, how that is said, and what makes them fewer."""

from abc import ABC

from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.model.signals import FOREACH, FUSED, can_fuse
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import Advice, Change, Cost, Evidence, Metrics, MissingSignal, setting
from lightning_gpuprof.rules.launches.step_rule import StepRule, compiled, explained_step, shapes_vary
from lightning_gpuprof.rules.torch_advice import compile_model

IDLE_RATIO = 0.15
"""Time waiting for launches, of the step, from which a run is launch-bound. TraceLens: idle above 15 %."""

_GRAPH_MODES = ("reduce-overhead", "max-autotune")
_SEPARATE_OPTIMIZER_KERNELS = 4
"""Kernels per parameter group from which an optimizer is not a fused one. Heuristic."""


class LaunchRule(StepRule, ABC):
    """A rule on a device that is idle because launches come late."""

    explains = claims.LATE_LAUNCHES

    def look(self, metrics: Metrics) -> ExplainedStep:
        """The device's step, as of :func:`explained_step`; raises MissingSignal if the window has no kernels."""
        step = explained_step(metrics)
        if not step.window.kernels or step.analysis.kernels is None:
            raise MissingSignal("the trace window has no kernels")
        return step


def late_launches(metrics: Metrics, step: ExplainedStep) -> Cost:
    """How long the device waits for launches.

    Args:
        metrics: The run.
        step: Its device's step.

    Returns:
        In ms per untraced step, with what is certain of it.
    """
    return metrics.cost(step.late_launch_ms, step.late_launch_lower_ms)


def launch_evidence(step: ExplainedStep) -> tuple[Evidence, ...]:
    """Numbers about the launches, beside those of the step."""
    return (
        Evidence(name="kernels per step", value=step.kernels_per_step),
        Evidence(name="mean kernel", value=step.mean_kernel_us, unit="µs"),
        Evidence(name="step time per kernel", value=step.us_per_kernel, unit="µs"),
        Evidence(name="host in Python while the GPU waits", value=step.python_ratio, unit="ratio"),
    )


def fewer_launches(metrics: Metrics, step: ExplainedStep) -> Advice:
    """What to change so that a step needs fewer launches, with this run's values: sentences, and the first as data.

    Args:
        metrics: Metrics of the run.
        step: Its device's step.

    Returns:
        The change is None if none of the sentences has one.
    """
    given = [_compile(metrics, step), _optimizer(metrics, step), _batch(metrics, step)]
    advice = [one for one in given if one is not None]
    return " ".join(text for text, _ in advice), next((change for _, change in advice if change is not None), None)


def compile_for_launches(metrics: Metrics, step: ExplainedStep) -> tuple[str, Change]:
    """How to compile the model: CUDA graphs are recorded again for each shape.

    Args:
        metrics: The run.
        step: Its device's step.

    Returns:
        Sentences with their full stops, and the line to add.
    """
    varies = shapes_vary(step)
    text, change = compile_model(metrics, ", dynamic=True" if varies else ', mode="reduce-overhead"')
    if varies is not False:
        text += " Its input shapes vary." if varies else " If input shapes vary, use dynamic=True instead."
    return text, change


def _compile(metrics: Metrics, step: ExplainedStep) -> Advice:
    if not compiled(metrics):
        return compile_for_launches(metrics, step)
    mode = str(metrics.condition("compile.mode") or "default")
    if shapes_vary(step) or any(graph in mode for graph in _GRAPH_MODES):
        return "Look for graph breaks, and for code that runs outside the compiled model.", None
    change = setting("torch.compile", mode=(mode, "reduce-overhead"))
    text = f'Replay whole graphs with one launch: torch.compile(model, mode="reduce-overhead") instead of {mode!r}.'
    return text, change


def _optimizer(metrics: Metrics, step: ExplainedStep) -> Advice | None:
    attribution = step.analysis.attribution
    if attribution is None or metrics.condition("model.optimizer_fused") is True:
        return None
    launched = sum(phase.kernels for phase in attribution.phases if phase.phase == "optimizer") / step.steps
    groups = metrics.positive("model.optimizer_param_groups") or 1
    if launched <= _SEPARATE_OPTIMIZER_KERNELS * groups or launched < 0.1 * step.kernels_per_step:
        return None
    name = str(metrics.condition("model.optimizer") or "")
    fused = can_fuse(metrics)
    if fused is False and (name not in FUSED | FOREACH or metrics.condition("model.optimizer_foreach") is not False):
        return None
    way = "foreach" if fused is False else "fused"
    launches = f"launches {launched:,.0f} kernels per step."
    if fused is None:
        return f"If the optimizer supports it, set {way}=True: it {launches}", None
    change = Change(call=f"torch.optim.{name}", arguments={way: True})
    return f"Update all parameters at once: {change.added[0]}. {name} {launches}", change


def _batch(metrics: Metrics, step: ExplainedStep) -> Advice | None:
    size = metrics.batch_size
    room = int(step.period_ms / step.busy_ms) if step.busy_ms > 0 else 0
    if not size or room < 2:
        return None
    change = setting("DataLoader", batch_size=(size, size * min(room, 8)))
    return f"Or give each launch more work: {change.added[0]} instead of {size}. It needs no more launches.", change
