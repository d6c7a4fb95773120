"""The analysis of a trace on the terminal."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.text import Text

from lightning_gpuprof.model.trace.analysis import TraceAnalysis, TraceDiagnosis
from lightning_gpuprof.sinks import trace_findings
from lightning_gpuprof.sinks.console import MAX_WIDTH, print_to
from lightning_gpuprof.sinks.tables import Table
from lightning_gpuprof.sinks.terminal_table import WIDER, draw
from lightning_gpuprof.sinks.terminal_text import bullet
from lightning_gpuprof.sinks.trace_summary import sentences
from lightning_gpuprof.sinks.trace_tables import CATALOGUE

_INDENT = 2


def render(
    analysis: TraceAnalysis,
    *,
    diagnosis: TraceDiagnosis | None = None,
    names: Sequence[str] | None = None,
    grep: str = "",
    run: str = "",
    width: int = MAX_WIDTH,
) -> RenderableType:
    """Findings, the summary and the tables as something that rich prints.

    Args:
        analysis: Of a trace.
        diagnosis: What the rules say of it, which stands first; None: they were not asked.
        names: Tables to show, and nothing else; None for all findings, the summary and the tables that matter most,
            empty for the first findings and the summary.
        grep: Show all rows of these tables in which a name contains this text, and no others; empty: the first rows.
        run: What prints the report of the run that recorded the trace; empty: it is not known.
        width: Columns that no table passes; sentences take 100 at most.

    Returns:
        Indented; tables without rows are left out, unless ``names`` has them.
    """
    said_absent: list[RenderableType] = []
    entries = [entry for entry in CATALOGUE if (entry.shown if names is None else entry.name in names)]
    if grep:
        every = (table for entry in entries for table in entry.whole_tables(analysis))
        tables = [table.containing(grep) for table in every]
    else:
        tables = [table for entry in entries for table in entry.tables(analysis)]
    if names is None:
        tables = [table for table in tables if table.rows]
    elif absent := [entry.name for entry in entries if not entry.tables(analysis)]:
        without = f"The trace has nothing for {', '.join(absent)}."
        if any(name.startswith("memory") for name in absent):
            without += " Memory is recorded with TraceConfig(profile_memory=True)."
        said_absent.append(Text(f"\n{without}"))
    parts: list[RenderableType] = []
    if not names:
        said = [] if diagnosis is None else trace_findings.terminal(diagnosis, whole=names is None, run=run)
        said += [bullet(line) for line in sentences(analysis)]
        parts.append(Constrain(Group(*said), MAX_WIDTH - _INDENT))
    parts += [*render_tables(tables), *said_absent]
    return Constrain(Padding(Group(*parts), (0, 0, 0, _INDENT)), width)


def print_tables(tables: Iterable[Table]) -> None:
    """Print tables under their titles on standard output."""
    print_to(None, Padding(Group(*render_tables(tables)), (0, 0, 0, _INDENT)))


def render_tables(tables: Iterable[Table]) -> list[RenderableType]:
    """Tables under their titles; columns that there is no place for are named below."""
    way_out = f"{WIDER}, or --csv"
    return [part for table in tables for part in (Text(f"\n{table.title}", style="bold"), draw(table, way_out=way_out))]
