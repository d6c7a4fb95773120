"""``gpuprof trace``: what is in Kineto traces, as text, JSON, HTML, CSV or another trace."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from lightning_gpuprof.cli.command import Command
from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.sinks.plain import shorten, visible
from lightning_gpuprof.sinks.status_line import progress

RANKS = "ranks"
"""Beside the files' names: several files of one job compared, rank by rank."""


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """What is to be made of the traces; with nothing set, the summary and the tables that tell most are printed."""

    json: bool = False
    analysis_json: bool = False
    tables: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    compare: bool = False
    measure: bool = False
    html: Path | None = None
    csv: Path | None = None
    annotated: Path | None = None
    flame: Path | None = None
    perfetto: bool = False


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", help="trace of torch.profiler, .json or .json.gz")
    parser.add_argument("--table", metavar="NAME,…", help="print these tables only; 'all' for all")
    parser.add_argument("--json", action="store_true", help="print the basic facts of each file as JSON, times in µs")
    parser.add_argument(
        "--analysis", action="store_true", help="print everything as JSON, with the comparison of ranks"
    )
    parser.add_argument("--operators", metavar="NAME,…", help="print these operators per input shape, as JSON")
    parser.add_argument(
        "--compare", action="store_true", help="two files: what became slower per step; also with --json"
    )
    parser.add_argument(
        "--measure", action="store_true", help="measure the GPU of this machine first: ceilings of the roofline"
    )
    parser.add_argument("--html", metavar="PATH", help="write an offline page, of a trace or of several ranks")
    parser.add_argument("--csv", metavar="FOLDER", help="write all tables as CSV, as shown and raw (one file only)")
    parser.add_argument(
        "--annotated", metavar="PATH", help="write the trace with phases, idle causes and more for Perfetto"
    )
    parser.add_argument(
        "--perfetto", action="store_true", help="write the annotated trace and hand it to Perfetto (one file only)"
    )
    parser.add_argument(
        "--flame", metavar="PATH", help="write stacks for speedscope (.json) or as folded text (.folded: device time)"
    )


def _run(options: Namespace) -> int:
    def path(value: str | None) -> Path | None:
        return None if value is None else Path(value).expanduser()

    wanted = OutputOptions(
        json=options.json,
        analysis_json=options.analysis,
        tables=_names(options.table),
        operators=_names(options.operators),
        compare=options.compare,
        measure=options.measure,
        html=path(options.html),
        csv=path(options.csv),
        annotated=path(options.annotated),
        flame=path(options.flame),
        perfetto=options.perfetto,
    )
    return run([Path(name).expanduser() for name in options.files], wanted)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name for part in (text or "").split(",") if (name := part.strip()))


def run(files: Sequence[Path], wanted: OutputOptions) -> int:
    """Read traces and make what is wanted of them.

    Args:
        files: Traces as torch.profiler writes them.
        wanted: What to make.

    Returns:
        0.

    Raises:
        GpuProfError: A trace cannot be read, with those before it printed; options that do not go together.
    """
    _check(files, wanted)
    if wanted.json and not wanted.compare:
        from lightning_gpuprof.trace.analyses.health.kineto_facts import facts_of_file  # and no analysis: answers first

        facts = {}
        for number, (name, path) in enumerate(_named(files).items(), 1):
            with _progress("reading", name, number, len(files)):
                facts[name] = facts_of_file(path)
        _print_json(facts)
        return 0
    from lightning_gpuprof.cli import trace_outputs as outputs  # numpy and the trace reader: not for --help

    if wanted.compare:
        with _progress("comparing", " and ".join(_named(files)), 1, 1):
            differences = outputs.compare(files[0], files[1])
        if wanted.json:
            _print_json(differences)
        else:
            outputs.print_differences(files[0], files[1], differences)
        return 0
    ceilings = outputs.measured() if wanted.measure else None
    if wanted.perfetto:
        wanted = replace(wanted, annotated=wanted.annotated or outputs.annotated_beside(files[0]))
    results: dict[str, object] = {}
    ranks = outputs.Ranks()
    for number, (name, path) in enumerate(_named(files).items(), 1):
        with _progress("reading", name, number, len(files)):
            linked = outputs.read(path)
        if wanted.html is not None and len(files) > 1:
            outputs.check_rank(name, linked)
        if wanted.operators:
            results[name] = outputs.operators(linked, wanted.operators)
            continue
        with _progress("analysing", name, number, len(files)):
            analysis = outputs.analysis(linked, ceilings)
            told = outputs.diagnosis(linked, analysis)
        html = wanted.html if len(files) == 1 else None  # several have a page together
        with _progress("writing what is made of", name, number, len(files)):
            all_written = list(
                outputs.write(
                    path,
                    linked,
                    analysis,
                    told,
                    html=html,
                    csv=wanted.csv,
                    annotated=wanted.annotated,
                    flame=wanted.flame,
                )
            )
        for kind, written in all_written:
            print(f"{kind}: {written}", file=sys.stderr)
        if wanted.analysis_json:
            results[name] = analysis
        elif wanted.perfetto and wanted.annotated is not None:
            outputs.serve(wanted.annotated)
        else:
            outputs.print_analysis(path, analysis, told, wanted.tables, alone=len(files) == 1)
        if wanted.analysis_json or wanted.html is not None or not wanted.tables:
            ranks.add(name, linked, analysis)
    if wanted.analysis_json and ranks.compared is not None:
        results[RANKS] = ranks.compared
    if results:
        _print_json(results)
    elif not wanted.tables:
        ranks.print_comparison()
    if wanted.html is not None and len(files) > 1:
        ranks.write(wanted.html)
        print(f"HTML: {wanted.html}", file=sys.stderr)
    return 0


_ENDS: dict[str, tuple[str, ...]] = {
    "html": (".html", ".htm"),
    "csv": ("",),
    "annotated": (".json", ".json.gz"),
    "flame": (".json", ".folded"),
}
"""How the names of what is written end: a trace that is named by mistake must not be written over."""


def _is_same_file(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _check(files: Sequence[Path], wanted: OutputOptions) -> None:
    known = _tables() if wanted.tables else []
    if unknown := [name for name in wanted.tables if name not in known]:
        raise ArgumentError("--table", unknown[0], "be a table's name", f"There are: {', '.join(known)}.")
    alone = [name for name in ("json", "analysis_json", "operators", "compare", "perfetto") if getattr(wanted, name)]
    if len(alone) > 1 and alone != ["json", "compare"]:
        option = f"--{alone[1].removesuffix('_json')}"
        raise ArgumentError(option, True, f"not go with --{alone[0].removesuffix('_json')}", "Ask for one at a time.")
    if wanted.compare and len(files) != 2:
        raise ArgumentError("--compare", len(files), "get two files", "Name the trace before and the one after.")
    if wanted.perfetto and len(files) > 1:
        raise ArgumentError("--perfetto", len(files), "get one file", "Call gpuprof trace once for each.")
    for option, ends in _ENDS.items():
        target: Path | None = getattr(wanted, option)
        if target is None:
            continue
        if alone and alone != ["analysis_json"]:
            raise ArgumentError(f"--{option}", str(target), f"not go with --{alone[0]}", "Call gpuprof trace twice.")
        if len(files) > 1 and option != "html":
            raise ArgumentError(f"--{option}", len(files), "get one file", "Call gpuprof trace once for each.")
        if not target.name.lower().endswith(ends):
            raise ArgumentError(
                f"--{option}", str(target), f"end with {' or '.join(ends)}", "It names what is written."
            )
        if any(_is_same_file(target, path) for path in files):
            raise ArgumentError(f"--{option}", str(target), "be another file", "A trace is not written over.")


def _named(files: Sequence[Path]) -> dict[str, Path]:
    """Files by their name, or by their whole path where two have one name."""
    names = [path.name for path in files]
    return {visible(path.name if names.count(path.name) == 1 else str(path)): path for path in files}


def _progress(what: str, name: str, number: int, count: int) -> AbstractContextManager[None]:
    return progress(f"{what} {shorten(name, 60)}{f' ({number} of {count})' if count > 1 else ''}")


def _print_json(value: object) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n")


def _tables() -> list[str]:
    from lightning_gpuprof.sinks.trace_tables import NAMES

    return [*NAMES, "all"]


COMMAND = Command(
    description=(
        "Reads traces of torch.profiler, of any GPU and any version, and reports why the GPU was idle,\n"
        "what it did, which code that was. Several files of one job are also compared rank by rank."
    ),
    examples=(
        "gpuprof trace rank0.1763705000.pt.trace.json.gz",
        "gpuprof trace trace.json.gz --table cuda_gpu_kern_sum,cuda_api_sum",
        "gpuprof trace trace.json.gz --html trace.html",
        "gpuprof trace trace.json.gz --perfetto",
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
