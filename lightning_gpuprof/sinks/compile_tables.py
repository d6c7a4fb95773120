"""What ``torch.compile`` did, as one sentence and two tables."""

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.compilation import CompileFacts, Recompile
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import COUNT, SECONDS, SENTENCE, Column, Table, facts, name

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
        parts.append(f"{numbers.counted(facts.graph_break_count, 'graph break')}{where}")
    if late := [recompile for recompile in facts.recompiles if recompile.steady]:
        parts.append(_late(late, facts.steady_recompile_count, facts.steady_recompile_s))
    elif facts.recompile_count:
        parts.append(f"{numbers.counted(facts.recompile_count, 'recompile')} before the run was steady")
    if facts.limit_hits:
        parts.append(f"{numbers.counted(facts.limit_hits, 'function')} given up after too many recompiles")
    if facts.failures:
        parts.append(f"{numbers.counted(len(facts.failures), 'function')} could not be compiled")
    if facts.cudagraph_skips:
        parts.append(f"{numbers.counted(facts.cudagraph_skips, 'CUDA graph')} skipped")
    return "; ".join(parts)


def _compiled(facts: CompileFacts) -> str:
    caches = facts.cache_hits + facts.cache_misses
    cached = f", {facts.cache_hits} of {caches} from the cache" if caches else ""
    return f"{numbers.counted(facts.graphs, 'graph')} compiled in {numbers.seconds(facts.compile_s)}{cached}"


def _late(late: list[Recompile], count: int, cost_s: float) -> str:
    steps = [recompile.batch for recompile in late if recompile.batch is not None]
    reason = plain.sentence(late[0].reason)
    why = f": {plain.shorten(reason, REASON_LIMIT)}" if reason else ""
    return f"{numbers.counted(count, 'recompile')} from batch {min(steps)} on cost {numbers.seconds(cost_s)}{why}"


def _place(file: str, line: int | None) -> str:
    if not file:
        return numbers.ABSENT
    return plain.name(file if line is None else f"{file}:{line}", 80)


def summary_table(report: Report) -> Table:
    """All numbers about compiling."""
    found = report.compile
    rows: tuple[tuple[str, str], ...] = ()
    if found is not None:
        rows = (
            ("functions compiled, and parts of functions", numbers.count(found.frames)),
            ("graphs", numbers.count(found.graphs)),
            ("graph breaks", numbers.count(found.graph_break_count)),
            ("recompiles", numbers.count(found.recompile_count)),
            ("recompiles in steady state", numbers.count(found.steady_recompile_count)),
            ("functions given up after too many recompiles", numbers.count(found.limit_hits)),
            ("wall time of compiling", numbers.seconds(found.compile_s)),
            ("in the backend, without backward passes", numbers.seconds(found.backend_s)),
            ("in inductor", numbers.seconds(found.inductor_s)),
            ("steps with a compilation", numbers.count(found.steps_count)),
            ("time beyond a steady step", numbers.seconds(found.steps_excess_s)),
            ("cache hits", numbers.count(found.cache_hits)),
            ("cache misses", numbers.count(found.cache_misses)),
            ("CUDA graphs skipped", numbers.count(found.cudagraph_skips)),
            *(("why skipped", plain.sentence(reason)) for reason in found.cudagraph_skip_reasons),
            *(("could not be compiled", plain.sentence(failure)) for failure in found.failures),
        )
    return facts("torch.compile", rows, absent="Nothing was compiled with torch.compile.")


def recompile_table(facts: CompileFacts) -> Table:
    """Each recompile, in order."""
    return Table.of(
        "Recompiles",
        facts.recompiles,
        Column("function", lambda recompile: recompile.function, name(60)),
        Column("where", lambda recompile: _place(recompile.file, recompile.line)),
        Column("batch", lambda recompile: recompile.batch, COUNT, help="step in which it happened"),
        Column("cost", lambda recompile: recompile.cost_s, SECONDS, help="of compiling, with the backward pass"),
        Column(
            "reason", lambda recompile: plain.sentence(recompile.reason) or numbers.ABSENT, help="the guard that failed"
        ),
        absent="Nothing was compiled twice.",
    )


def graph_break_table(facts: CompileFacts) -> Table:
    """Each place of a graph break, most frequent first."""
    return Table.of(
        "Graph breaks",
        facts.graph_breaks,
        Column("where", lambda row: _place(row.file, row.line)),
        Column("function", lambda row: row.function or None, name(60)),
        Column("count", lambda row: row.count, COUNT, help="once for each compiled version of the function"),
        Column("reason", lambda row: row.reason, SENTENCE),
        absent="No graph break.",
    )
