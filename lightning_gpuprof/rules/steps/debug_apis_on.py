"""Settings for debugging are on, and they slow down every step.

## What it means
Anomaly detection, blocking launches, sanitizers and debuggers find errors at the cost of speed, often a factor of two
or more. They are easily left on.

## How it is measured
The settings are read from arguments of the Trainer, flags of torch and environment variables (see the page on
conditions).

Anomaly detection has a measured cost: it records a Python stack for each node of the autograd graph and checks each
gradient for NaN. One of each is timed at the start of training and multiplied by their number. Four fifths of that
count as certain. The gain uses the same times with empty caches, and is at most what `forward` and `backward` take. On
a GPU, only the stacks count, as far as the device idles during `forward`, which needs a trace window.

The cost of the other settings is not measured: information only, without a gain.

## When it is wrong
- The setting may be intended.
- `NCCL_DEBUG` and `TORCH_DISTRIBUTED_DEBUG` count only with several ranks; `deterministic=True` is no debugging.
- A setting that was turned on during the run is not seen.

## What to do
Turn the setting off for runs that must be fast, and compare with `gpuprof compare`.
"""

from typing import NamedTuple

from lightning_gpuprof.model.missing import MissingSignal
from lightning_gpuprof.model.numbers import counted, listed, millis
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MIN_STEPS, BaseRule, Change, Claim, Cost, Finding, Metrics, Value, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.gains import most_ms
from lightning_gpuprof.rules.steps.host_time import HIDDEN, idle_evidence

_UNKNOWN = "The cost was not measured."
_CERTAIN_RATIO = 0.8
"""Of the estimate. Heuristic: the model's own frames make a stack deeper than the one measured."""

_OFF = ("", "0", "FALSE", "OFF", "NONE")


class _Setting(NamedTuple):
    """A fact of the run that means debugging."""

    fact: str
    cost: str
    name: str
    """As it is called."""
    off: str
    """How it is turned off."""
    needs: str = ""
    """Where alone it costs time: "cuda", "ranks"."""
    values: tuple[str, ...] = ()
    """What turns it on; empty: all but :data:`_OFF`."""

    def is_on(self, metrics: Metrics) -> bool:
        if self.needs == "cuda" and metrics.condition("device.type") != "cuda":
            return False
        if self.needs == "ranks" and not metrics.is_distributed:
            return False
        value = str(metrics.condition(self.fact)).upper()
        return value in self.values if self.values else value not in _OFF


def _env(name: str, cost: str, needs: str = "", *values: str, named: str = "") -> _Setting:
    return _Setting(f"env.{name}", cost, named or name, f"unset {name}", needs, values)


_DETAIL = "TORCH_DISTRIBUTED_DEBUG"
_DYNAMO = "TORCHDYNAMO_DISABLE"
_MALLOC = ("DEBUG", "MALLOC_DEBUG", "PYMALLOC_DEBUG")
_STACKS = "records a stack per operation, checks for NaN"
_TRACING = "a Python tracing function (debugger, coverage)"
_ADVANCED = ("cProfile runs at every function call", "Trainer(profiler=AdvancedProfiler)", "Trainer(profiler=None)")
_SANITIZER = ("each kernel is instrumented", "the compute sanitizer", "run without it", "cuda")
_SETTINGS = (
    _Setting("flags.detect_anomaly", _STACKS, "detect_anomaly", "no torch.autograd.set_detect_anomaly(True)"),
    _Setting("trainer.detect_anomaly", _STACKS, "detect_anomaly", "Trainer(detect_anomaly=False)"),
    _env("CUDA_LAUNCH_BLOCKING", "the host waits for each kernel", "cuda"),
    _env("PYTORCH_NO_CUDA_MEMORY_CACHING", "each tensor needs a cudaMalloc", "cuda"),
    _Setting("env.COMPUTE_SANITIZER_PROCESS_TREE", *_SANITIZER),
    _env(_DETAIL, "every collective is checked on all ranks", "ranks", "DETAIL", named=f"{_DETAIL}=DETAIL"),
    _env("NCCL_DEBUG", "NCCL writes a log", "ranks", "INFO", "TRACE"),
    _env("TORCH_COMPILE_DEBUG", "each compilation writes its graphs to disk"),
    _env("PYTHONMALLOC", "every Python allocation is checked", "", *_MALLOC, named="PYTHONMALLOC=debug"),
    _Setting("flags.python_debugger", "called for each line of Python", _TRACING, "run without debugger and coverage"),
    _Setting("flags.compile_disabled", "torch.compile does nothing", _DYNAMO, f"unset {_DYNAMO}"),
    _Setting("trainer.profiler", *_ADVANCED, values=("ADVANCEDPROFILER",)),
)
_ARGUMENTS: dict[str, Value] = {"trainer.detect_anomaly": False, "trainer.profiler": None}
"""Those that a change of the program turns off, and to what; that of an environment is no line of it."""

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
        settings = {s.name: s for s in _SETTINGS if s.is_on(metrics)}
        number = len(settings)
        if number < self.least_count:
            return None
        cost, words = _anomaly_cost(metrics) if "detect_anomaly" in settings else (None, _UNKNOWN)
        facts = {s.fact for s in settings.values()}
        off = {fact.partition(".")[2]: fact for fact in _ARGUMENTS if fact in facts}
        return self.finding(
            subject=listed(list(settings)),
            summary=(
                f"{counted(number, 'debugging setting')} {'is' if number == 1 else 'are'} on: "
                f"{listed([f'{s.name} ({s.cost})' for s in settings.values()])}. {words}"
            ),
            advice=f"Turn off what you do not need: {'; '.join(s.off for s in settings.values())}.",
            evidence=(
                self.evidence("least_count", number, "debugging settings"),
                *(self.fact(s.fact, str(metrics.condition(s.fact))) for s in settings.values()),
                None if cost is None else idle_evidence(metrics, "forward"),
            ),
            cost=cost,
            confidence=0.9,
            change=Change(
                call="Trainer",
                arguments={name: _ARGUMENTS[fact] for name, fact in off.items()},
                before={name: metrics.condition(fact) for name, fact in off.items()},
            )
            if off
            else None,
            explains=None if cost is None else claims.ANOMALY_DETECTION,
        )


def _anomaly_cost(metrics: Metrics) -> tuple[Cost | None, str]:
    """What anomaly detection costs, and in words."""
    stacks = _cost_ms(metrics, "stack", "nodes", claims.FORWARD)
    if stacks is None:
        return None, _UNKNOWN
    step_ms, most_ratio = metrics.step_ms, metrics.host_limit.by_phase.get("forward")
    checks = _cost_ms(metrics, "check", "checks", claims.BACKWARD) or (0.0, 0.0)
    idle_ms = step_ms if most_ratio is None else most_ratio * step_ms
    certain_ms = 0.0 if most_ratio is None else _CERTAIN_RATIO * (min(stacks[0], idle_ms) + checks[0])
    words = (
        f"Anomaly detection takes at least {millis(min(step_ms, stacks[0] + checks[0]))} of each {millis(step_ms)} "
        f"step to record a stack per operation{' and check for NaN' if checks[1] else ''}."
    )
    hidden = HIDDEN if idle_ms < stacks[0] or most_ratio is None else ""
    return metrics.cost(min(step_ms, min(stacks[1], idle_ms) + checks[1]), certain_ms), words + hidden


def _cost_ms(metrics: Metrics, one: str, number: str, claim: Claim) -> tuple[float, float] | None:
    """What all stacks or checks of a step take, at least and at most, within a phase; None if not known."""
    names = (f"flags.anomaly_{number}", f"flags.anomaly_{one}_us", f"flags.anomaly_{one}_most_us")
    count, least_us, most_us = (metrics.number(name) for name in names)
    if least_us is None or not count or metrics.steps.steady_count < MIN_STEPS:
        return None
    held_ms = most_ms(claim, metrics.step_ms, metrics)
    return min(held_ms, count * least_us / 1e3), min(held_ms, count * max(least_us, most_us or 0.0) / 1e3)
