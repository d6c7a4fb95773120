"""Compiled code falls back to Python in places: it was cut into several graphs.

## What it means
Where dynamo meets something that cannot go into a graph (`.item()`, `print`, a branch on a tensor's value, a function
of another library) it compiles the code before and after separately and runs that place in Python. Each graph costs its
call and its guards in every step, nothing is fused across the cut, and CUDA graphs end there.

## How it is measured
From dynamo's counters and notes: the reasons, your lines, and how often each was met while compiling. The cost per step
is not measured, so it is information only, without a gain. If there are no breaks, functions that could not be compiled
at all are reported instead.

## When it is wrong
- A break between large parts of the model costs microseconds in steps of many milliseconds.
- If the LightningModule itself is compiled, `self.log` breaks the graph by design.

## What to do
Move the lines out of the compiled code, or compile the parts around them; `torch.compile(..., fullgraph=True)` raises
at the first break, with its stack.
"""

from lightning_gpuprof.model.code_place import in_words
from lightning_gpuprof.model.compilation import GraphBreak, short_reason
from lightning_gpuprof.model.numbers import capital
from lightning_gpuprof.rules.base import BaseRule, Finding, Metrics, counted, listed, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, quiet
from lightning_gpuprof.rules.torch_advice import remedy_of_break


class GraphBreaks(BaseRule):
    id = "graph-breaks"
    title = "Compiled code falls back to Python"
    needs = "compile"
    certainty = 0.8

    least_count: int = threshold(1, source="heuristic: any, if the model is compiled")

    examples = (
        fires(".item() breaks it", "info", "no .item()", compiled={"breaks": [{"reason": "Tensor.item() call"}]}),
        fires("a function failed", "info", "could not be compiled", compiled={"failures": ("Unsupported: generator",)}),
        quiet("nothing is compiled"),
        looks_alike("the model is compiled again", compiled={"recompiles": [{"batch": 50}]}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        facts = metrics.compile
        if facts is None or (facts.graph_break_count < self.least_count and not facts.failures):
            return None
        if facts.graph_break_count < self.least_count:
            return self._not_compiled(metrics, facts.failures)
        worst = next((b for b in facts.graph_breaks if b.file), next(iter(facts.graph_breaks), None))
        places = list(dict.fromkeys(b.place for b in facts.graph_breaks if b.file))
        shown = f" in {listed([in_words(place) for place in places[:3]])}" if places else ""
        more = f" and {len(places) - 3} other lines" if len(places) > 3 else ""
        failed = f" Not compiled at all: {short_reason(facts.failures[0])}." if facts.failures else ""
        return self.finding(
            subject=worst.place if worst is not None and worst.file else "torch.compile",
            summary=f"Compiled code falls back to Python{shown}{more}: "
            f"{counted(facts.graph_break_count, 'graph break')}, {counted(facts.graphs, 'graph')} in all.{failed}",
            advice=_advice(worst),
            evidence=(
                self.evidence("least_count", facts.graph_break_count, "graph breaks"),
                *(
                    self.fact(b.place if b.file else "somewhere", f"{short_reason(b.reason)} ({b.count} times)")
                    for b in facts.graph_breaks[:5]
                ),
            ),
        )

    def _not_compiled(self, metrics: Metrics, failures: tuple[str, ...]) -> Finding:
        subject = str(metrics.condition("compile.modules") or "torch.compile")
        advice = _advice(GraphBreak(reason=failures[0], function="", file="", line=None, count=1))
        return self.finding(
            subject=subject,
            summary=f"{counted(len(failures), 'function')} of {subject} could not be compiled and "
            f"{'runs' if len(failures) == 1 else 'run'} uncompiled: {short_reason(failures[0])}.",
            advice=f"{advice} A break inside a loop costs the whole function.",
            evidence=tuple(self.fact("failure", short_reason(failure)) for failure in failures[:5]),
        )


def _advice(worst: GraphBreak | None) -> str:
    locate = "To see the first break with its stack: torch.compile(..., fullgraph=True)."
    if worst is None:
        return locate
    remedy = remedy_of_break(worst.reason)
    there = f"In {in_words(worst.place)}, {remedy}" if worst.file else capital(remedy)
    return f"{there} (dynamo: {short_reason(worst.reason)!r}). {locate}"
