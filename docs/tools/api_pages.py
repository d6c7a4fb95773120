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
    markdown,
    one_line,
    public_names,
    signature,
    split_arguments,
)
from lightning_gpuprof.model.comparison import Comparison
from lightning_gpuprof.model.finding import Expected, Finding
from lightning_gpuprof.model.phases import PHASE_TERMS
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
    without: frozenset[Struct] = frozenset()
    """Structs that another page has, with what is below them."""
    hidden: frozenset[str] = frozenset()
    """Public methods that are not for users, such as Lightning's hooks."""
    fieldless: frozenset[str] = frozenset()
    """Classes whose fields are left out."""
    is_short: bool = False
    """A line for each function and method: its first sentence, without arguments."""


def _all(module: str, *without: str) -> tuple[Name, ...]:
    return tuple((module, name) for name in public_names(module) if name not in without)


PHASES = ", ".join(f"`{phase}`" for phase in PHASE_TERMS)
"""A list that is on the page of phases."""

_HOOKS = frozenset(("setup", "teardown", "on_train_start", "on_train_end", "on_exception", "log", "state_dict"))
_SIGNALS = ("device_step", "device_idle_ratio", "rank_wait_ratio", "capability")

PAGES: tuple[Page, ...] = (
    Page(
        name="profiler",
        title="Python API",
        intro="`lightning_gpuprof` has `GpuProfiler`, `annotate`, `measure_latency`, `ab`, `TraceConfig`, "
        "`NvmlConfig`, `HostConfig` and `GpuProfError`. Wrong values raise `ArgumentError` where an object is made, "
        "before training starts. Functions on reports need neither torch nor a GPU. What a report holds: "
        "[Numbers](../numbers/index.md).",
        names=(
            ("lightning_gpuprof.callback", "GpuProfiler"),
            ("lightning_gpuprof.results", "Results"),
            ("lightning_gpuprof.capture.annotated_regions", "annotate"),
            *(("lightning_gpuprof.trial.bare", name) for name in ("measure_latency", "ab", "Latency", "Comparison")),
            *(("lightning_gpuprof.model.config", name) for name in ("TraceConfig", "NvmlConfig", "HostConfig")),
            *(("lightning_gpuprof.pipeline", name) for name in ("load_report", "make_report", "write_reports")),
            ("lightning_gpuprof.pipeline", "compare_runs"),
            *(("lightning_gpuprof.errors", name) for name in ("GpuProfError", "ArgumentError", "JournalError")),
            *(("lightning_gpuprof.errors", name) for name in ("TraceError", "ReportError")),
        ),
        hidden=_HOOKS | {"on_after_setup"},
    ),
    Page(
        name="comparison",
        title="Comparison",
        intro="What `gpuprof compare A B --json` prints and `compare_runs` returns. A `Finding` is that of "
        "[a report](../numbers/findings.md#finding).",
        struct=Comparison,
        without=frozenset((Finding, Expected)),
    ),
    Page(
        name="traces",
        title="Traces in Python",
        intro="From a file of `torch.profiler` to columns, and from those to everything that is computed. What comes "
        "out: [Trace analysis](trace-analysis.md); what it means: [Traces](../traces.md). Smaller "
        "classes, and columns whose name says it all, are in `lightning_gpuprof/trace/`.",
        names=(
            ("lightning_gpuprof.trace.reader", "Trace"),
            ("lightning_gpuprof.trace.analysis", "analyse"),
            *(("lightning_gpuprof.trace.tables", f"{kind}Spans") for kind in ("", "Launch", "Device", "Operator")),
        ),
        is_short=True,
    ),
    Page(
        name="trace-analysis",
        title="Trace analysis",
        intro="What `analyse(trace)` returns, `gpuprof trace FILE --analysis` prints, and `windows[].analysis` of "
        "`report.json` holds with the first rows of each table. Times end with `_us` or `_ns`. A field whose name "
        "says it all is not listed; one that several objects share is described at the first.",
        struct=TraceAnalysis,
    ),
    Page(
        name="rules",
        title="Writing rules",
        intro="What a rule is given and what it may use. How to write one, step by step: the rule `zero-grad-slow` in "
        "`CONTRIBUTING.md`. Another package names its class in the entry-point group `lightning_gpuprof.rules`. "
        "More helpers are in `lightning_gpuprof/rules/base.py`, the fields of `Metrics` in "
        "`lightning_gpuprof/model/metrics.py`, those of `Finding`, `Claim`, `Evidence` and `Gain` on "
        "[Numbers](../numbers/findings.md#finding).",
        names=(
            *(("lightning_gpuprof.rules.base", name) for name in ("Rule", "threshold", "BaseRule", "FamilyRule")),
            *(("lightning_gpuprof.model.missing", name) for name in ("MissingSignal", "NotApplicable", "measured")),
            *(("lightning_gpuprof.model.signals", name) for name in _SIGNALS),
            *_all("lightning_gpuprof.rules.examples", "listed"),
            ("lightning_gpuprof.model.metrics", "Metrics"),
        ),
        is_short=True,
        fieldless=frozenset(("Metrics", "Example")),
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
        parts += _structs(page.struct, page.without)
    functions = []
    for module, name in page.names:
        if is_class(module, name):
            parts += _class(module, class_doc(module, name), page)
        elif page.is_short:
            functions.append(_line(function_doc(module, name), name))
        else:
            parts += _function(function_doc(module, name), name, f"## {name}", module)
    parts += ["## Functions", bullets(functions)] if functions else []
    return "\n\n".join([*(part.rstrip() for part in parts if part), f"<!-- {NOTE} -->"]) + "\n"


def _structs(root: Struct, without: frozenset[Struct]) -> list[str]:
    found: dict[Struct, list[str]] = {root: []}
    for name, hint in hints_of(root).items():
        for struct, where in places(name, hint, without=without).items():
            found.setdefault(struct, []).extend(where)
    parts = []
    shown = {PHASES}
    for struct, where in found.items():
        doc = class_doc(struct.__module__, struct.__name__)
        place = f"`{where[0]}`: " if where else ""
        parts += [
            f"## {struct.__name__}",
            place + described(doc.text).strip(),
            fields_list(struct, found, shown),
        ]
    return parts


def _class(module: str, doc: ClassDoc, page: Page) -> list[str]:
    kinds = ", a kind of " + " and ".join(f"`{base}`" for base in doc.bases) if doc.bases else ""
    parts = [f"## {doc.name}", f"`{module}`{kinds}"]
    text = doc.text
    arguments: dict[str, str] = {}
    if doc.init is not None and not page.is_short:
        parts.append(signature(doc.init, doc.name))
    else:  # a dataclass: its arguments are its fields
        text, arguments = split_arguments(doc.text)
    parts.append(described(text))
    rows = []
    for one in doc.fields if doc.name not in page.fieldless else ():
        default = f" = {one.default}" if one.default is not None else ""
        meaning = one.text or arguments.get(one.name, "")
        if meaning or not page.is_short:
            rows.append((f"`{one.name}: {one.type}{default}`", meaning))
    methods = [method for method in doc.methods if method.name not in page.hidden]
    if page.is_short:
        return [*parts, bullets([*rows, *(_line(method, method.name) for method in methods)])]
    parts.append(bullets(rows))
    for method in methods:
        parts += _function(method, f"{doc.name}.{method.name}", f"### {doc.name}.{method.name}", "")
    return parts


def _function(doc: FunctionDoc, name: str, heading: str, module: str) -> list[str]:
    where = [f"`{module}`"] if module else []
    return [heading, *where, signature(doc, name), described(doc.text)]


def _line(doc: FunctionDoc, name: str) -> tuple[str, str]:
    """A function and its first paragraph."""
    return f"`{one_line(doc, name)}`", markdown(doc.text.partition("\n\n")[0])
