"""Generates one page per group of numbers, ``docs/numbers/``, from the model.

What the pages say is taken from the docstrings of the report's structs and from the terms of the tables that reports
draw, so that no meaning is written down twice.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docstrings import bullets, class_doc, described, markdown
from lightning_gpuprof.model.host import HostUse
from lightning_gpuprof.model.input_pipeline import INPUT_VERDICT_TERMS, InputPipeline
from lightning_gpuprof.model.method import LEVEL_QUESTIONS
from lightning_gpuprof.model.phases import PHASE_TERMS
from lightning_gpuprof.model.report import LABEL_TERMS, OVERHEAD_TERMS, Report
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.model.trial import Trial
from lightning_gpuprof.sinks import (
    device_tables,
    host_tables,
    input_tables,
    memory_tables,
    tables,
    time_tables,
    trial_tables,
)
from lightning_gpuprof.sinks.tables import PART_TERMS, Table
from structs import Struct, fields, hints_of, json_type, meaning, places
from walked_report import walked_report

NOTE = "Made from the source by `python docs/tools/pages.py`: change it there."
ANALYSIS_PAGE = "../reference/trace-analysis.md"

_LONG_LIST = re.compile(r"(?:`[^`]+`, ){3,}`[^`]+`")
_ANCHOR = re.compile(r"#\w+")
TablesOf = Callable[[Report], "Table | Sequence[Table]"]


@dataclass(frozen=True, kw_only=True)
class Group:
    """One page: the fields of ``report.json`` that it explains, and the words and tables that belong to them."""

    name: str
    title: str
    intro: str
    fields: tuple[str, ...]
    terms: Mapping[str, Mapping[Any, str]] = field(default_factory=dict)
    """Title of a list of words -> word -> meaning."""
    tables: tuple[TablesOf, ...] = ()


def _host(table_of: Callable[[HostUse], Table]) -> TablesOf:
    return lambda report: table_of(report.host)


def _input(table_of: Callable[[InputPipeline], Table]) -> TablesOf:
    return lambda report: [] if report.input is None else table_of(report.input)


def _trial(table_of: Callable[[Trial], Table]) -> TablesOf:
    return lambda report: [] if report.trial is None else table_of(report.trial)


GROUPS: tuple[Group, ...] = (
    Group(
        name="steps",
        title="Steps",
        intro="How many steps, how long they took, and which of them the statistics rest on. Only steady steps count: "
        "the first lines of a report say how many were left out, and why.",
        fields=("steps",),
        terms={"What a step counts as": LABEL_TERMS},
        tables=(tables.step_time_table, time_tables.label_table, time_tables.speed_level_table),
    ),
    Group(
        name="phases",
        title="Phases",
        intro="A step is cut into phases, which sum to the step time. They are times of the main thread: on a GPU, "
        "a phase is long if the host is busy or waits in it, and not because its kernels take long. For those see "
        "[trace windows](windows.md).",
        fields=("phases", "lines", "stacks"),
        terms={"The phases": PHASE_TERMS},
        tables=(tables.phase_table, lambda report: tables.line_table(report, len(report.lines))),
    ),
    Group(
        name="wall",
        title="Wall time",
        intro="From the entry into `fit` (or `validate`, `test`, `predict`) to the last thing that it does, in parts "
        "that sum to it. What no part explains is a part of its own, and shown also where it is 0.",
        fields=("wall",),
        terms={"The parts": PART_TERMS},
        tables=(tables.wall_table,),
    ),
    Group(
        name="ledger",
        title="Where every second went",
        intro="The wall time once more, in rows with the names of your callbacks, modules and regions. No second is in "
        "two rows, and all rows sum to the wall time.",
        fields=("ledger", "callbacks"),
        tables=(lambda report: time_tables.ledger_table(report, 20), lambda report: tables.callback_table(report, 20)),
    ),
    Group(
        name="curves",
        title="Curves and marks",
        intro="What was sampled beside the steps, over the run, and where windows, validations, checkpoints and "
        "outliers lie. Thinned: the least and the largest value of each stretch stay. What the figures show: "
        "[report.html](../how-to-read.md#reporthtml).",
        fields=("series", "curves", "marks"),
    ),
    Group(
        name="ranks",
        title="Ranks",
        intro="Phases of each rank side by side, if more than one left a journal. A rank that is late before a "
        "collective shows as a wait of the others, in their backward.",
        fields=("ranks", "rank_ends", "rank_windows"),
    ),
    Group(
        name="devices",
        title="GPUs",
        intro="What was sampled of the GPUs through the driver. The names of the sampled values (`devices[].values`), "
        "which GPUs have them and when they are wrong: [GPUs](../devices.md).",
        fields=("devices",),
        tables=(
            tables.device_table,
            device_tables.throttle_table,
            device_tables.fact_table,
            device_tables.error_table,
        ),
    ),
    Group(
        name="host",
        title="Host",
        intro="CPUs, memory, disks and limits of the machine, by process, thread and worker. How it is measured and "
        "when it is wrong: [Host](../host.md).",
        fields=("host",),
        tables=(
            *map(_host, (host_tables.process_table, host_tables.thread_table, host_tables.pressure_table)),
            *map(_host, (host_tables.gc_table, host_tables.growth_table, host_tables.reading_table)),
        ),
    ),
    Group(
        name="memory",
        title="Memory",
        intro="torch's allocator at the ends of phases, what holds the memory, what grows, and what was there when it "
        "ran out. How it is measured and when it is wrong: [Memory](../memory.md).",
        fields=("memory",),
        tables=(lambda report: memory_tables.memory_tables(report.memory),),
    ),
    Group(
        name="input",
        title="Input pipeline",
        intro="What the DataLoader's workers do, and whether they keep pace with the steps. How it is measured and "
        "when it is wrong: [Input pipeline](../input-pipeline.md).",
        fields=("input",),
        terms={"The verdicts": INPUT_VERDICT_TERMS},
        tables=(
            input_tables.verdict_table,
            *map(_input, (input_tables.worker_table, input_tables.part_table, input_tables.queue_table)),
        ),
    ),
    Group(
        name="windows",
        title="Trace windows",
        intro="What was seen in the few steps that were traced. Times inside of a window are longer than untraced "
        "ones: use it to see where time goes, not how much. All tables: [Traces](../traces.md); the fields of "
        f"`analysis`: [Trace analysis]({ANALYSIS_PAGE}).",
        fields=("windows",),
        tables=(tables.window_table,),
    ),
    Group(
        name="compile",
        title="torch.compile",
        intro="What was compiled, why again, and where compiled code goes back to Python. How it is read: "
        "[Compilation](../compilation.md).",
        fields=("compile",),
    ),
    Group(
        name="findings",
        title="Verdict and findings",
        intro="What bounds the run, what to change, how much that can gain, and what could not be judged. How they are "
        "made: [Diagnosis](../diagnosis.md); what each finding means: [Rules](../rules/README.md).",
        fields=("validity", "verdict", "findings", "not_evaluated", "checks", "combined", "method", "target", "cost"),
        terms={"The levels of the method": LEVEL_QUESTIONS},
    ),
    Group(
        name="trial",
        title="Tried advice",
        intro="What `gpuprof try` measured of the advice, if somebody ran it. How it is measured and when it is wrong: "
        "[Does the advice work for me?](../try.md).",
        fields=("trial",),
        tables=(_trial(trial_tables.tried_table), _trial(trial_tables.left_table)),
    ),
    Group(
        name="overhead",
        title="Cost of the profiler",
        intro="What the profiler itself took from this run, measured in this run. What it takes from runs in general: "
        "[Benchmarks](../benchmarks.md).",
        fields=("overhead",),
        terms={"The entries": OVERHEAD_TERMS},
    ),
)
"""In the order of a report."""

ELSEWHERE = {
    "schema_version": "",
    "run": "../conditions.md",
}
"""Fields of ``report.json`` without a page here, and where they are explained."""


def write(folder: Path) -> list[Path]:
    """Write all pages.

    Args:
        folder: An existing folder; what else is in it stays.

    Returns:
        The files.
    """
    report = walked_report()
    pages = {"index": _index(), **{group.name: _page(group, report) for group in GROUPS}}
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    return [folder / f"{name}.md" for name in pages]


def _index() -> str:
    page_of = {name: f"{group.name}.md" for group in GROUPS for name in group.fields} | ELSEWHERE
    hints = hints_of(Report)
    if lost := [name for name in hints if name not in page_of]:
        raise LookupError(f"no page explains {', '.join(lost)} of the report: name them in GROUPS")
    rows = [
        (
            f"[`{one.name}`]({page_of[one.name]})" if page_of[one.name] else f"`{one.name}`",
            meaning(one, hints[one.name]),
        )
        for one in fields(Report)
    ]
    return "\n".join(
        (
            "# Numbers",
            "",
            "The fields of `report.json`, each with the page that explains what is below it.",
            "",
            "- Names end with their unit: `_s`, `_ms`, `_us`, `_bytes`, `_mhz`. A `_ratio` is 0 to 1; percent exists "
            "only where people read it.",
            '- `null` (`None`, or `-` in a table) is "not measured". It is never 0, and a 0 was measured.',
            "- A field without a description says what it is by its name.",
            "- Statistics rest on [steady steps](steps.md) unless the text says otherwise.",
            "",
            bullets(rows),
            "",
            f"<!-- {NOTE} -->",
            "",
        )
    )


def _page(group: Group, report: Report) -> str:
    parts = [f"# {group.title}", group.intro]
    for title, words in group.terms.items():
        parts += [f"## {title}", bullets([(f"`{word}`", markdown(text)) for word, text in words.items()])]
    parts += _columns(group, report)
    parts += _structs(group.fields)
    return "\n\n".join([*parts, f"<!-- {NOTE} -->"]) + "\n"


def _structs(names: Iterable[str]) -> list[str]:
    """A section per struct below these fields of the report."""
    hints = hints_of(Report)
    found: dict[Struct, list[str]] = {}
    for name in names:
        for struct, where in places(name, hints[name], without=frozenset({TraceAnalysis})).items():
            found.setdefault(struct, []).extend(where)
    parts = ["## In report.json"] if found else []
    shown: set[str] = set()
    for struct, where in found.items():
        doc = class_doc(struct.__module__, struct.__name__)
        said = described(doc.text).strip()
        parts += [f"### {struct.__name__}", f"{_places(where)}: {said}", fields_list(struct, found, shown)]
    return parts


def _places(where: Sequence[str]) -> str:
    """The first few places of a struct."""
    shown = ", ".join(f"`{one}`" for one in where[:4])
    return f"{shown} and {len(where) - 4} more" if len(where) > 4 else shown


def fields_list(struct: Struct, on_page: Iterable[Struct], shown: set[str]) -> str:
    """The fields of a struct: name, what it is where its name does not say it, and the struct or words in it.

    Args:
        struct: The struct.
        on_page: Structs that have a section of their own on the same page: their names become links.
        shown: Lists of words that the page has already; this function adds its own.
    """
    here = frozenset(on_page)
    hints = hints_of(struct)

    def name_of(other: Struct) -> str:
        return f"[{other.__name__}](#{other.__name__.lower()})" if other in here else other.__name__

    rows, plain = [], []
    for one in fields(struct):
        kind = json_type(hints[one.name], name_of).removesuffix(" or null")
        kind = kind if any(mark in kind for mark in ("`", "[", "object", "list of 2")) else ""
        for words in _LONG_LIST.findall(kind):
            kind = "" if words in shown else kind
            shown.add(words)
        anchor = _ANCHOR.search(kind)
        if anchor and not one.text:
            plain.append(f"[`{one.name}`]({anchor[0]})")
        elif one.text or kind:
            rows.append((f"`{one.name}`" + (f" ({kind})" if kind else ""), one.text))
        else:
            plain.append(f"`{one.name}`")
    return bullets([*rows, *([(", ".join(plain), "")] if plain else [])])


def _columns(group: Group, report: Report) -> list[str]:
    """Columns and rows of the report's tables that have a term."""
    parts = []
    for table_of in group.tables:
        made = table_of(report)
        for one in (made,) if isinstance(made, Table) else made:
            rows = _terms(one)
            if rows:
                parts += [f"## Table: {one.title}", bullets(rows)]
    return parts


def _terms(one: Table) -> list[tuple[str, str]]:
    found = {(c.title, c.unit): c.help for c in one.columns if c.help and c.title}
    return [(f"**{name}**" + (f" ({unit_})" if unit_ else ""), markdown(term)) for (name, unit_), term in found.items()]
