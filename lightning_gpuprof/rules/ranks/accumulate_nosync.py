"""Manual optimization accumulates gradients, and DDP reduces them in every backward.

## What it means
If an optimizer steps in every fourth batch only, only every fourth backward has to reduce gradients over the ranks.
With `accumulate_grad_batches`, Lightning takes care of that. With manual optimization, it cannot know when the next
step comes, and every `manual_backward` reduces all gradients. The result is the same, so only the time shows it.

## How it is measured
From the journal: `automatic_optimization` is False, the strategy is DDP, and no optimizer stepped in at least 40 % of
the steady batches.

On a CPU, the wait for other ranks at the end of each backward is timed. Its median in batches without an optimizer step
counts, spread over all batches. The lower bound takes the 5 % quantile, minus what this rank waits longer than the one
that waits least, because it would wait for a late rank in any case. Without the other ranks' files, the finding is
information only.

On a GPU, trace windows of at least three steps show how many numbers are all-reduced: at least 90 % of the trained
parameters in each step, and at least 1.67 times all of them for each optimizer step. The share of reductions that no
optimizer step needs is that of the exposed communication that counts. The lower bound is transfer only.

In a fit of two ranks on two CPUs, with 4 million parameters and an optimizer step in every fourth batch, blocking the
other reductions made the mean step of 100 ms 10 ms shorter, in one run of each. Computed from the waits of that run,
the gain is 17 ms at most and 8 to 11 ms at least.

## When it is wrong
- The code uses the reduced gradients of every batch for something else than an optimizer step.
- On a CPU, several backwards in one batch are not seen.
- With `use_pl_optimizer=False`, Lightning counts no optimizer steps, and the rule is not evaluated.

## What to do
For all but the last backward before a step, call `self.manual_backward(loss)` in
`with self.trainer.strategy.block_backward_sync():`. Without a reduction in the last one, the ranks' weights drift
apart.

`with optimizer.toggle_model(sync_grad=False):` does the same, and also freezes the parameters of other optimizers.
"""

from typing import Any

from lightning_gpuprof.model.accumulation import Accumulation
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.model.signals import waits_longer_ms
from lightning_gpuprof.rules.base import (
    BaseRule,
    Change,
    Cost,
    Finding,
    Metrics,
    MissingSignal,
    NotApplicable,
    claims,
    measured,
    threshold,
)
from lightning_gpuprof.rules.examples import fires, looks_alike, not_applicable, not_evaluated, quiet
from lightning_gpuprof.rules.ranks.collective_times import MIB, collective_run

_MANUAL = {"model.automatic_optimization": False, "trainer.strategy": "DDPStrategy", "trainer.world_size": 2}
_UNCOUNTED = {"accumulation": Unmeasured(why="Lightning counted no optimizer step")}
_TWICE = 1.5
"""From here on it is said how often."""
_MEBI_PARAMETERS = 100


def _batches(every: int, wait_ms: float | None = None, *syncs_ms: float, **run: Any) -> dict[str, Any]:
    """Ranks on CPUs with an optimizer step in each so many batches, and waits in the others."""
    found = Accumulation(
        unstepped_ratio=1 - 1 / every,
        steps_per_batch=1 / every,
        wait_ms=wait_ms,
        least_wait_ms=None if wait_ms is None else 0.8 * wait_ms,
    )
    ranks = {"excess_ms": 0.0, "ranks": 2, "sync_ms": syncs_ms}
    return {
        "run": {**_MANUAL, "rank": 0, **run},
        "metrics": {"accumulation": found},
        **({"ranks": ranks} if syncs_ms else {}),
    }


def _reduced(every: int, times: float = 1.0, *, exposed_ms: float = 10.0, **more: Any) -> dict[str, Any]:
    """The same on GPUs, where all-reduces hold the gradients so many times in each batch."""
    run: dict[str, Any] = {
        "model.automatic_optimization": False,
        "model.trainable_parameters": _MEBI_PARAMETERS * MIB,
        "device.type": "cuda",
        "trainer.world_size": 8,
    }
    reduced = {"ms": 10.0, "exposed_ms": exposed_ms, "count": 5, "mb": 4.0 * times * _MEBI_PARAMETERS}
    return {**_batches(every, **run), "collectives": (reduced,), **more}


def _unsynced(every: int) -> tuple[str, ...]:
    """The backward without a reduction, but for the last one: without that, the ranks' weights would drift apart."""
    if every < 2:
        return (
            "with self.trainer.strategy.block_backward_sync():  # not the last one",
            "    self.manual_backward(loss)",
        )
    return (
        f"is_last = (batch_idx + 1) % {every} == 0",
        "with contextlib.nullcontext() if is_last else self.trainer.strategy.block_backward_sync():",
        "    self.manual_backward(loss)",
    )


def _untraced(changes: dict[str, Any]) -> dict[str, Any]:
    return {**changes, "metrics": {**changes["metrics"], "windows": ()}}


class AccumulateNosync(BaseRule):
    id = "accumulate-nosync"
    title = "DDP reduces gradients in each backward"
    needs = "ranks"
    specialises = ("exposed-comm",)

    least_ratio: float = threshold(0.03, source="the least worthwhile gain")
    least_unneeded_ratio: float = threshold(0.4, source="half of the reductions, if every second batch has a step")
    least_reduced_times: float = threshold(0.9, source="all gradients, but for those of unused parameters")
    least_window_steps: int = threshold(3, source="in fewer, most of the batches may have a step")

    examples = (
        fires(
            "an optimizer steps every fourth batch, and each backward waits 20 ms",
            "critical",
            "steps in one of 4 batches, but DDP reduces gradients in every backward ... takes 15.0 ms of each 50.0 ms "
            "step ... Reduce gradients only in the last of 4 backwards",
            saves_ms=15.0,
            **_batches(4, 20.0, 21.0, 21.0),
        ),
        fires("nothing is known of the other ranks", "info", "15.0 ms", saves_ms=15.0, **_batches(4, 20.0)),
        fires("every second batch has a step", "warning", "one of 2 batches", **_batches(2, 20.0, 20.0, 20.0)),
        fires(
            "on GPUs, each batch reduces 400 MiB",
            "warning",
            "all gradients once in each batch ... 7.50 ms of each 50.0 ms step",
            saves_ms=7.5,
            **_reduced(4),
        ),
        fires("on GPUs, each batch has four backwards", "warning", "4.0 times", saves_ms=7.5, **_reduced(1, 4.0)),
        quiet("only the last backward reduces them", **_batches(4, 0.2, 5.0, 5.0)),
        quiet("each batch has a step", **_batches(1, None, 20.0, 20.0)),
        quiet("on GPUs, one of four batches reduces them", **_reduced(4, 0.25)),
        looks_alike("this rank waits for a late one", **_batches(4, 20.0, 20.5, 1.0)),
        looks_alike("computation covers the reductions", **_reduced(4, exposed_ms=0.2)),
        not_evaluated("no optimizer step was counted", "no optimizer step", **_batches(4) | {"metrics": _UNCOUNTED}),
        not_evaluated("waits were not timed", "wait for gradients", **_batches(4)),
        not_evaluated("nothing was traced", "no trace window", **_untraced(_reduced(4))),
        not_applicable(
            "optimization is automatic", "automatic", **_batches(4, 20.0, **{"model.automatic_optimization": True})
        ),
        not_applicable("there is one rank", "one rank", **_batches(4, 20.0, **{"trainer.world_size": 1})),
        not_applicable("the strategy is FSDP", "DDP", **_batches(4, 20.0, **{"trainer.strategy": "FSDPStrategy"})),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        if not metrics.is_distributed:
            raise NotApplicable("there is one rank")
        automatic = metrics.condition("model.automatic_optimization")
        if automatic is None:
            raise MissingSignal("it is not known whether optimization is automatic")
        if automatic:
            raise NotApplicable("optimization is automatic: Lightning reduces accumulated gradients once")
        if metrics.condition("trainer.strategy") != "DDPStrategy":
            raise NotApplicable("the strategy is not DDP")
        metrics.require_steady()
        found = measured(metrics.accumulation)
        if found is None:
            return None
        return self._on_cpu(metrics, found) if metrics.is_cpu_only else self._on_device(metrics, found)

    def _on_cpu(self, metrics: Metrics, found: Accumulation) -> Finding | None:
        unneeded, later_ms = found.unstepped_ratio, waits_longer_ms(metrics)
        if unneeded < self.least_unneeded_ratio:
            return None
        if found.wait_ms is None or found.least_wait_ms is None:
            raise MissingSignal("the wait for gradients was not timed")
        sure_ms = max(0.0, found.least_wait_ms - (later_ms or 0.0))
        cost = metrics.cost(unneeded * found.wait_ms, unneeded * sure_ms)
        if not cost.is_worth(self.least_ratio):
            return None
        return self._found(
            found,
            cost if later_ms is not None else cost.uncertain,
            f"DDP reduces gradients in every backward. Waiting for that in the other batches takes {cost}",
            (unneeded, f"last of {found.batches_per_step} backwards"),
            0.8,
        )

    def _on_device(self, metrics: Metrics, found: Accumulation) -> Finding | None:
        run, parameters = collective_run(metrics), metrics.positive("model.trainable_parameters")
        if run is None:
            return None
        if parameters is None:
            raise MissingSignal("the number of trained parameters is not known")
        windows = [window for window in run.windows if window.steps >= self.least_window_steps]
        if not windows:
            raise MissingSignal(f"no trace window has {self.least_window_steps} steps")
        reduced = min(window.all_reduced_items for window in windows) / parameters
        unneeded = found.unneeded_ratio(reduced)
        if reduced < self.least_reduced_times or unneeded < self.least_unneeded_ratio:
            return None
        exposed = metrics.cost(run.exposed.ms, run.certain_ms).part(unneeded)
        if not exposed.is_worth(self.least_ratio):
            return None
        times = "once" if reduced < _TWICE else f"{reduced:.1f} times"
        return self._found(
            found,
            exposed,
            f"DDP reduces all gradients {times} in each batch. What no optimizer step needs of that takes {exposed}, "
            "beside which nothing is computed",
            (unneeded, "last backward before a step"),
            0.7,
        )

    def _found(self, found: Accumulation, cost: Cost, why: str, last: tuple[float, str], confidence: float) -> Finding:
        unneeded, which = last
        every = found.batches_per_step
        steps = f"in one of {every} batches" if every > 1 else "once in each batch"
        return self.finding(
            severity="info" if not cost.lower_ms else cost.severity,
            subject="manual_backward",
            summary=f"An optimizer steps {steps}, but {why}.",
            advice=f"Reduce gradients only in the {which}: call manual_backward of the others in "
            "`with self.trainer.strategy.block_backward_sync():`. The sums stay the same. "
            "Trade-off: without a reduction in the last one, the ranks' weights would drift apart.",
            change=Change(remove=("self.manual_backward(loss)",), add=_unsynced(every)),
            evidence=(
                self.evidence("least_unneeded_ratio", unneeded, "reductions that no optimizer step needs"),
                self.fact("optimizer steps per batch", found.steps_per_batch),
                self.fact("wait for gradients in other batches", found.wait_ms, "ms"),
                self.fact("step time", cost.step_ms, "ms"),
            ),
            cost=cost,
            confidence=confidence,
            explains=claims.COMMUNICATION,
        )
