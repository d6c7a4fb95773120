"""Finds that the device waits while the host runs Python between its operators; on a CPU, that the step does."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, MissingSignal, gain, is_cpu_only, severity, threshold, worthwhile
from lightning_gpuprof.rules.launches.device_idle import compiled, confidence, remark
from lightning_gpuprof.rules.launches.interpreter import Interpreter, interpreter
from lightning_gpuprof.rules.launches.late_launches import IDLE_RATIO, late_launches
from lightning_gpuprof.rules.wording import millis, percent


@dataclass(frozen=True, kw_only=True)
class PythonOverhead(BaseRule):
    """The device waits for launches, or on a CPU the step takes long, while the host is in Python and not in torch.

    ## What it means

    Between two operators the host runs the interpreter: loops over layers, time steps or samples, modules within
    modules, hooks, dictionaries, asserts. If that takes longer than the kernels, the device waits for it.

    ## How it is measured

    As `launch-bound`, and of that idle time the share in which the launching thread was in none of torch's operators
    and in no call of the runtime. More than 60 % of it has to be such time, and it has to pass 15 % of the period with
    its lower bound. The gain is all of that idle time, since a compiled model has fewer launches, too; its lower bound
    is that of the part in Python.

    On a CPU the model's own code sets the pace itself: there it is forward and backward of untraced steps, without what
    the training thread waited and the garbage collector took, less the self time of all operators in a trace window.
    Tracing makes operators longer, so this is a lower bound. It has to be 60 % of what is left of forward and backward,
    15 % of the period and 1 ms. With several ranks, backward waits for others and is left out. Without a window, a
    thread of this profiler that asks for the interpreter ten times a second tells: an operator of torch lets go of it
    at once, Python keeps it for up to 5 ms. It asks at moments that are drawn, and leaves out those at which the phase
    ended before it had the interpreter. The share of the others in forward and backward at which it came a millisecond
    late or more, with its 5 % lower bound, is the share of these phases, less the collector's pauses, that
    is Python in one piece; loops with operators in them need a window, and so do runs beside other busy Python threads
    or on CPUs that are short.

    ## When it is wrong

    - A window that was recorded with stacks makes each call of a Python function slower, so the share is too large.
    - Native code that is not torch's, such as a tokenizer, counts as Python.

    ## What to do

    Compile, which leaves the interpreter out; otherwise put loops into operators on whole tensors.

    ## Example

    "In 5.20 ms of a step of 9.00 ms the device waits while the host runs Python between operators, most at
    net.py(20): forward"
    """

    id = "python-overhead"
    specialises = ("launch-bound",)

    least_ratio: float = threshold(IDLE_RATIO, source="as launch-bound")
    least_cpu_ms: float = threshold(1.0, source="heuristic: below it, hooks and calls of modules may be most of it")
    least_python_ratio: float = threshold(0.6, source="heuristic: eager models of a library have 0.15 to 0.55")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the host's time between operators."""
        if is_cpu_only(metrics):
            return self._on_cpu(metrics)
        found = late_launches(metrics)
        step = found.step
        if step.device.host.operators_us is None:
            raise MissingSignal("the trace window holds no operators")
        idle_ms, lower_ms = found.idle_ms * found.python_ratio, found.lower_ms * found.python_ratio
        if found.python_ratio < self.least_python_ratio or lower_ms < self.least_ratio * step.period_ms:
            return None
        if not worthwhile(idle_ms, step.period_ms):
            return None
        place = _place(step)
        at = f", most at {place}" if place else ""
        return self.finding(
            severity=severity(lower_ms / step.period_ms, metrics.steps.steady_count),
            subject=place or "Python",
            summary=(
                f"In {millis(idle_ms)} of a step of {millis(step.period_ms)} the device waits while the host runs "
                f"Python between operators{at}: {percent(found.python_ratio)} of the time that launches come late."
                f"{remark(step)}"
            ),
            advice=_advice(metrics, place),
            evidence=(
                self.evidence(
                    "least_ratio", idle_ms / step.period_ms, "idle while the host runs Python, share of the step"
                ),
                *found.evidence(),
            ),
            gain=gain(found.idle_ms, lower_ms, step.period_ms),
            confidence=confidence(step),
            explains=claims.LATE_LAUNCHES,
        )

    def _on_cpu(self, metrics: Metrics) -> Finding | None:
        found = interpreter(metrics)
        ratio = found.lower_ms / found.period_ms
        if found.python_ratio < self.least_python_ratio or ratio < self.least_ratio:
            return None
        if found.lower_ms < self.least_cpu_ms or not worthwhile(found.python_ms, found.period_ms):
            return None
        at = f", most at {found.place}" if found.place else ""
        return self.finding(
            severity=severity(ratio, metrics.steps.steady_count),
            subject=found.place or "Python",
            summary=(
                f"{millis(found.python_ms)} of a step of {millis(found.period_ms)} are Python, or native code that is "
                f"not torch's, in forward and backward{at}. {_operators(found)}"
            ),
            advice=_advice_on_cpu(metrics, found.place),
            evidence=(
                self.evidence("least_ratio", ratio, "Python in forward and backward, share of the step, at least"),
                self.evidence(
                    "least_python_ratio", found.python_ratio, "Python, share of forward and backward, at least"
                ),
                *_operators_evidence(found),
            ),
            gain=gain(found.python_ms, found.lower_ms, found.period_ms),
            confidence=0.8 if found.operators_ms is not None else 0.7,
            explains=claims.PYTHON,
        )


def _place(step: ExplainedStep) -> str:
    """The line before whose launches the longest gaps are, else the phase; empty if neither is known."""
    time_us: dict[str, float] = {}
    for gap in step.device.longest:
        place = gap.line.frame if gap.line is not None else gap.phase
        if place is not None:
            time_us[place] = time_us.get(place, 0.0) + gap.causes_us.get("launch", 0.0)
    best = max(time_us, key=lambda place: time_us[place], default="")
    return best if time_us.get(best) else ""


def _advice(metrics: Metrics, place: str) -> str:
    at = f" at {place}" if place else ""
    loops = f"put loops over layers, time steps or samples{at} into operators on whole tensors"
    if compiled(metrics):
        return f"Take what is left in Python{at} out of the step or into the compiled part: {loops}."
    return f"Compile the model, which leaves the interpreter out: torch.compile(model). Otherwise {loops}."


def _operators(found: Interpreter) -> str:
    if found.operators_ms is None:
        return "No trace window: estimated from how often another thread had to wait 1 ms or more for the interpreter."
    return f"Torch's operators take {millis(found.operators_ms)} of a traced step."


def _operators_evidence(found: Interpreter) -> tuple[Evidence, ...]:
    if found.operators_ms is None:
        return ()
    return (Evidence(name="operators per traced step", value=found.operators_ms, unit="ms"),)


def _advice_on_cpu(metrics: Metrics, place: str) -> str:
    at = f" at {place}" if place else ""
    compiles = "" if compiled(metrics) else ", or compile the model: torch.compile(model)"
    return (
        f"Put loops over layers, time steps or samples{at} into operators on whole tensors{compiles}. What needs no "
        "parameter of the model belongs into the Dataset, for DataLoader workers (num_workers >= 1) to do it beside "
        "the training."
    )
