"""What ``torch.compile`` did flows in, one sentence and two tables of readable text flow out."""

from __future__ import annotations

from lightning_gpuprof.model.compilation import CompileFacts, GraphBreak, Recompile
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import numbers, plain
from lightning_gpuprof.sinks.tables import Cell, Column, Table

REASON_LIMIT = 240


def summary(report: Report) -> str:
    """What of it matters, in one sentence; empty if nothing was compiled."""
    facts = report.compile
    if facts is None:
        return ""
    parts = [_compiled(facts)]
    if facts.graph_break_count:
        places = [_place(b.file, b.line) for b in facts.graph_breaks if b.line is not None]
        where = f" (first in {places[0]})" if places else ""
        parts.append(f"{_plural(facts.graph_break_count, 'graph break')}{where}")
    if late := [recompile for recompile in facts.recompiles if recompile.steady]:
        parts.append(_late(late, facts.steady_recompile_count, facts.steady_recompile_s))
    elif facts.recompile_count:
        parts.append(f"{_plural(facts.recompile_count, 'recompile')} before the run was steady")
    if facts.limit_hits:
        parts.append(f"{_plural(facts.limit_hits, 'function')} given up after too many recompiles")
    if facts.failures:
        parts.append(f"{_plural(len(facts.failures), 'function')} could not be compiled")
    if facts.cudagraph_skips:
        parts.append(f"{_plural(facts.cudagraph_skips, 'CUDA graph')} skipped")
    return "; ".join(parts)


def _compiled(facts: CompileFacts) -> str:
    caches = facts.cache_hits + facts.cache_misses
    cached = f", {facts.cache_hits} of {caches} from the cache" if caches else ""
    return f"{_plural(facts.graphs, 'graph')} compiled in {numbers.seconds(facts.compile_s)}{cached}"


def _late(late: list[Recompile], count: int, cost_s: float) -> str:
    steps = [recompile.batch for recompile in late if recompile.batch is not None]
    reason = plain.sentence(late[0].reason)
    why = f": {plain.shorten(reason, REASON_LIMIT)}" if reason else ""
    return f"{_plural(count, 'recompile')} from batch {min(steps)} on cost {numbers.seconds(cost_s)}{why}"


def _plural(count: int, word: str) -> str:
    return f"{numbers.count(count)} {word}{'' if count == 1 else 's'}"


def _place(file: str, line: int | None) -> str:
    if not file:
        return numbers.ABSENT
    return plain.name(file if line is None else f"{file}:{line}", 80)


def summary_table(report: Report) -> Table:
    """All numbers about compiling."""
    facts = report.compile
    rows: tuple[tuple[str, str], ...] = ()
    if facts is not None:
        rows = (
            ("functions and parts of functions", numbers.count(facts.frames)),
            ("graphs", numbers.count(facts.graphs)),
            ("graph breaks", numbers.count(facts.graph_break_count)),
            ("recompiles", numbers.count(facts.recompile_count)),
            ("recompiles in steady state", numbers.count(facts.steady_recompile_count)),
            ("given up after too many recompiles", numbers.count(facts.limit_hits)),
            ("wall time of compiling", numbers.seconds(facts.compile_s)),
            ("of it the backend, without backward passes", numbers.seconds(facts.backend_s)),
            ("of it inductor", numbers.seconds(facts.inductor_s)),
            ("steps in which something was compiled", numbers.count(facts.steps_count)),
            ("what they took more than steady ones", numbers.seconds(facts.steps_excess_s)),
            ("cache hits", numbers.count(facts.cache_hits)),
            ("cache misses", numbers.count(facts.cache_misses)),
            ("CUDA graphs skipped", numbers.count(facts.cudagraph_skips)),
            *(("why", plain.sentence(reason)) for reason in facts.cudagraph_skip_reasons),
            *(("could not be compiled", plain.sentence(failure)) for failure in facts.failures),
        )
    return Table(
        title="torch.compile",
        columns=(Column(title="what"), Column(title="value", numeric=True)),
        rows=tuple((Cell(text=what), Cell(text=value)) for what, value in rows),
        absent="Nothing was compiled with torch.compile.",
    )


def recompile_table(facts: CompileFacts) -> Table:
    """Each recompile, in order."""
    return Table(
        title="Recompiles",
        columns=(
            Column(title="function"),
            Column(title="where"),
            Column(title="batch", term="step in which it happened", numeric=True),
            Column(title="cost", term="of compiling, with the backward pass", numeric=True),
            Column(title="reason", term="the guard that failed: why no version that was there fitted"),
        ),
        rows=tuple(
            (
                Cell(text=plain.name(recompile.function, 60)),
                Cell(text=_place(recompile.file, recompile.line)),
                Cell(text=numbers.ABSENT if recompile.batch is None else numbers.count(recompile.batch)),
                Cell(text=numbers.seconds(recompile.cost_s)),
                Cell(text=plain.sentence(recompile.reason) or numbers.ABSENT),
            )
            for recompile in facts.recompiles
        ),
        absent="Nothing was compiled twice.",
    )


def graph_break_table(facts: CompileFacts) -> Table:
    """Each place of a graph break, most frequent first."""
    return Table(
        title="Graph breaks",
        columns=(
            Column(title="where"),
            Column(title="function"),
            Column(title="count", term="while compiling: once for each version of the function", numeric=True),
            Column(title="reason"),
        ),
        rows=tuple(_break_cells(graph_break) for graph_break in facts.graph_breaks),
        absent="No graph break.",
    )


def _break_cells(graph_break: GraphBreak) -> tuple[Cell, ...]:
    return (
        Cell(text=_place(graph_break.file, graph_break.line)),
        Cell(text=plain.name(graph_break.function, 60) or numbers.ABSENT),
        Cell(text=numbers.count(graph_break.count)),
        Cell(text=plain.sentence(graph_break.reason)),
    )
