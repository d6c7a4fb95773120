"""A run in short, and what stands behind its numbers: cost, conditions, what could not be judged, the words."""

from html import escape

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.conditions import GROUPS, HASH_NAME, fact_of
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.phases import PARTS, PHASE_TERMS, PHASES, words_of
from lightning_gpuprof.model.report import Report, Steps
from lightning_gpuprof.sinks import plain, tables, wording
from lightning_gpuprof.sinks.first_screen import first_screen, reliability
from lightning_gpuprof.sinks.gains import faster
from lightning_gpuprof.sinks.html_page import bdi, folded, glossary, headed, section, table_html, term
from lightning_gpuprof.sinks.tables import NAME, Column, Table

_GLOSSARY: tuple[tuple[str, str], ...] = (
    ("step", "one batch of the loop that was measured, from the start of its fetch to the start of the next fetch"),
    ("optimizer step", "one update of the weights; the axis of loggers and of windows="),
    ("step time", "time from step start to next step start: throughput; the phases sum to it"),
    ("steady", "after warm-up: from here on the step time is stable"),
    ("speed level", "a stretch of steps at one speed; the next one differs by more than a fifth"),
    ("95 % CI", "confidence interval of this run's median or mean, by a block bootstrap of its steady steps"),
    ("window", "optimizer steps that were traced with torch.profiler; their times are inflated by profiling"),
    ("busy", "time in which a kernel or copy ran on any stream; idle is the rest"),
    ("utilization", "NVML's share of time in which a kernel was running; says nothing about efficiency"),
    ("SM", "streaming multiprocessor: the unit of a GPU that runs blocks, with registers, shared memory and L1 cache"),
    ("warp", "32 threads of a block (64 on many AMD GPUs) that run the same instruction together"),
    ("block", "threads of a kernel that run on one SM, share its shared memory and can wait for each other"),
    ("grid", "all blocks of one launch of a kernel"),
    ("occupancy", "warps that an SM holds over the most that it can hold; says nothing about efficiency by itself"),
    ("gain", "upper bound of the speed-up T / (T - R) if all recoverable time R of the step time T went away"),
    ("evidence", "a measured number and the limit above or below which the rule fires"),
    ("not evaluated", "the rule lacked a signal; this is never the same as nothing found"),
)


def summary(report: Report) -> str:
    """What was measured, whether it can be relied on, what bounds it, and the numbers that a run is known by."""
    known = reliability(report)
    items = "".join(f"<li>{bdi(caveat)}</li>\n" for caveat in known.details)
    parts = (
        f"<p>{bdi(wording.headline(report))}</p>\n" if wording.headline(report) else "",
        f"<p>{bdi(wording.steadiness(report))}</p>\n",
        _hash(report),
        f'<p class="sure {known.kind.replace(" ", "-")}">{escape(f"{known.mark} {known.words}")}</p>\n',
        f'<ul class="caveats">\n{items}</ul>\n' if items else "",
        _verdict(report),
        tiles(report),
    )
    return headed("summary", wording.title(report).capitalize(), "".join(parts))


def _hash(report: Report) -> str:
    value = report.run.get(HASH_NAME)
    meaning = "equal for runs under equal conditions: hardware, software, model, batch, data, trainer, flags"
    return f'<p>{term("conditions", meaning)} <a href="#conditions">{bdi(str(value))}</a></p>\n' if value else ""


def _verdict(report: Report) -> str:
    """What bounds the run."""
    runner_up = ""
    if report.verdict.runner_up:
        runner_up = f"<p>Next largest cause: {bdi(plain.sentence(report.verdict.runner_up))}</p>\n"
    return (
        f'<div class="verdict">\n<h3>Verdict: <strong>{escape(report.verdict.kind)}</strong></h3>\n'
        f'<p class="lead">{bdi(plain.sentence(report.verdict.summary))}</p>\n{runner_up}</div>\n'
    )


_STEP_TIME = "median time from step start to next step start, of steady steps, with its 95 % confidence interval"
_THROUGHPUT = "samples of a batch, of all ranks, over the mean time of a steady step, with its 95 % confidence interval"
_FIRST_CHANGE = "what the change on the first screen alone is expected to bring, or else at most"


def tiles(report: Report) -> str:
    """The numbers that a run is known by."""
    steps, period = report.steps, report.steps.period_ms
    steady = f"{numbers.count(steps.steady_count)} steady"
    median = numbers.quantity("period_ms", period.median if period else None)
    speed = numbers.with_unit(steps.samples_per_s, "samples/s")
    screen = first_screen(report)
    change = numbers.ABSENT if screen.speedup is None else f"{screen.likely.sure} {faster(screen.speedup)}"
    of = "" if screen.speedup is None else "the whole run" if screen.scale == "run" else "a step"
    of_stage = f"of {wording.stage(report)}, from its call to its end"
    tiles = [
        ("steps", numbers.count(steps.count), steady, "batches that were measured"),
        ("wall time", numbers.seconds(report.wall.total_s), "", of_stage),
        ("median step time", median, _sure(steps.period_median_interval_ms), _STEP_TIME),
        ("throughput", speed, _rate_note(steps), _THROUGHPUT),
        ("first change", change, of, _FIRST_CHANGE),
    ]
    cells = "".join(
        f'<div class="tile"><dt>{term(name, meaning)}</dt><dd>{_amount(value)}</dd>'
        + (f'<dd class="note">{escape(note)}</dd>' if note else "")
        + "</div>\n"
        for name, value, note, meaning in tiles
    )
    return f'<dl class="tiles">\n{cells}</dl>\n'


def _rate_note(steps: Steps) -> str:
    """The mean step that the rate is of, which is not the median beside it, and its interval."""
    mean = "" if steps.period_ms is None else f"mean step {numbers.quantity('period_ms', steps.period_ms.mean)}"
    return "; ".join(note for note in (mean, _sure(steps.samples_per_s_interval)) if note)


def _sure(ends: tuple[float, float] | None) -> str:
    shown = numbers.interval(ends)
    return f"95 % CI: {shown}" if shown else ""


def _amount(shown: str) -> str:
    """A number with its unit in smaller letters."""
    number, _, unit = shown.rpartition(" ")
    return f"{escape(number)} <small>{escape(unit)}</small>" if number[-1:].isdigit() else escape(shown)


def not_evaluated(report: Report) -> str:
    """Rules that could not judge, and why."""
    return section("not-evaluated", tables.not_evaluated_table(report))


def cost(report: Report) -> str:
    """What the profiler itself took."""
    return section("overhead", tables.overhead_table(report))


def conditions(report: Report) -> str:
    """Under which conditions the run went, closed at first."""
    table = condition_table(report)
    return folded("conditions", table.title, table_html(table))


def terms(_: Report) -> str:
    """Glossary."""
    phases = ((f"{words_of(phase)} (phase)", PHASE_TERMS[phase]) for phase in PHASES)
    parts = ((f"{words_of(part)} (part of the wall time)", tables.PART_TERMS[part]) for part in PARTS)
    return glossary((*_GLOSSARY, *phases, *parts))


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
