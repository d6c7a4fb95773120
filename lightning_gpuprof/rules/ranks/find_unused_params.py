"""DDP is set to look for parameters without gradients in every step.

## What it means
With `find_unused_parameters=True` DDP walks the whole autograd graph after each forward, so that parameters that took
no part do not hold up the reduction, and all ranks exchange which ones they used. A model that uses all its parameters
does not need that.

## How it is measured
From the setting alone, with several ranks under DDP. If a trace window shows the search, the finding has its time on
the host. Whether parameters are unused is not known here, so this is information without a gain.

## When it is wrong
Models that skip parts by design (several optimizers, as in a GAN; conditional layers) need the setting.

## What to do
`Trainer(strategy="ddp")`. If parameters are unused after all, DDP says so with an error in the second step: then set it
back, or freeze what is not used.

If the same parameters are unused in every step, `DDPStrategy(static_graph=True)` finds them once, without a search. On
two ranks of a CPU with 800 parameter tensors, the search took 2.0 ms of the 26.7 ms of CPU time in each forward and
backward; a static graph saved 1.5 ms of it. Where nothing is searched, a static graph saves nothing, not even with
activation checkpointing, so no finding advises it. With accumulated gradients it ends in an internal error (torch
2.13). Reentrant checkpointing fails with the search; it works with `"ddp"` and with a static graph.
"""

from lightning_gpuprof.rules.base import BaseRule, Change, Finding, Metrics, MissingSignal, millis, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet

_SEARCH = "search_unused_parameters"


_LOOKS = {
    "trainer.world_size": 2,
    "trainer.strategy": "DDPStrategy",
    "trainer.find_unused_parameters": True,
    "model.parameter_tensors": 12,
    "model.automatic_optimization": True,
    "trainer.accumulate_grad_batches": 1,
}


class FindUnusedParams(BaseRule):
    id = "find-unused-params"
    title = "DDP searches for unused parameters"
    needs = "ranks"

    least_ranks: int = threshold(2, source="one rank exchanges nothing")

    examples = (
        fires("DDP looks for them", "info", "if all 12 parameter tensors are used ... static_graph=True", run=_LOOKS),
        fires(
            "gradients are accumulated",
            "info",
            "then keep the setting",
            lacks="static_graph",
            run={**_LOOKS, "trainer.accumulate_grad_batches": 4},
        ),
        quiet("DDP does not look for them", run={**_LOOKS, "trainer.find_unused_parameters": False}),
        quiet("there is one rank", run={**_LOOKS, "trainer.world_size": 1}),
        quiet(
            "another strategy has no such setting",
            run={**_LOOKS, "trainer.strategy": "FSDPStrategy", "trainer.find_unused_parameters": None},
        ),
        looks_alike("the graph is static", run={**_LOOKS, "trainer.static_graph": True}),
        not_evaluated("the strategy is not known", "strategy", run={"trainer.world_size": 2}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        if (metrics.positive("trainer.world_size") or 1) < self.least_ranks:
            return None
        if metrics.condition("trainer.strategy") is None:
            raise MissingSignal("the strategy of the trainer is not known")
        searching = metrics.condition("trainer.find_unused_parameters")
        if searching is not True or metrics.condition("trainer.static_graph") is True:
            return None
        times_ms = [ms for window in metrics.windows if (ms := window.host_ms_per_step(_SEARCH))]
        seen = f" The search takes {millis(max(times_ms))} of each traced step on the host." if times_ms else ""
        tensors = metrics.positive("model.parameter_tensors")
        of_model = f"{tensors:,} parameter tensors" if tensors else "parameters"
        change = Change(
            remove=('Trainer(..., strategy="ddp_find_unused_parameters_true")',), add=('Trainer(..., strategy="ddp")',)
        )
        return self.finding(
            subject=str(metrics.condition("trainer.strategy")),
            summary=(
                "DDP walks the autograd graph after each forward to find unused parameters, because "
                f"find_unused_parameters is True.{seen}"
            ),
            advice=(
                f"Turn the search off if all {of_model} are used: {change.added[0]}. If some are not, DDP raises an "
                f"error in the second step: then {_otherwise(metrics)}."
            ),
            change=change,
            evidence=(
                self.fact("find_unused_parameters", "True"),
                self.fact("search on the host, per step", next(iter(times_ms), None), "ms"),
            ),
            confidence=0.6,
        )


def _otherwise(metrics: Metrics) -> str:
    accumulates = metrics.condition("trainer.accumulate_grad_batches") != 1
    if accumulates or metrics.condition("model.automatic_optimization") is not True:
        return "keep the setting"
    return "keep the setting, or set DDPStrategy(static_graph=True) if the same ones are unused in every step"
