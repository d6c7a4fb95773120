"""After warm-up, `torch.compile` keeps compiling the same functions for new arguments.

## What it means
Dynamo compiles a function for the arguments that it sees, with guards on their shapes, types and the Python values that
the code reads. If a guard fails, it compiles again, which takes seconds with inductor. After 8 versions of a function
it gives up, and the function runs uncompiled from then on.

## How it is measured
Dynamo itself reports recompilations. The rule counts those in steps after warm-up, with the time of each, including the
backward pass. Such steps are not steady ones. The gain is that time, at most the excess of these steps, spread over all
steps. Functions that dynamo gave up are reported even if that took little time; the cost of running them uncompiled is
not known.

## When it is wrong
- In a long run the last new shape may come early. All the cost is then past, and its share is that of the whole run.
- A handful of shapes that come once each, such as the last batch of an epoch, cost once.
- Before torch 2.6, dynamo gives no reason.

## What to do
If a size changes, use `dynamic=True`, `torch._dynamo.mark_dynamic(batch, dim)`, padding to a few sizes, or
`drop_last=True` for the last batch. If a Python value changes, make it a tensor or keep it out of the compiled code.
"""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from lightning_gpuprof.model.compilation import CompileFacts, Recompile, short_reason
from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import counted, percent, possible, seconds
from lightning_gpuprof.rules.base import Advice, BaseRule, Change, MissingSignal, claims, threshold, worthwhile_evidence
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet

_SIZE = re.compile(r"tensor '(?P<tensor>[^']+)' (?:size|stride) mismatch at index (?P<index>\d+)")
_VALUE = re.compile(r"(?P<what>[A-Za-z_][\w.\[\]'\"]*(?:\.[\w\[\]'\"]+)*) == ")


_TEN = [{"batch": batch} for batch in range(50, 250, 20)]
_SHORT_ONE = {"batch": 50, "cost_s": 0.01}


class Recompiles(BaseRule):
    id = "recompiles"
    title = "torch.compile keeps recompiling"
    needs = "compile"

    least_hits: int = threshold(1, source="dynamo gives a function up after 8 versions")

    examples = (
        fires("the batch size changes", "critical", "dynamic=True", compiled={"recompiles": _TEN}),
        fires("one was given up", "info", "was given up", compiled={"recompiles": [_SHORT_ONE], "limit_hits": 1}),
        quiet("a function compiles once", compiled={}),
        looks_alike("a function compiles once more, in 0.5 s", compiled={"recompiles": [{"batch": 99}]}),
        not_evaluated("its times are impossible", "not a valid number", compiled={"steady_recompile_s": -1.0}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        facts = metrics.compile
        if facts is None:
            return None
        run_s = metrics.run_s
        if not possible(facts.steady_recompile_s) or facts.steady_recompile_count < 0:
            raise MissingSignal("the time of the compilations is not a valid number")
        lost_s = facts.steady_recompile_s
        if facts.steps_excess_s is not None and possible(facts.steps_excess_s):
            lost_s = min(lost_s, facts.steps_excess_s)
        cost = replace(metrics.run_cost(min(lost_s, run_s)), steps=metrics.steps.count)
        costly = facts.steady_recompile_count > 0 and cost.is_worth()
        given_up = facts.limit_hits >= self.least_hits
        if not costly and not given_up:
            return None
        function, its = facts.most_costly(metrics.condition("compile.modules"))
        guards = list(dict.fromkeys(short_reason(one.reason) for one in its if one.reason))
        return self.finding(
            subject=function or "torch.compile",
            summary=_summary(facts, its, function, cost.ratio, lost_s),
            advice=_advice(metrics, its),
            evidence=(
                worthwhile_evidence("compiling after warm-up, share of the run", cost),
                self.fact("recompiles after warm-up", facts.steady_recompile_count),
                Evidence(name="functions given up", value=facts.limit_hits, limit=self.least_hits),
                *(self.fact("guard", reason) for reason in guards[:3]),
            ),
            cost=cost if costly else None,
            leaves="the first compilation, which happens once" if costly else "",
            confidence=0.9 if its and its[0].reason else 0.75,
            explains=claims.RECOMPILES,
        )


def _summary(facts: CompileFacts, its: Sequence[Recompile], function: str, ratio: float, lost_s: float) -> str:
    text = (
        f"torch.compile recompiled {counted(facts.steady_recompile_count, 'time')} after warm-up, which took "
        f"{seconds(lost_s)} ({percent(ratio)} of the run)"
    )
    if its:
        batches = [r.batch for r in its if r.batch is not None]
        where = f", in batches {batches[0]} to {batches[-1]}" if len(batches) > 1 else ""
        text += f": {function} {counted(len(its), 'time')}{where}"
    verbs = ("was", "runs") if facts.limit_hits == 1 else ("were", "run")
    given_up = f" {counted(facts.limit_hits, 'function')} {verbs[0]} given up and {verbs[1]} uncompiled."
    return f"{text}.{given_up if facts.limit_hits else ''}"


def _advice(metrics: Metrics, its: Sequence[Recompile]) -> Advice:
    reason = next((short_reason(r.reason) for r in its if r.reason), "")
    guard = f" Guard: {reason}." if reason else " To see the guard that fails: TORCH_LOGS=recompiles"
    size, value = _SIZE.search(reason), _VALUE.search(reason)
    if size is not None and _only_last_batches(metrics, its):
        change = Change(call="DataLoader", arguments={"drop_last": True}, before={"drop_last": False})
        return f"Drop the smaller last batch of each epoch: DataLoader(..., drop_last=True).{guard}", change
    if size is not None:
        tensor, index = size["tensor"], size["index"]
        others = f"torch._dynamo.mark_dynamic(tensor, {index}) before the call, or pad to a few sizes.{guard}"
        why = f"The size of {tensor} changes at dimension {index}"
        if metrics.condition("compile.dynamic") in (True, "yes"):
            return f"{why} although dynamic=True is set: {others}", None
        change = Change(call="torch.compile", arguments={"dynamic": True})
        return f"{why}: set torch.compile(..., dynamic=True), or {others}", change
    if value is not None:
        fix = "make it a tensor or keep it out of the compiled code"
        return f"The Python value {value['what']} changes, and each value is compiled separately: {fix}.{guard}", None
    return f"Keep what the failing guard checks constant from step to step.{guard}", None


def _only_last_batches(metrics: Metrics, its: Sequence[Recompile]) -> bool:
    batches = metrics.positive("trainer.num_training_batches") or 0
    known = [r.batch for r in its if r.batch is not None]
    if batches < 2 or not known or metrics.condition("loader.drop_last") is True:
        return False
    return all((batch + 1) % batches == 0 for batch in known)
