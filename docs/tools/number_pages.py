"""Generates one page per group of numbers, ``docs/numbers/``, from the model.

What the pages say is taken from the docstrings of the report's structs and from the terms of the tables that reports
draw, so that no meaning is written down twice.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docstrings import bullets, class_doc, described, markdown
from lightning_gpuprof.model.input_pipeline import INPUT_VERDICT_TERMS
from lightning_gpuprof.model.method import LEVEL_QUESTIONS
from lightning_gpuprof.model.phases import PHASE_TERMS
from lightning_gpuprof.model.report import LABEL_TERMS, OVERHEAD_TERMS, Report
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.sinks.tables import PART_TERMS
from structs import Struct, fields, hints_of, json_type, places

NOTE = "Made from the source by `python docs/tools/pages.py`: change it there."
ANALYSIS_PAGE = "../reference/trace-analysis.md"

_LONG_LIST = re.compile(r"(?:`[^`]+`, ){3,}`[^`]+`")
_ANCHOR = re.compile(r"#\w+")


@dataclass(frozen=True, kw_only=True)
class Group:
    """One page: the fields of ``report.json`` that it explains, and the words that belong to them."""

    name: str
    title: str
    intro: str
    fields: tuple[str, ...]
    terms: Mapping[str, Mapping[Any, str]] = field(default_factory=dict)
    """Title of a list of words -> word -> meaning."""


GROUPS: tuple[Group, ...] = (
    Group(
        name="time",
        title="Steps, phases and wall time",
        intro="A step is cut into phases, which sum to the step time. They are times of the main thread: on a GPU, "
        "a phase is long if the host is busy or waits in it, not because its kernels take long. The wall time of `fit` "
        "(or `validate`, `test`, `predict`) is cut into parts, and once more into `ledger` rows named after your "
        "callbacks, modules and regions.",
        fields=(
            *("steps", "phases", "lines", "stacks", "line_times", "wall", "ledger", "callbacks"),
            *("series", "curves", "marks", "overhead"),
        ),
        terms={
            "What a step counts as": LABEL_TERMS,
            "Phases of a step": PHASE_TERMS,
            "Parts of the wall time": PART_TERMS,
            "What the profiler cost": OVERHEAD_TERMS,
        },
    ),
    Group(
        name="machine",
        title="GPUs, host and memory",
        intro="How it is measured and when it is wrong: [the machine](../machine.md).",
        fields=("devices", "kernels", "host", "memory"),
    ),
    Group(
        name="input",
        title="Input, trace windows and torch.compile",
        intro="How it is measured and when it is wrong: [input pipeline](../input-pipeline.md), "
        "[traces](../traces.md), [compilation](../machine.md#torchcompile). Times inside a window are longer than "
        f"untraced ones. The fields of `analysis` are on [a page of their own]({ANALYSIS_PAGE}).",
        fields=("input", "windows", "compile"),
        terms={"Verdicts on a loader": INPUT_VERDICT_TERMS},
    ),
    Group(
        name="findings",
        title="Verdict, findings, trials and ranks",
        intro="How they are made: [diagnosis](../diagnosis.md), [trials](../try.md), [ranks](../ranks.md). What each "
        "finding means: [rules](../rules/README.md).",
        fields=(
            *("validity", "verdict", "findings", "not_evaluated", "checks", "combined", "method", "target", "cost"),
            *("trial", "ranks", "rank_ends", "rank_windows", "window_ranks"),
        ),
        terms={"Levels of the method": LEVEL_QUESTIONS},
    ),
)
"""In the order of a report."""

ELSEWHERE = {"run": "../conditions.md", "sources": "../compare.md"}
"""Fields of ``report.json`` without a page here, and where they are explained."""


def write(folder: Path) -> list[Path]:
    """Write all pages.

    Args:
        folder: An existing folder; what else is in it stays.

    Returns:
        The files.
    """
    pages = {"index": _index(), **{group.name: _page(group) for group in GROUPS}}
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    return [folder / f"{name}.md" for name in pages]


def _index() -> str:
    explained = {name for group in GROUPS for name in group.fields} | set(ELSEWHERE)
    if lost := [name for name in hints_of(Report) if name not in explained]:
        raise LookupError(f"no page explains {', '.join(lost)} of the report: name them in GROUPS")
    rows = [(f"[{group.title}]({group.name}.md)", ", ".join(f"`{name}`" for name in group.fields)) for group in GROUPS]
    rows += [(f"[Conditions]({page})", f"`{name}`") for name, page in ELSEWHERE.items()]
    return "\n".join(
        (
            "# Numbers",
            "",
            "Where the fields of `report.json` are explained:",
            "",
            bullets(rows),
            "",
            "How to read them:",
            "",
            "- Names end with their unit: `_s`, `_ms`, `_us`, `_bytes`, `_mhz`. A `_ratio` is 0 to 1; only text for "
            "people has percent.",
            '- `null` (`None`, or `-` in a table) is "not measured", never 0.',
            "- A field whose name says it all is not listed. One that several objects share is described at the first.",
            "- Statistics use steady steps unless the text says otherwise.",
            "- What a column of a report means is in its heading: point at it.",
            "",
            f"<!-- {NOTE} -->",
            "",
        )
    )


def _page(group: Group) -> str:
    parts = [f"# {group.title}", group.intro]
    for title, words in group.terms.items():
        parts += [f"## {title}", bullets([(f"`{word}`", markdown(text)) for word, text in words.items()])]
    known = {", ".join(f"`{word}`" for word in words) for words in (*group.terms.values(), PHASE_TERMS, PART_TERMS)}
    parts += ["## In report.json", *_structs(group.fields, known)]
    return "\n\n".join([*filter(None, parts), f"<!-- {NOTE} -->"]) + "\n"


def _structs(names: Iterable[str], shown: set[str]) -> list[str]:
    """A section per struct below these fields of the report; fields without one by themselves."""
    hints = hints_of(Report)
    said = {one.name: one.text for one in fields(Report)}
    found: dict[Struct, list[str]] = {}
    plain = []
    for name in names:
        below = places(name, hints[name], without=frozenset({TraceAnalysis}))
        plain += [] if below else [(f"`{name}`", said[name])]
        for struct, where in below.items():
            found.setdefault(struct, []).extend(where)
    parts = [bullets(plain)]
    for struct, where in found.items():
        doc = class_doc(struct.__module__, struct.__name__)
        text = described(doc.text).strip()
        parts += [f"### {struct.__name__}", f"{_places(where)}: {text}", fields_list(struct, found, shown)]
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
        shown: Lists of words and fields that the page has already; this function adds its own.
    """
    here = frozenset(on_page)
    hints = hints_of(struct)

    def name_of(other: Struct) -> str:
        return f"[{other.__name__}](#{other.__name__.lower()})" if other in here else other.__name__

    rows, plain = [], []
    for one in fields(struct):
        kind = json_type(hints[one.name], name_of).removesuffix(" or null").removeprefix("object: ")
        kind = kind if any(mark in kind for mark in ("`", "[", "→", "list of 2")) else ""
        for words in _LONG_LIST.findall(kind):
            kind = "" if words in shown else kind
            shown.add(words)
        anchor = _ANCHOR.search(kind)
        if anchor and not one.text:
            plain.append(f"[`{one.name}`]({anchor[0]})")
        elif (row := f"`{one.name}`: {one.text}") not in shown and (one.text or kind):
            shown.add(row)
            kind = re.sub(r"^list of (\[.*\))$", r"\1", kind)
            rows.append((f"`{one.name}`" + (f" ({kind})" if kind else ""), one.text))
    return bullets([*rows, *([(", ".join(plain), "")] if plain else [])])
