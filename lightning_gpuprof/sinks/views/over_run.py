"""What was measured beside the steps: curves, ranks, compiling, input, GPUs, host, memory."""

from html import escape

from msgspec.structs import replace

from lightning_gpuprof.model.numbers import count
from lightning_gpuprof.model.phases import words_of
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import compile_tables, device_tables, host_tables, input_tables, rank_tables, tables
from lightning_gpuprof.sinks.curve_figure import curve_figure, curve_table
from lightning_gpuprof.sinks.drawings import curves_svg, heat_html
from lightning_gpuprof.sinks.html_page import absent, bdi, figure, headed, section, titled, unfolded_on_click
from lightning_gpuprof.sinks.memory_tables import memory_tables

_LABEL = "Utilization, memory, power, clocks, CPU time and disk traffic over the run"
_TITLE = "GPUs, host and memory over the steps"


def curves(report: Report) -> str:
    """Curves of GPUs, allocator and host under each other, on the axis of the steps."""
    drawn = curve_figure(report)
    if drawn is None:
        return headed("curves", _TITLE, absent("Nothing was sampled during the steps."))
    hint = "<p>Long runs show the minimum and maximum of each interval.</p>\n"
    table = unfolded_on_click((curve_table(report),))
    return headed("curves", _TITLE, hint + figure("curves", drawn, _LABEL, curves_svg(drawn)) + table)


def ranks(report: Report) -> str:
    """The ranks by the phases of their steps; nothing where there is one rank."""
    found = report.ranks
    if found is None or len(found.rows) < 2:
        return ""
    left_out = f"<p>Left out: {escape('; '.join(found.left_out))}.</p>\n" if found.left_out else ""
    drawn = rank_tables.heat_figure(found)
    several = f"{len(found.rows)} of {found.world_size} ranks" if len(found.rows) < found.world_size else "All ranks"
    folded = (
        ""
        if len(drawn.ranks) == len(found.rows)
        else (" Above are the ranks that take longest on their own, below hosts by the median of their ranks.")
    )
    beside = f", of {' and '.join(drawn.others)} in their own column" if drawn.others else ""
    lead = (
        f"<p>{several}: medians in ms, over the {count(found.steps)} steps that are steady on all of them. The colour "
        f"is the difference from the median rank{beside}; a late rank shows in the others "
        f"as {words_of('sync')}.{folded}</p>\n"
        f"{left_out}{heat_html(drawn)}"
    )
    table = rank_tables.rank_table(found)
    if len(found.rows) <= rank_tables.MAX_ROWS:
        return section("ranks", table, lead)
    all_ranks = replace(table, title=f"{count(len(found.rows))} ranks, the latest first")
    return headed("ranks", table.title, lead + unfolded_on_click((all_ranks,)))


def compiling(report: Report) -> str:
    """What ``torch.compile`` did."""
    facts = report.compile
    shown = () if facts is None else (compile_tables.recompile_table(facts), compile_tables.graph_break_table(facts))
    lead = f"<p>{bdi(compile_tables.summary(report))}</p>\n" if facts is not None else ""
    return section("compile", compile_tables.summary_table(report), lead, titled(shown))


def input_pipeline(report: Report) -> str:
    """The input pipeline from inside."""
    return section("input", input_tables.verdict_table(report), "", titled(input_tables.inner_tables(report)))


def gpus(report: Report) -> str:
    """What the driver reported of each GPU."""
    return section("gpus", tables.device_table(report), "", titled(device_tables.more_tables(report)))


def host(report: Report) -> str:
    """Processor, memory, disk, threads, workers."""
    first, *others = host_tables.tables_of(report)
    return section("host", first, "", titled(others))


def memory(report: Report) -> str:
    """The device's and the process's memory, each table a section."""
    first, *others = memory_tables(report.memory)
    rest = (section(f"memory-{number}", table) for number, table in enumerate(others, 2))
    return section("memory", first) + "".join(rest)
