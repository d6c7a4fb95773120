"""What was sampled beside the steps as curves, and the ranks side by side."""

from html import escape

from msgspec.structs import replace

from lightning_gpuprof.model.numbers import count
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import rank_tables
from lightning_gpuprof.sinks.curve_figure import curve_figure, curve_table
from lightning_gpuprof.sinks.drawings import curves_svg, heat_html
from lightning_gpuprof.sinks.html_page import figure, section, unfolded_on_click

_LABEL = "Utilization, memory, power, clocks, CPU time and disk traffic over the run"
_TITLE = "GPUs, host and memory over the steps"


def curves(report: Report) -> str:
    """Curves of GPUs, allocator and host under each other, on the axis of the steps."""
    drawn = curve_figure(report)
    if drawn is None:
        return (
            f'<section id="curves">\n<h2>{_TITLE}</h2>\n'
            '<p class="absent">Nothing was sampled beside the steps.</p>\n</section>\n'
        )
    return (
        f'<section id="curves">\n<h2>{_TITLE}</h2>\n'
        "<p>Long runs show the minimum and maximum of each interval.</p>\n"
        f"{figure('curves', drawn, _LABEL, curves_svg(drawn))}"
        f"{unfolded_on_click((curve_table(report),))}</section>\n"
    )


def ranks(report: Report) -> str:
    """The ranks by the phases of their steps; nothing where there is one rank."""
    found = report.ranks
    if found is None or len(found.rows) < 2:
        return ""
    absent = f"<p>Left out: {escape('; '.join(found.left_out))}.</p>\n" if found.left_out else ""
    drawn = rank_tables.heat_figure(found)
    several = f"{len(found.rows)} of {found.world_size} ranks" if len(found.rows) < found.world_size else "All ranks"
    folded = (
        ""
        if len(drawn.ranks) == len(found.rows)
        else (" Above are the ranks that take longest on their own, below hosts by the median of their ranks.")
    )
    lead = (
        f"<p>{several}, over the {count(found.steps)} steps that all of them have steady. The colour is the difference "
        f"from the median rank; a rank that is late on its own shows in the others as backward or sync.{folded}</p>\n"
        f"{absent}{figure('heat', drawn, 'Median time of each phase on each rank, in ms', heat_html(drawn))}"
    )
    table = rank_tables.rank_table(found)
    if len(found.rows) <= rank_tables.MAX_ROWS:
        return section("ranks", table, lead)
    all_ranks = replace(table, title=f"{count(len(found.rows))} ranks, the latest first")
    return f'<section id="ranks">\n<h2>{table.title}</h2>\n{lead}{unfolded_on_click((all_ranks,))}</section>\n'
