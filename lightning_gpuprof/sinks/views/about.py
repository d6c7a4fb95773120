"""What stands behind the numbers: what could not be judged, the cost, the conditions by group, the words."""

from html import escape

from lightning_gpuprof.model.conditions import GROUPS, fact_of
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.phases import PARTS, PHASE_TERMS, PHASES
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import plain, tables
from lightning_gpuprof.sinks.html_page import folded, section
from lightning_gpuprof.sinks.tables import NAME, Column, Table

_GLOSSARY: tuple[tuple[str, str], ...] = (
    ("step", "one batch of the loop that was measured, from the start of its fetch to the start of the next fetch"),
    ("optimizer step", "one update of the weights; the axis of loggers and of windows="),
    ("step time", "time from step start to next step start: throughput; the phases sum to it"),
    ("steady", "after warm-up: from here on the step time is at its level and quiet"),
    ("speed level", "a stretch of steps that keeps one level; the next one differs by more than a fifth"),
    ("95 % interval", "confidence interval of this run's median or mean, by a block bootstrap of its steady steps"),
    ("window", "optimizer steps that were traced with torch.profiler; their times are inflated by profiling"),
    ("busy", "union of the device's work, kernels and copies, over all streams; idle is the rest"),
    ("utilization", "NVML's share of time in which a kernel was running; says nothing about efficiency"),
    ("gain", "upper bound of the speed-up T / (T - R) if all recoverable time R of the step time T went away"),
    ("evidence", "a measured number and the limit above or below which the rule fires"),
    ("not evaluated", "the rule lacked a signal; this is never the same as nothing found"),
)


def not_evaluated(report: Report) -> str:
    """Rules that could not judge, and why."""
    return section("not-evaluated", tables.not_evaluated_table(report))


def cost(report: Report) -> str:
    """What the profiler itself took."""
    return section("overhead", tables.overhead_table(report))


def conditions(report: Report) -> str:
    """Under which conditions the run went, closed at first."""
    return folded("conditions", condition_table(report))


def terms(_: Report) -> str:
    """Glossary."""
    phases = ((f"{phase} (phase)", PHASE_TERMS[phase]) for phase in PHASES)
    parts = ((f"{part} (part of the wall time)", tables.PART_TERMS[part]) for part in PARTS)
    entries = (*_GLOSSARY, *phases, *parts)
    items = "".join(f"<dt>{escape(word)}</dt><dd>{escape(meaning)}</dd>\n" for word, meaning in entries)
    return (
        '<section id="terms">\n<details>\n<summary><h2>Glossary</h2></summary>\n'
        f"<dl>\n{items}</dl>\n</details>\n</section>\n"
    )


def condition_table(report: Report) -> Table:
    """All conditions of the run, those that name it last."""
    facts = sorted(report.run.items(), key=lambda item: GROUPS.index(fact_of(item[0]).group))
    return Table.of(
        "Conditions",
        facts,
        Column("about", lambda row: fact_of(row[0]).group),
        Column("condition", lambda row: row[0], NAME),
        Column("value", lambda row: condition_value(row[1])),
        absent="No condition of the run is known.",
    )


def condition_value(value: Value) -> str:
    """A condition's value; None is "not known"."""
    if value is None:
        return "not known"
    if value is True or value is False:
        return "yes" if value else "no"
    return plain.name(str(value), 200)
