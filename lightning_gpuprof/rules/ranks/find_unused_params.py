"""Finds that DDP looks for unused parameters in every step."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import BaseRule, MissingSignal, condition, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.wording import millis

_SEARCH = "search_unused_parameters"


_LOOKS = {
    "trainer.world_size": 2,
    "trainer.strategy": "DDPStrategy",
    "trainer.find_unused_parameters": True,
    "model.parameter_tensors": 12,
}


@dataclass(frozen=True, kw_only=True)
class FindUnusedParams(BaseRule):
    """DDP is told to look for parameters without gradients in every step.

    ## What it means

    With `find_unused_parameters=True` DDP walks the whole autograd graph after each forward, so that parameters that
    took no part do not hold up the reduction, and all ranks exchange which ones they used. A model that uses all its
    parameters does not need that.

    ## How it is measured

    From the setting alone, with several ranks under DDP. Where a trace window holds the search, its time on the host
    is told. Whether parameters are unused is not known here, so this is information without a gain.

    ## When it is wrong

    Models that skip parts by design (several optimizers, as in a GAN; conditional layers) need the setting.

    ## What to do

    `Trainer(strategy="ddp")`. If parameters are unused after all, DDP says so with an error in the second step: then
    set it back, or freeze what is not used.
    """

    id = "find-unused-params"

    least_ranks: int = threshold(2, source="one rank exchanges nothing")

    examples = (
        fires("DDP looks for them", "info", "Net has 12 parameter tensors; set Trainer(", run=_LOOKS),
        quiet("it does not", run={**_LOOKS, "trainer.find_unused_parameters": False}),
        quiet("there is one rank", run={**_LOOKS, "trainer.world_size": 1}),
        quiet(
            "another strategy has no such setting",
            run={**_LOOKS, "trainer.strategy": "FSDPStrategy", "trainer.find_unused_parameters": None},
        ),
        looks_alike("the graph is static", run={**_LOOKS, "trainer.static_graph": True}),
        not_evaluated("the strategy is not known", "strategy", run={"trainer.world_size": 2}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the setting."""
        ranks = condition(metrics, "trainer.world_size")
        if not isinstance(ranks, int) or ranks < self.least_ranks:
            return None
        if condition(metrics, "trainer.strategy") is None:
            raise MissingSignal("the strategy of the trainer is not known")
        searching = condition(metrics, "trainer.find_unused_parameters")
        if searching is not True or condition(metrics, "trainer.static_graph") is True:
            return None
        times_ms = _search_ms(metrics)
        seen = (
            f" In the trace windows the search takes {millis(max(times_ms))} of host time a step." if times_ms else ""
        )
        model = condition(metrics, "model.class") or "The model"
        tensors = condition(metrics, "model.parameter_tensors")
        of_model = f"{model} has {tensors:,} parameter tensors; " if isinstance(tensors, int) else ""
        return self.finding(
            severity="info",
            subject=str(condition(metrics, "trainer.strategy")),
            summary=(
                "find_unused_parameters is True: DDP walks the autograd graph after each forward, and the ranks "
                f"exchange which parameters they used.{seen}"
            ),
            advice=(
                f'find_unused_parameters is True: {of_model}set Trainer(strategy="ddp"). If some of them take no part '
                "in the loss, DDP reports it with an error in the second step; then keep the setting."
            ),
            evidence=(
                Evidence(name="find_unused_parameters", value="True"),
                *(Evidence(name="search on the host, per step", value=ms, unit="ms") for ms in times_ms[:1]),
            ),
            confidence=0.6,
        )


def _search_ms(metrics: Metrics) -> list[float]:
    """Host time of the search per step, of each window that shows it; inflated by tracing."""
    found = []
    for window in metrics.windows:
        operators = window.analysis.operators if window.analysis is not None else None
        rows = [row for row in operators.operators if _SEARCH in row.operator] if operators is not None else []
        if rows and window.steps_us:
            found.append(sum(row.host_total_us for row in rows) / 1e3 / len(window.steps_us))
    return found
