"""Settings for debugging are on, which slow down every step.

## What it means
Anomaly detection, blocking launches, sanitizers, debuggers and the like find errors at the cost of speed, often a
factor of two and more. They are easily left on.

## How it is measured
From arguments of the Trainer, flags of torch and environment variables (see the page on conditions). Anomaly detection
records a Python stack for each node of the autograd graph and checks each gradient for NaN: the time of one of each,
measured at the start of training, times their number is its cost, four fifths of which are taken as certain. The gain
is from the same times with empty caches, and no more than `forward` and `backward` take. On a GPU only the part of the
stacks counts in which the device idles during `forward`, which needs a trace window; checks are not measured there. The
cost of the other settings is not measured: information only, without a gain.

## When it is wrong
- The setting may be intended.
- `NCCL_DEBUG` and `TORCH_DISTRIBUTED_DEBUG` count only with several ranks; `deterministic=True` is no debugging.
- A setting that was turned on during the run is not seen.

## What to do
Turn the setting off for runs that must be fast, and compare with `gpuprof compare`.
"""

from typing import NamedTuple

from lightning_gpuprof.model.missing import MissingSignal
from lightning_gpuprof.model.numbers import counted, listed, millis, possible
from lightning_gpuprof.rules.base import MIN_STEPS, BaseRule, Change, Claim, Finding, Metrics, Value, claims, threshold
from lightning_gpuprof.rules.bounds import most_ms
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.steps.host_time import HIDDEN, idle_evidence

_CERTAIN_RATIO = 0.8
"""Of the estimate. Heuristic: the model's own frames make a stack deeper than the one measured."""

_OFF = frozenset({"", "0", "FALSE", "OFF", "NONE"})


class _Setting(NamedTuple):
    fact: str
    cost: str
    name: str
    """As it is called."""
    off: str
    """How it is turned off."""


_DETAIL = "TORCH_DISTRIBUTED_DEBUG=DETAIL"
_STACKS = "records a stack per operation, checks for NaN"
_TRACING = "a Python tracing function (debugger, coverage)"
_ADVANCED = "Trainer(profiler=AdvancedProfiler)"
_SANITIZER = "env.COMPUTE_SANITIZER_PROCESS_TREE"
_SETTINGS = (
    _Setting("flags.detect_anomaly", _STACKS, "detect_anomaly", "no torch.autograd.set_detect_anomaly(True)"),
    _Setting("trainer.detect_anomaly", _STACKS, "detect_anomaly", "Trainer(detect_anomaly=False)"),
    _Setting("env.CUDA_LAUNCH_BLOCKING", "the host waits for each kernel", "", ""),
    _Setting("env.PYTORCH_NO_CUDA_MEMORY_CACHING", "each tensor needs a cudaMalloc", "", ""),
    _Setting(_SANITIZER, "each kernel is instrumented", "the compute sanitizer", "run without it"),
    _Setting("env.TORCH_DISTRIBUTED_DEBUG", "every collective is checked on all ranks", _DETAIL, ""),
    _Setting("env.NCCL_DEBUG", "NCCL writes a log", "", ""),
    _Setting("env.TORCH_COMPILE_DEBUG", "each compilation writes its graphs to disk", "", ""),
    _Setting("env.PYTHONMALLOC", "every Python allocation is checked", "PYTHONMALLOC=debug", ""),
    _Setting("flags.python_debugger", "called for each line of Python", _TRACING, "run without debugger and coverage"),
    _Setting(
        "flags.compile_disabled", "torch.compile does nothing", "TORCHDYNAMO_DISABLE", "unset TORCHDYNAMO_DISABLE"
    ),
    _Setting("trainer.profiler", "cProfile runs at every function call", _ADVANCED, "Trainer(profiler=None)"),
)
"""Facts of the run that mean debugging; an environment variable is called so and unset where nothing else is said."""

_VALUES = {
    "env.TORCH_DISTRIBUTED_DEBUG": {"DETAIL"},
    "env.NCCL_DEBUG": {"INFO", "TRACE"},
    "env.PYTHONMALLOC": {"DEBUG", "MALLOC_DEBUG", "PYMALLOC_DEBUG"},
    "trainer.profiler": {"ADVANCEDPROFILER"},
}
"""What turns these on; others are on unless they are off."""

_CUDA_ONLY = {"env.CUDA_LAUNCH_BLOCKING", "env.PYTORCH_NO_CUDA_MEMORY_CACHING", _SANITIZER}
_RANKS_ONLY = {"env.TORCH_DISTRIBUTED_DEBUG", "env.NCCL_DEBUG"}

_COSTLY = {"trainer.detect_anomaly": True, "flags.anomaly_nodes": 200, "flags.anomaly_stack_us": 100.0}


class DebugApisOn(BaseRule):
    id = "debug-apis-on"
    title = "Debugging settings slow down every step"

    least_count: int = threshold(1, source="PyTorch tuning guide: disable debugging APIs")

    examples = (
        fires("anomalies are detected", "info", "Trainer(detect_anomaly=False)", run={"trainer.detect_anomaly": True}),
        fires("so it does at a known cost", "critical", "20.0 ms of each 50.0 ms step", run=_COSTLY),
        quiet("there is no such setting"),
        looks_alike("blocking launches, but no GPU", run={"env.CUDA_LAUNCH_BLOCKING": "1"}),
        looks_alike("results are reproducible", run={"flags.deterministic_algorithms": True}),
        not_evaluated("the settings are unknown", "settings of the run", metrics={"run": {}}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        if not any(name.startswith(("flags.", "trainer.")) for name in metrics.run):
            raise MissingSignal("the settings of the run are not known")
        found = {_name(s): s for s in _SETTINGS if _is_on(metrics, s.fact)}
        if len(found) < self.least_count:
            return None
        settings = list(found.values())
        cost = "The cost was not measured."
        most_ratio, saved = None, None
        stacks = _cost_ms(metrics, "stack", "nodes", claims.FORWARD) if "detect_anomaly" in found else None
        if stacks is not None:
            period_ms = metrics.step_ms
            checks = _cost_ms(metrics, "check", "checks", claims.BACKWARD) or (0.0, 0.0)
            most_ratio = metrics.host_limit.by_phase.get("forward")
            idle_ms = period_ms if most_ratio is None else most_ratio * period_ms
            certain_ms = 0.0 if most_ratio is None else _CERTAIN_RATIO * (min(stacks[0], idle_ms) + checks[0])
            gained_ms = min(period_ms, min(stacks[1], idle_ms) + checks[1])
            cost = (
                f"Anomaly detection takes at least {millis(min(period_ms, stacks[0] + checks[0]))} of each "
                f"{millis(period_ms)} step to record a stack per operation{' and check for NaN' if checks[1] else ''}."
            )
            saved = metrics.cost(gained_ms, certain_ms)
            if idle_ms < stacks[0] or most_ratio is None:
                cost += HIDDEN
        return self.finding(
            subject=listed(list(found)),
            summary=(
                f"{counted(len(settings), 'debugging setting')} {'is' if len(settings) == 1 else 'are'} on: "
                f"{listed([f'{name} ({s.cost})' for name, s in found.items()])}. {cost}"
            ),
            advice=f"Turn off what you do not need: {'; '.join(s.off or f'unset {_name(s)}' for s in settings)}.",
            evidence=(
                self.evidence("least_count", len(settings), "debugging settings"),
                *(self.fact(s.fact, str(metrics.condition(s.fact))) for s in settings),
                idle_evidence(metrics, "forward") if most_ratio is not None else None,
            ),
            cost=saved,
            confidence=0.9,
            change=_change(metrics, settings),
            explains=None if stacks is None else claims.ANOMALY_DETECTION,
        )


def _is_on(metrics: Metrics, fact: str) -> bool:
    value = metrics.condition(fact)
    if value is None or (fact in _CUDA_ONLY and metrics.condition("device.type") != "cuda"):
        return False
    if fact in _RANKS_ONLY and not metrics.is_distributed:
        return False
    return str(value).upper() in _VALUES[fact] if fact in _VALUES else str(value).upper() not in _OFF


def _name(setting: _Setting) -> str:
    return setting.name or setting.fact.partition(".")[2]


def _change(metrics: Metrics, settings: list[_Setting]) -> Change | None:
    """What is an argument of the Trainer; that of an environment is no line of the program."""
    values: dict[str, Value] = {"trainer.detect_anomaly": False, "trainer.profiler": None}
    facts = [s.fact for s in settings if s.fact in values]
    if not facts:
        return None
    named = {fact: fact.partition(".")[2] for fact in facts}
    return Change(
        call="Trainer",
        arguments={name: values[fact] for fact, name in named.items()},
        before={name: metrics.condition(fact) for fact, name in named.items()},
    )


def _cost_ms(metrics: Metrics, one: str, number: str, claim: Claim) -> tuple[float, float] | None:
    """What all stacks or checks of a step take, at least and at most, within a phase; None if not known."""
    names = (f"flags.anomaly_{number}", f"flags.anomaly_{one}_us", f"flags.anomaly_{one}_most_us")
    count, least_us, most_us = (metrics.condition(name) for name in names)
    if not isinstance(least_us, (int, float)) or not isinstance(count, int) or metrics.steps.steady_count < MIN_STEPS:
        return None
    if not possible(least_us) or count <= 0:
        return None
    most_us = most_us if isinstance(most_us, (int, float)) and possible(most_us) else least_us
    held_ms = most_ms(claim, metrics.step_ms, metrics)
    return min(held_ms, count * least_us / 1e3), min(held_ms, count * max(least_us, most_us) / 1e3)
