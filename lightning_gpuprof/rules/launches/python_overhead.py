"""The host spends its time in Python rather than in torch: the GPU waits for launches, or on a CPU the step takes long.

## What it means
Between two operators the host runs Python: loops over layers, time steps or samples, nested modules, hooks,
dictionaries, asserts. If that takes longer than the kernels, the GPU waits for it.

## How it is measured
**On a GPU**, the rule takes the idle time of `launch-bound` and the share of it in which the launching thread was in no
torch operator and no runtime call. That share must exceed 60 %, and certainly 15 % of the step. The gain is all of that
idle time, because a compiled model also launches less. Its lower bound is the part in Python.

**On a CPU with a trace window**, Python is what remains of forward and backward in untraced steps without waits,
garbage collection and the self time of all operators. Tracing makes operators longer, so this is a lower bound. It must
be 60 % of forward and backward, 15 % of the step without waits for a CPU, and 1 ms. With several ranks, only forward
counts: ranks wait for each other in backward.

**On a CPU without a window**, a thread of the profiler requests the GIL, Python's global interpreter lock, at random
times: 20 times in the first second, ten times a second in the next nine, then three times. A torch operator releases
the GIL at once; Python keeps it for up to 5 ms. The share of requests that wait 1 ms or more is the share of Python,
with Wilson's 5 % lower bound and at least ten requests. Other programs do not distort it, because a thread that loses
its CPU while in Python keeps the GIL. Loops that contain operators need a window, and so do runs with other busy Python
threads.

**The fix** depends on the Python per operator. From 100 µs on, and on a CPU without a window, your own code is slow;
below it, the operators are too many, unless Python is seen in a function that `forward` or `training_step` calls.

## When it is wrong
- Stacks in a window slow down each Python call, so the share is too large.
- Native code that is not torch's, such as a tokenizer, counts as Python.
- On a CPU without a window, the first ten seconds of a run weigh three times as much as those after them.

## What to do
Your own code: replace loops with operators on whole tensors, or move the work out of the step (into the Dataset, or
into `__init__` if the result never changes). Many operators: compile the model.
"""

from msgspec.structs import replace

from lightning_gpuprof.model.code_place import in_words, parts
from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.model.missing import MissingSignal, measured
from lightning_gpuprof.model.signals import delayed_ratio
from lightning_gpuprof.rules.base import Advice, Finding, Metrics, claims, millis, percent, severity, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.launches.late_launches import IDLE_RATIO, LaunchRule, late_launches, launch_evidence
from lightning_gpuprof.rules.launches.step_rule import compiled
from lightning_gpuprof.rules.torch_advice import compile_model

_LINE = "model = torch.compile(model)"
_OF_THE_MODEL = ("forward", "training_step")
"""Functions that call operators; one that they call, and in which Python is most often seen, computes by itself."""
_EAGER = {"compile.state": "none"}


def _python(us: float, *, op_us: float = 12.0, kernel_us: float = 3.0, fetch_us: float = 50.0) -> dict[str, float]:
    """Steps of an example: Python after each operator."""
    return {"python_us": us, "op_us": op_us, "kernel_us": kernel_us, "fetch_us": fetch_us}


class PythonOverhead(LaunchRule):
    id = "python-overhead"
    title = "Python code between operators is slow"
    specialises = ("launch-bound",)

    least_ratio: float = threshold(IDLE_RATIO, source="as launch-bound")
    least_cpu_ms: float = threshold(1.0, source="heuristic: below it, hooks and calls of modules may be most of it")
    least_python_ratio: float = threshold(0.6, source="heuristic: eager models of a library have 0.15 to 0.55")
    own_code_us: float = threshold(
        100.0, source="heuristic: Python per operator; nested modules and hooks need 5 to 50"
    )

    examples = (
        fires("Python takes 40 µs", "critical", "mostly in forward() (net.py:20)", step=_python(40), run=_EAGER),
        fires(
            "the model is not compiled",
            "critical",
            f"Compile the model before trainer.fit: {_LINE}",
            step=_python(40),
            run=_EAGER,
        ),
        fires("the model is compiled", "critical", "compiled part", step=_python(40), run={"compile.state": "module"}),
        fires("Python takes 13 µs", "critical", "while the host runs Python", step=_python(13)),
        quiet("Python takes 8 µs", step=_python(8)),
        quiet("kernels take 100 µs", step=_python(40, kernel_us=100)),
        looks_alike("operators are slow", step=_python(3, op_us=40)),
        looks_alike("only tracing makes launches late", step=_python(40), period_ms=1.0),
        looks_alike("the GPU waits for a batch", step=_python(10, kernel_us=60, fetch_us=50_000)),
        not_evaluated("there is no trace window", "no trace window was recorded", run={"device.type": "cuda"}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        return self._on_cpu(metrics) if metrics.is_cpu_only else super().check(metrics)

    def judge(self, metrics: Metrics, step: ExplainedStep) -> Finding | None:
        if step.device.host.operators_us is None:
            raise MissingSignal("the trace window has no operators")
        late, ratio = late_launches(metrics, step), step.python_ratio
        idle = late.part(ratio)
        if ratio < self.least_python_ratio or not idle.is_worth(self.least_ratio):
            return None
        place, python_us = step.place_of_gaps, 1e3 * idle.lower_ms / step.kernels_per_step
        return self.of_step(
            step,
            replace(late, lower_ms=idle.lower_ms),
            subject=place or "Python",
            summary=f"The GPU waits {idle} while the host runs Python between "
            f"operators{f', mostly in {in_words(place)}' if place else ''}. That is {percent(ratio)} of "
            "its wait for launches.",
            advice=_own_code(place) if python_us >= self.own_code_us else _compile(metrics, place),
            evidence=(
                self.evidence("least_ratio", idle.ratio, "waiting for Python, share of the step"),
                self.evidence("own_code_us", python_us, "Python per kernel", "µs"),
                *launch_evidence(step),
            ),
        )

    def _on_cpu(self, metrics: Metrics) -> Finding | None:
        found = measured(metrics.python_time)
        ratio = min(1.0, found.lower_ms / (found.period_ms * (1.0 - delayed_ratio(metrics))))
        if found.python_ratio < self.least_python_ratio or ratio < self.least_ratio:
            return None
        cost = metrics.cost(found.python_ms, found.lower_ms)
        if found.lower_ms < self.least_cpu_ms or not cost.is_worth():
            return None
        known = "Without a trace window, this is estimated from how often another thread waited 1 ms for the GIL."
        if found.operators_ms is not None:
            known = f"Torch's operators take {millis(found.operators_ms)} of a traced step."
        at = parts(found.place)
        is_own = found.per_call_us >= self.own_code_us or (at is not None and at.function not in _OF_THE_MODEL)
        where = f"the {found.phase} pass"
        if is_own:
            summary = f"Python code{_in(found.place)} slows down {where}: Python takes {cost}. {known}"
        else:
            seen = f", mostly{_in(found.place)}" if found.place else ""
            summary = f"Python between operators takes {cost} in forward and backward{seen}. {known}"
        return self.finding(
            severity=severity(ratio, metrics.steps.steady_count),
            subject=found.place or "Python",
            title=f"Python code slows down {where}" if is_own else "",
            summary=summary,
            advice=_own_code(found.place) if is_own else _compile(metrics, found.place),
            evidence=(
                self.evidence("least_ratio", ratio, "Python, share of the step without waiting for a CPU, at least"),
                self.evidence(
                    "least_python_ratio", found.python_ratio, "Python, share of forward and backward, at least"
                ),
                self.fact("operators per traced step", found.operators_ms, "ms"),
                self.evidence("own_code_us", found.per_call_us, "Python per operator", "µs") if found.calls else None,
            ),
            cost=cost,
            confidence=0.8 if found.operators_ms is not None else 0.7,
            explains=claims.PYTHON,
        )


def _in(place: str) -> str:
    return f" in {in_words(place)}" if place else ""


def _own_code(place: str) -> Advice:
    return (
        f"Vectorise the Python code{_in(place)}: replace loops with operators on whole tensors. Or move it out of the "
        "step: into the Dataset, where DataLoader workers run it, or into __init__ if its result never changes."
    ), None


def _compile(metrics: Metrics, place: str) -> Advice:
    loops = f"loops over layers, time steps or samples{_in(place)} with operators on whole tensors"
    if compiled(metrics):
        return f"Replace {loops}, or move them into the compiled part.", None
    text, change = compile_model(metrics)
    return f"{text} Otherwise replace {loops}.", change
