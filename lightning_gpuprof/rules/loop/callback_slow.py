"""One callback's hooks around the batch take a noticeable part of every step.

## What it means
Lightning calls the hooks of all callbacks on the main thread, in every step. Training waits for them.

## How it is measured
The time of a callback is that of all its per-batch hooks, without other callbacks' time inside them, as a share of the
steady, untraced steps. The lower bound of the median must pass the threshold. For a callback that works every few
batches, its part of the total without outliers must; the waiting for a CPU is taken off that, unless the lower bound of
the total is ten times what pauses of the machine would make of its time in an ordinary step.

The severity follows from the share beyond 0.5 ms, which well-behaved callbacks cost as well. The finding names the most
expensive callback and its most expensive hook. This profiler's own cost is under `overhead`.

On a GPU, only time counts in which the GPU idles while the host is in callbacks. A trace window shows it; without one,
the finding is information only.

## When it is wrong
- A hook that reads a tensor's value (`.item()`, a progress bar that shows the loss) waits for the GPU. Without the
  hook, that wait moves elsewhere. `progress-bar-sync` explains the bar.
- Without the callback, steps may wait for workers that are behind instead. If the workers' pace was measured, the gain
  ends there.
- Time of the phase that no callback explains is reported as hooks of the LightningModule, with less confidence.
- A hook that works only in rare steps: see `step-outliers`.

## What to do
Do the work every N batches, in `on_train_epoch_end`, or in a thread. The printed N brings it below 1 % of the step, and
is at most half of the run's steps. For Lightning's own callbacks, set the printed argument.
"""

import math

from lightning_gpuprof.model.metrics import CallbackCost
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import Advice, BaseRule, Change, Finding, Metrics, listed, percent, threshold
from lightning_gpuprof.rules.callbacks import most_every, own_setting, why_every
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.steps.host_time import idle_evidence

_HOOKS_WITH_BATCH_IDX = frozenset(
    f"on_{loop}_batch_{edge}" for loop in ("train", "validation", "test", "predict") for edge in ("start", "end")
)
_LOOPS = {"fit": "train", "validate": "validation", "test": "test", "predict": "predict"}
"""What the names of a stage's hooks call its loop."""


_FEW_RATIO = 0.1
"""Its median over its mean, below which a callback works in few steps. Heuristic."""

_SHORT = {"forward": 4.0, "backward": 5.0}


def _costs(ms: float, name: str = "Slow", hook: str = "on_train_batch_end") -> dict[str, object]:
    """Keywords of a run whose callback takes so long in each step."""
    return {
        "times_ms": {**_SHORT, "callbacks": ms + 0.2},
        "callbacks_ms": {(name, hook): ms, ("Quick", "on_train_batch_start"): 0.1},
    }


_SLOW = _costs(20.0)
_VALIDATING = {**_costs(20.0, hook="on_validation_batch_end"), "run": {"stage": "validate"}}
_TWO = {("Slow", "on_train_batch_end"): 20.0, ("AlsoSlow", "on_train_batch_start"): 10.0}


class CallbackSlow(BaseRule):
    id = "callback-slow"
    title = "A callback slows down every step"

    least_ratio: float = threshold(0.03, source="the least worthwhile gain")
    fixed_ms: float = threshold(0.5, source="heuristic: what a progress bar costs; it does not raise the severity")
    wanted_ratio: float = threshold(0.01, source="heuristic: what a callback may cost")

    examples = (
        fires("one sleeps 20 of 37 ms", "critical", "20.0 ms ... begin Slow.on_train_batch", saves_ms=19.7, **_SLOW),
        fires("the callback has a batch index", "critical", "Run it every 60 batches ... `if batch_idx % 60:", **_SLOW),
        fires("the callback has none", "critical", "global_step % 60", **_costs(20.0, "EMA{}", "on_before_zero_grad")),
        fires(
            "the module has none",
            "critical",
            "Net takes 20.0 ms ... begin Net.on_after_backward with `if self.global_step % 60: return`",
            lacks="Net callback",
            **_costs(20.0, "Net", "on_after_backward"),
            run={"model.class": "main.<locals>.Net"},
        ),
        fires(
            "validation was run",
            "critical",
            "Collect that work for on_validation_epoch_end",
            lacks="return",
            saves_ms=20.0,
            **_VALIDATING,
        ),
        fires("the bar is slow", "critical", "refresh_rate=25)", lacks="begin", **_costs(5.0, "TQDMProgressBar #2")),
        fires("two are slow", "critical", "AlsoSlow 12 %", times_ms={"callbacks": 30.0}, callbacks_ms=_TWO),
        fires("the module's own hooks are", "critical", "Hooks of Net", times_ms={"callbacks": 30.0}),
        fires(
            "what the GPU does is not known", "info", "The Slow callback takes", **_SLOW, run={"device.type": "cuda"}
        ),
        quiet("the callback takes 0.3 ms", callbacks_ms={("Quick", "on_train_batch_end"): 0.3}),
        looks_alike("the step waits for data", times_ms={"data_wait": 60.0}),
        looks_alike("a GPU is busy at that time", **_SLOW, run={"device.type": "cuda"}, idle_ratio=0.02),
        not_evaluated("three steps are steady", "3 steady steps", **_SLOW, steady=3),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        step_ms = metrics.step_ms
        worth = [cost for cost in metrics.callback_costs if cost.ratio >= self.least_ratio]
        if not worth:
            return None
        slowest, owner, hook = worth[0], worth[0].owner, worth[0].hook
        certain_ms, most_ratio = slowest.ratio * step_ms, metrics.host_limit.by_phase.get("callbacks")
        cost = metrics.cost(max(slowest.median_ms, certain_ms), certain_ms, most_ratio=most_ratio)
        if not cost.is_worth(self.least_ratio):
            return None
        others = [f"{c.owner} {percent(c.ratio)}" for c in worth[1:4]]
        also = f" Also above {percent(self.least_ratio)}: {listed(others)}." if others else ""
        own = _is_module(metrics, owner)
        name = owner if own else f"The {owner} callback"
        what = f"{name} takes" if hook else f"Hooks of {owner} itself take"
        where = f", mostly in {hook}" if hook else ""
        on_cpu = bool(metrics.is_cpu_only)
        waits = not on_cpu and "ProgressBar" in owner  # for the device, which progress-bar-sync explains
        who = "A hook of the module" if own else "A callback"
        rare = slowest.median_ms < _FEW_RATIO * certain_ms
        few = " Most of it is in a few steps." if rare else ""
        best = math.ceil(slowest.ratio / self.wanted_ratio)
        every = most_every(metrics, best)
        why = why_every(metrics, every, best, cost.part(1.0 / every).ms, self.wanted_ratio)
        own_advice = _setting(metrics, slowest.owner, every, why)
        leaves_out = own_advice is not None and every not in own_advice[1].arguments.values()
        part = 1.0 - 1.0 / every if own_advice is not None or metrics.condition("stage") in (None, "fit") else 1.0
        return self.finding(
            severity=cost.severity_beyond(self.fixed_ms),
            title=f"{who} slows down {'some steps' if rare else 'every step'}",
            subject=f"{owner}.{hook}" if hook else owner,
            summary=f"{what} {cost}{where}.{few}{also}",
            advice=own_advice or _rarer(metrics, slowest, every, why, rare=rare),
            evidence=(
                self.evidence("least_ratio", cost.ratio, f"{owner}, share of the step"),
                self.fact(f"{owner} per step", cost.ms, "ms"),
                self.fact("step time", step_ms, "ms"),
                idle_evidence(metrics, "callbacks"),
            ),
            cost=cost,
            leaves="" if part < 1.0 else "that work at the end of the loop, if it is not done beside it",
            gain=None if leaves_out else cost.part(part).gain,
            confidence=(0.95 if hook else 0.7) * (1.0 if on_cpu else 0.85),
            explains=claims.WAITS_OF_THE_PROGRESS_BAR if waits else claims.CALLBACKS,
        )


def _is_module(metrics: Metrics, owner: str) -> bool:
    """Whether it is the LightningModule, whose hooks get no ``trainer``; its condition also names what it is within."""
    return owner == str(metrics.condition("model.class")).rpartition(".")[2]


def _setting(metrics: Metrics, owner: str, every: int, why: str) -> tuple[str, Change] | None:
    """The argument of one of Lightning's own, and why this number where it is one of steps."""
    found = own_setting(metrics, owner, every)
    if found is None or every not in found[1].arguments.values():
        return found
    return f"{found[0]} {why}", found[1]


def _rarer(metrics: Metrics, slowest: CallbackCost, every: int, why: str, *, rare: bool) -> Advice:
    """How the user's own code works every so many batches, or so many times less often than now."""
    loop = _LOOPS.get(str(metrics.condition("stage")), "train")
    if slowest.hook:
        where = f"{slowest.owner}.{slowest.hook}"
        step = "self.global_step" if _is_module(metrics, slowest.owner) else "trainer.global_step"
        count = "batch_idx" if slowest.hook in _HOOKS_WITH_BATCH_IDX else step
    else:
        where = f"on_{loop}_batch_start, on_{loop}_batch_end and the hooks between"
        count = "self.global_step" if loop == "train" else "batch_idx"
    if loop != "train":  # of batches that are evaluated none is to be left out
        writer = " A BasePredictionWriter does so with write_interval='epoch'." if loop == "predict" else ""
        return f"Collect that work for on_{loop}_epoch_end, or move it to a background thread: {where}.{writer}", None
    if rare:
        return (
            f"Do that work {every} times less often, make it cheaper, or move it to a background thread: {where}.",
            None,
        )
    line = f"if {count} % {every}: return"
    text = (
        f"Run it every {every} batches: begin {where} with `{line}`. {why} Trade-off: it "
        f"skips {every - 1} of {every} batches. Or move its work to on_{loop}_epoch_end or to a background thread."
    )
    return text, Change(add=(f"{line}  # at the start of {where}",))
