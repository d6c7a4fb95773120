"""``gpuprof trace``: what is in Kineto traces, as text, JSON, HTML, CSV or another trace."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_gpuprof.cli.command import Command, names, path, print_json
from lightning_gpuprof.errors import ArgumentError, TraceError
from lightning_gpuprof.model.run_folders import own_folders
from lightning_gpuprof.sinks.plain import shorten, visible
from lightning_gpuprof.sinks.status_line import progress

if TYPE_CHECKING:
    from lightning_gpuprof.trace.linked import LinkedTrace

_MAX_NAMED = 5
"""Traces that an error names."""
MAX_DETAILS = 8
"""Ranks whose traces are read although they have kept what the comparison needs; of more only on demand."""
RANKS = "ranks"
"""Beside the files' names: several files of one job compared, rank by rank."""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        type=path,
        help="trace of torch.profiler (.json, .json.gz), or of nsys (.sqlite, .nsys-rep)",
    )
    parser.add_argument(
        "--table", metavar="NAME,…", type=names, default=(), help="print these tables only; 'all' for all"
    )
    parser.add_argument("--grep", metavar="TEXT", help="print only rows whose name contains TEXT")
    parser.add_argument("--all", action="store_true", help="print all findings, and the tables that matter most")
    parser.add_argument("--json", action="store_true", help="print the basic facts of each file as JSON, times in µs")
    parser.add_argument(
        "--analysis", action="store_true", help="print everything as JSON, with the comparison of ranks"
    )
    parser.add_argument(
        "--operators", metavar="NAME,…", type=names, default=(), help="print these operators per input shape, as JSON"
    )
    parser.add_argument(
        "--compare", action="store_true", help="two files: what became slower per step; also with --json"
    )
    parser.add_argument(
        "--measure", action="store_true", help="measure the GPU of this machine first: ceilings of the roofline"
    )
    parser.add_argument(
        "--ncu",
        metavar="PATH",
        type=path,
        help="add L1/L2 hit rates and more to the kernels, from ncu --csv --page raw",
    )
    parser.add_argument(
        "--html", metavar="PATH", type=path, help="write an offline page, of a trace or of several ranks"
    )
    parser.add_argument(
        "--csv",
        metavar="FOLDER",
        type=path,
        help="write all tables as CSV, as shown and raw, and all events (one file only)",
    )
    parser.add_argument(
        "--annotated", metavar="PATH", type=path, help="write the trace with phases, idle causes and more for Perfetto"
    )
    parser.add_argument(
        "--perfetto", action="store_true", help="write the annotated trace and hand it to Perfetto (one file only)"
    )
    parser.add_argument(
        "--flame",
        metavar="PATH",
        type=path,
        help="write stacks for speedscope (.json) or as folded text (.folded: device time)",
    )


def _run(options: Namespace) -> int:
    options.files = files = [trace_of(file) for file in options.files]
    _check(options)
    if options.json and not options.compare:
        from lightning_gpuprof.trace.analyses.health.kineto_facts import facts_of_file  # and no analysis: answers first

        facts = {}
        for number, (name, file) in enumerate(_named(files).items(), 1):
            with _progress("reading", name, number, len(files)):
                facts[name] = facts_of_file(file, fork="torch" not in sys.modules)
        print_json(facts)
        return 0
    ahead = None
    if len(files) == 1 and not (options.compare or options.measure or options.perfetto):
        with _progress("reading", files[0].name, 1, 1):
            ahead = _read_ahead(files[0])
    from lightning_gpuprof.cli import trace_outputs as outputs  # numpy and the trace reader: not for --help

    if options.compare:
        with _progress("comparing", " and ".join(_named(files)), 1, 1):
            differences = outputs.compare(files[0], files[1])
        if options.json:
            print_json(differences)
        else:
            outputs.print_differences(files[0], files[1], differences)
        return 0
    ceilings = None
    if options.measure:
        from lightning_gpuprof.capture.device_ceilings import measure_ceilings  # torch: only where it is asked for

        ceilings = measure_ceilings()
    measured = () if options.ncu is None else outputs.measured_kernels(options.ncu)
    annotated: Path | None = options.annotated
    if options.perfetto:
        annotated = annotated or outputs.annotated_beside(files[0])
    only: Collection[str] | None = (
        () if options.perfetto else outputs.printed_analyses(options.table, whole=options.all)
    )
    if options.analysis or options.html is not None or options.csv is not None:
        only = None
    is_judged = options.html is not None or not (options.table or options.analysis or options.perfetto)
    results: dict[str, object] = {}
    # Several ranks are compared first: at once if they have kept what that takes, else when all traces were read.
    named = _named(files)
    waits = len(named) > 1 and not (options.table or options.analysis or options.operators)
    kept = outputs.Ranks.kept_beside(named) if waits else None
    ranks = outputs.Ranks() if kept is None else kept
    how = {"whole": options.all, "has_page": options.html is not None}
    if kept is not None:
        kept.print_comparison()
        if not any(how.values()) and len(named) > MAX_DETAILS:
            kept.print_each(**how)
            return 0

    def print_ranks() -> None:
        if kept is None:
            ranks.print_comparison()
        ranks.print_each(**how)

    for number, (name, file) in enumerate(named.items(), 1):
        try:
            with _progress("reading", name, number, len(files)):
                linked = outputs.read(file) if ahead is None else ahead
        except TraceError:
            if waits:  # those before it are not lost
                print_ranks()
            raise
        if options.html is not None and len(files) > 1 and linked.trace.about.rank is None:
            raise ArgumentError("--html", name, outputs.PAGE_OF, f"This trace names no rank. {outputs.EACH_ALONE}")
        if options.operators:
            from lightning_gpuprof.trace.analyses.operators.op_analyse import op_analyse

            try:
                results[name] = op_analyse(linked, options.operators)
            except ArgumentError as error:
                raise ArgumentError("--operators", error.value, error.expected, error.hint) from None
            continue
        with _progress("analysing", name, number, len(files)):
            analysis = outputs.analysis(linked, ceilings, only=only, measured=measured)
            diagnosis = outputs.diagnosis(linked, analysis) if is_judged else None
        found = outputs.Analysed(path=file, analysis=analysis, diagnosis=diagnosis)
        html = options.html if len(files) == 1 else None  # several have a page together
        with _progress("writing what is made of", name, number, len(files)):
            targets = {"html": html, "csv": options.csv, "annotated": annotated, "flame": options.flame}
            all_written = list(outputs.write(file, linked, analysis, diagnosis, **targets))
        for kind, written in all_written:
            print(f"{kind}: {written}", file=sys.stderr)
        if options.analysis:
            results[name] = analysis
        elif options.perfetto and annotated is not None:
            outputs.serve(annotated)
        elif not waits:
            outputs.print_analysis(found, options.table, grep=options.grep or "", **how)
        if waits or (len(files) > 1 and (options.analysis or options.html is not None)):
            ranks.add(name, linked, found)
        for other in ranks.of_no_job() if waits else ():
            outputs.print_analysis(other, (), **how)
    if options.analysis and ranks.compared is not None:
        results[RANKS] = ranks.compared
    if results:
        print_json(results)
    elif waits:
        print_ranks()
    if options.html is not None and len(files) > 1:
        ranks.write(options.html)
        print(f"HTML: {options.html}", file=sys.stderr)
    return 0


def _read_ahead(file: Path) -> LinkedTrace:
    """A trace; what comes after it is imported while another process reads a part, which saves a twelfth of all."""
    from lightning_gpuprof.trace.linked import LinkedTrace
    from lightning_gpuprof.trace.reader import Trace

    return LinkedTrace(Trace.read(file, fork="torch" not in sys.modules, meanwhile=_import_what_follows))


def _import_what_follows() -> None:
    from lightning_gpuprof.rules import discovery

    for name in ("cli.trace_outputs", "analyze.trace_metrics", "rules.engine"):
        import_module(f"lightning_gpuprof.{name}")
    discovery.installed()


def trace_of(given: Path) -> Path:
    """The file, or the one trace of a run's folder; the folder itself if it holds none, which reading refuses.

    Args:
        given: What the user named.

    Raises:
        ArgumentError: The folder holds several.
    """
    folders = [given, *own_folders(given)] if given.is_dir() else []
    found = next((files for folder in folders if (files := sorted(folder.glob("*.pt.trace.json*")))), [])
    if len(found) > 1:
        named = ", ".join(str(file) for file in found[:_MAX_NAMED])
        more = f", and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
        raise ArgumentError("FILE", str(given), f"be one of this folder's {len(found)} traces", f"{named}{more}")
    return found[0] if found else given


_ENDS: dict[str, tuple[str, ...]] = {
    "html": (".html", ".htm"),
    "csv": ("",),
    "annotated": (".json", ".json.gz"),
    "flame": (".json", ".folded"),
}
"""How the names of what is written end: a trace that is named by mistake must not be written over."""


def _check(options: Namespace) -> None:
    """See that options go together, and that no trace is written over."""
    files: list[Path] = options.files
    known = _tables() if options.table else []
    if unknown := [name for name in options.table if name not in known]:
        raise ArgumentError("--table", unknown[0], "be a table's name", f"There are: {', '.join(known)}.")
    if options.grep is not None and not options.table:
        raise ArgumentError("--grep", options.grep, "be given with --table", "Add --table kernels, or --table all.")
    alone = [name for name in ("json", "analysis", "operators", "compare", "perfetto") if getattr(options, name)]
    if options.all and (alone or options.table):
        other = alone[0] if alone else "table"
        raise ArgumentError("--all", True, f"not be combined with --{other}", "Ask for one at a time.")
    if len(alone) > 1 and alone != ["json", "compare"]:
        raise ArgumentError(f"--{alone[1]}", True, f"not be combined with --{alone[0]}", "Ask for one at a time.")
    if options.ncu is not None:
        if alone and alone != ["analysis"]:
            raise ArgumentError(
                "--ncu", str(options.ncu), f"not be combined with --{alone[0]}", "Call gpuprof trace twice."
            )
        if options.table and not {"kernels", "roofline", "all"} & set(options.table):
            raise ArgumentError("--ncu", str(options.ncu), "be printed in a table", "Add kernels to --table.")
        if not (options.table or options.all or options.analysis):
            options.table = ["kernels", "roofline"]
    if options.compare and len(files) != 2:
        raise ArgumentError("--compare", len(files), "be given two files", "Name the trace before and the one after.")
    if options.perfetto and len(files) > 1:
        raise ArgumentError("--perfetto", len(files), "be given one file", "Call gpuprof trace once for each.")
    for option, ends in _ENDS.items():
        target: Path | None = getattr(options, option)
        if target is None:
            continue
        if alone and alone != ["analysis"]:
            raise ArgumentError(
                f"--{option}", str(target), f"not be combined with --{alone[0]}", "Call gpuprof trace twice."
            )
        if len(files) > 1 and option != "html":
            raise ArgumentError(f"--{option}", len(files), "be given one file", "Call gpuprof trace once for each.")
        if not target.name.lower().endswith(ends):
            raise ArgumentError(
                f"--{option}", str(target), f"end with {' or '.join(ends)}", "It names what is written."
            )
        if target.resolve() in (file.resolve() for file in files):
            raise ArgumentError(f"--{option}", str(target), "be another file", "Traces are never overwritten.")


def _named(files: Sequence[Path]) -> dict[str, Path]:
    """Files by their name, or by their whole path where two have one name."""
    counts = Counter(file.name for file in files)
    return {visible(file.name if counts[file.name] == 1 else str(file)): file for file in files}


def _progress(what: str, name: str, number: int, count: int) -> AbstractContextManager[None]:
    return progress(f"{what} {shorten(name, 60)}{f' ({number} of {count})' if count > 1 else ''}")


def _tables() -> list[str]:
    from lightning_gpuprof.sinks.trace_table_names import NAMES

    return [*NAMES, "all"]


COMMAND = Command(
    description=(
        "Reads traces of torch.profiler and of nsys, of any GPU and any version, and reports why the GPU was idle,\n"
        "what it ran and which code launched that. Several files of one job are also compared rank by rank."
    ),
    examples=(
        "gpuprof trace rank0.1763705000.pt.trace.json.gz",
        "gpuprof trace trace.json.gz --all",
        "gpuprof trace trace.json.gz --table cuda_gpu_kern_sum,cuda_api_sum",
        "gpuprof trace trace.json.gz --html trace.html",
        "gpuprof trace trace.json.gz --perfetto",
        "gpuprof trace report.nsys-rep",
        "gpuprof trace trace.json.gz --operators aten::mm,aten::addmm",
        "gpuprof trace before.json.gz after.json.gz --compare",
        "gpuprof trace before.json.gz after.json.gz --compare --json",
        "gpuprof trace rank*.pt.trace.json.gz --html ranks.html",
        "gpuprof trace rank*.pt.trace.json.gz --json",
    ),
    add_arguments=_add_arguments,
    run=_run,
    values={"table": _tables},
)
