"""Generates the reference of the public API, ``docs/reference/``, from the source."""

from dataclasses import dataclass
from pathlib import Path

from docstrings import (
    ClassDoc,
    FunctionDoc,
    bullets,
    class_doc,
    described,
    function_doc,
    is_class,
    public_names,
    signature,
    split_arguments,
)
from lightning_gpuprof.model.comparison import Comparison
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from number_pages import NOTE, fields_list
from structs import Struct, hints_of, places

Name = tuple[str, str]
"""A module and a name in it."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page: names in order, and what is said before them."""

    name: str
    title: str
    intro: str
    names: tuple[Name, ...] = ()
    struct: Struct | None = None
    """Instead of names: everything that this struct leads to."""
    hidden: frozenset[str] = frozenset()
    """Public methods that are not for users, such as Lightning's hooks."""


def _all(module: str, *without: str) -> tuple[Name, ...]:
    return tuple((module, name) for name in public_names(module) if name not in without)


_HOOKS = frozenset(("setup", "teardown", "on_train_start", "on_train_end", "on_exception", "log", "state_dict"))

_RARE_HELPERS = (
    "rank_table",
    "usable",
    "require_possible",
    "ordinary_ratio",
    "run_s",
    "outside_s",
    "is_mostly_outside",
    "run_ms_per_step",
    "outside_severity",
    "worthwhile_gain",
    "is_distributed",
    "machine_busy_ratio",
    "worthwhile_evidence",
)

PAGES: tuple[Page, ...] = (
    Page(
        name="profiler",
        title="GpuProfiler and annotate",
        intro="`from lightning_gpuprof import GpuProfiler, annotate`. The import needs neither torch nor Lightning; "
        "they come with the first use.",
        names=(
            ("lightning_gpuprof.callback", "GpuProfiler"),
            ("lightning_gpuprof.capture.annotated_regions", "annotate"),
        ),
        hidden=_HOOKS,
    ),
    Page(
        name="configuration",
        title="Configuration",
        intro="Groups of options: `from lightning_gpuprof import TraceConfig, NvmlConfig, HostConfig`. Wrong values "
        "raise `ArgumentError` where the object is made, before training starts.",
        names=(
            ("lightning_gpuprof.model.config", "TraceConfig"),
            ("lightning_gpuprof.model.config", "NvmlConfig"),
            ("lightning_gpuprof.model.config", "HostConfig"),
        ),
    ),
    Page(
        name="errors",
        title="Errors",
        intro="`from lightning_gpuprof import GpuProfError`; the others are in `lightning_gpuprof.errors`. None of "
        "them is raised while training runs.",
        names=_all("lightning_gpuprof.errors"),
    ),
    Page(
        name="report",
        title="Reports in Python",
        intro="Reading, making and comparing reports, without torch or a GPU. The fields of `Report` are those of "
        "`report.json`; what is below each is on the pages under [Numbers](../numbers/index.md).",
        names=(
            ("lightning_gpuprof.pipeline", "load_report"),
            ("lightning_gpuprof.pipeline", "make_report"),
            ("lightning_gpuprof.pipeline", "write_reports"),
            ("lightning_gpuprof.pipeline", "compare_runs"),
            ("lightning_gpuprof.model.report", "Report"),
        ),
    ),
    Page(
        name="comparison",
        title="Comparison",
        intro="What `gpuprof compare A B --json` prints and `compare_runs` returns.",
        struct=Comparison,
    ),
    Page(
        name="traces",
        title="Traces in Python",
        intro="From a file of `torch.profiler` to columns, and from those to everything that is computed. What comes "
        "out: [Trace analysis](trace-analysis.md); what it means: [Traces](../traces.md).",
        names=(
            ("lightning_gpuprof.trace.reader", "Trace"),
            ("lightning_gpuprof.trace.reader", "About"),
            ("lightning_gpuprof.trace.analysis", "analyse"),
            *_all("lightning_gpuprof.trace.tables", "dtype_of", "is_id_column", "narrowed", "joined"),
        ),
    ),
    Page(
        name="trace-analysis",
        title="Trace analysis",
        intro="What `analyse(trace)` returns, `gpuprof trace FILE --analysis` prints, and `windows[].analysis` of "
        "`report.json` holds with the first rows of each table. Times end with `_us` or `_ns`.",
        struct=TraceAnalysis,
    ),
    Page(
        name="rules",
        title="Writing rules",
        intro="What a rule is given and what it may use. How to write one, step by step: the rule `zero-grad-slow` in "
        "`CONTRIBUTING.md`. Another package names its class in the entry-point group `lightning_gpuprof.rules`. "
        "More helpers are in `lightning_gpuprof/rules/base.py`, the parts of `Metrics` in `lightning_gpuprof/model/`.",
        names=(
            *_all("lightning_gpuprof.rules.base", *_RARE_HELPERS),
            *_all("lightning_gpuprof.model.missing", "or_unmeasured"),
            *_all("lightning_gpuprof.model.signals"),
            *_all("lightning_gpuprof.rules.examples"),
            ("lightning_gpuprof.model.finding", "Finding"),
            ("lightning_gpuprof.model.claim", "Claim"),
            ("lightning_gpuprof.model.finding", "Evidence"),
            ("lightning_gpuprof.model.finding", "Gain"),
            ("lightning_gpuprof.model.metrics", "Metrics"),
        ),
    ),
)


def write(folder: Path) -> list[Path]:
    """Write all pages.

    Args:
        folder: An existing folder; what else is in it stays.

    Returns:
        The files.
    """
    written = []
    for page in PAGES:
        path = folder / f"{page.name}.md"
        path.write_text(_page(page), encoding="utf-8")
        written.append(path)
    return written


def _page(page: Page) -> str:
    parts = [f"# {page.title}", page.intro]
    if page.struct is not None:
        parts += _structs(page.struct)
    for module, name in page.names:
        if is_class(module, name):
            parts += _class(module, class_doc(module, name), page.hidden)
        else:
            parts += _function(function_doc(module, name), name, f"## {name}", module)
    return "\n\n".join([*(part.rstrip() for part in parts), f"<!-- {NOTE} -->"]) + "\n"


def _structs(root: Struct) -> list[str]:
    found: dict[Struct, list[str]] = {root: []}
    for name, hint in hints_of(root).items():
        for struct, where in places(name, hint).items():
            found.setdefault(struct, []).extend(where)
    parts = []
    shown: set[str] = set()
    for struct, where in found.items():
        doc = class_doc(struct.__module__, struct.__name__)
        place = f"`{where[0]}`: " if where else ""
        parts += [
            f"## {struct.__name__}",
            place + described(doc.text).strip(),
            fields_list(struct, found, shown),
        ]
    return parts


def _class(module: str, doc: ClassDoc, hidden: frozenset[str]) -> list[str]:
    kinds = ", a kind of " + " and ".join(f"`{base}`" for base in doc.bases) if doc.bases else ""
    parts = [f"## {doc.name}", f"`{module}`{kinds}"]
    text = doc.text
    arguments: dict[str, str] = {}
    if doc.init is not None:
        parts.append(signature(doc.init, doc.name))
    else:  # a dataclass: its arguments are its fields
        text, arguments = split_arguments(doc.text)
    parts.append(described(text))
    if doc.fields:
        rows = []
        for one in doc.fields:
            default = f" = {one.default}" if one.default is not None else ""
            rows.append((f"`{one.name}: {one.type}{default}`", one.text or arguments.get(one.name, "")))
        parts.append(bullets(rows))
    for method in doc.methods:
        if method.name not in hidden:
            parts += _function(method, f"{doc.name}.{method.name}", f"### {doc.name}.{method.name}", "")
    return parts


def _function(doc: FunctionDoc, name: str, heading: str, module: str) -> list[str]:
    where = [f"`{module}`"] if module else []
    return [heading, *where, signature(doc, name), described(doc.text)]
