"""What ``gpuprof trace`` makes of one trace, or of several: text on the terminal, and files.

What only some options need is imported where it is used: nobody else waits for it.
"""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.text import Text

from lightning_gpuprof.cli.source import has_journal
from lightning_gpuprof.errors import ArgumentError, ReportError
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.numbers import percent, seconds
from lightning_gpuprof.model.trace.analysis import TraceAnalysis, TraceDiagnosis
from lightning_gpuprof.model.trace.differences import Differences
from lightning_gpuprof.model.trace.kernels import MeasuredKernel
from lightning_gpuprof.model.trace.rank_window import RankWindow
from lightning_gpuprof.model.trace.ranks import RanksComparison
from lightning_gpuprof.model.trace.roofline import MeasuredCeilings
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.sinks import trace_terminal
from lightning_gpuprof.sinks.console import print_to, terminal_width
from lightning_gpuprof.sinks.files import write_whole
from lightning_gpuprof.sinks.plain import visible
from lightning_gpuprof.sinks.status_line import progress
from lightning_gpuprof.sinks.tables import Table
from lightning_gpuprof.sinks.terminal_text import command
from lightning_gpuprof.sinks.trace_findings import beside_other_ranks
from lightning_gpuprof.sinks.trace_table_names import NAMES
from lightning_gpuprof.sinks.trace_tables import CATALOGUE, Entry
from lightning_gpuprof.trace.analysis import analyse, first_rows
from lightning_gpuprof.trace.facts import window_facts
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace

PAGE_OF = "be given one trace, or several ranks of one job"
EACH_ALONE = "Call gpuprof trace once for each."
_ONLY_DRAWN = frozenset({"timeline", "events"})
"""Analyses that neither a rule nor a sentence reads, nor a main table."""
_ONLY_IN_TABLES = frozenset({"by_step", "memory"})
"""Those that neither a rule nor a sentence reads."""
SAME_STEP_RATIO = 0.05
"""Steps on the host and on the GPU that differ by less need no word (heuristic)."""


def read(path: Path) -> LinkedTrace:
    """A trace with its joins."""
    return LinkedTrace(Trace.read(path, fork="torch" not in sys.modules))  # which has threads, and may have a GPU


def analysis(
    linked: LinkedTrace,
    ceilings: MeasuredCeilings | None,
    *,
    only: Collection[str] | None = None,
    measured: Sequence[MeasuredKernel] = (),
) -> TraceAnalysis:
    """What is computed from a trace; ceilings of another model of GPU do not count.

    Args:
        linked: The trace.
        ceilings: What was measured of a GPU; None for data sheets.
        only: Names of the wanted analyses; None for all.
        measured: What Nsight Compute measured of the same kernels.

    Returns:
        Analyses that are not wanted or that failed are None; ``problems`` says why those failed.
    """
    names = {one.get("name") for one in linked.trace.about.device_properties}
    fitting = ceilings if ceilings is not None and ceilings.device in names else None
    fork = "torch" not in sys.modules
    return analyse(linked, only=only, ceilings=fitting, counters=measured, fork=fork)


def measured_kernels(path: Path) -> Sequence[MeasuredKernel]:
    """What Nsight Compute printed of single kernels."""
    from lightning_gpuprof.trace.nsight_compute import read_ncu

    return read_ncu(path)


def printed_analyses(tables: Collection[str], *, whole: bool = False) -> set[str]:
    """The analyses that are needed to print these tables, or, if none are named, findings and summary.

    Args:
        tables: Names of tables.
        whole: With the main tables.

    Returns:
        Names of analyses.
    """
    if tables:
        return {entry.analysis for entry in CATALOGUE if entry.name in tables or "all" in tables}
    return {entry.analysis for entry in CATALOGUE} - _ONLY_DRAWN - (set() if whole else _ONLY_IN_TABLES)


def diagnosis(linked: LinkedTrace, found: TraceAnalysis) -> TraceDiagnosis:
    """What the rules say of a trace by itself.

    Args:
        linked: The trace.
        found: What was computed from it.

    Returns:
        The verdict, findings with the most valuable first, the rules that need a run, and caveats.
    """
    from lightning_gpuprof.analyze.trace_metrics import trace_metrics  # and all rules: not where facts are asked for
    from lightning_gpuprof.rules.engine import diagnose

    facts = window_facts(linked, start_step=0, stop_step=0)
    metrics = trace_metrics(msgspec.structs.replace(facts, analysis=first_rows(found)), _conditions(linked))
    judged = diagnose(metrics)
    return TraceDiagnosis(
        verdict=judged.verdict,
        findings=judged.findings,
        need_a_run=judged.not_evaluated,
        caveats=_what_a_step_is(facts, metrics.steps.period_ms.median if metrics.steps.period_ms else 0.0),
    )


def _what_a_step_is(facts: WindowFacts, step_ms: float) -> tuple[str, ...]:
    """What the findings call a step, where it is not what the table of phases does."""
    if not facts.devices or not step_ms:
        return ()
    if not facts.steps_us:
        return ("No steps are marked in this trace: all of it counts as one step.",)
    earlier: tuple[str, ...] = ()
    if facts.has_earlier_work:
        ratio = percent(facts.launches_unmatched / facts.device_work)
        before = f"{ratio} of the kernels and copies were launched before the first step"
        earlier = (f"{before}: the GPU's times per step are too long.",)
    host_ms = sum(facts.steps_us) / len(facts.steps_us) / 1e3
    if abs(host_ms - step_ms) <= SAME_STEP_RATIO * step_ms:
        return earlier
    on_gpu, on_host = (seconds(ms / 1e3) for ms in (step_ms, host_ms))
    return (
        f"Findings use the GPU's step time, {on_gpu} from the first to the last kernel. On the host a step took "
        f"{on_host}; its phases are scaled to the GPU's.",
        *earlier,
    )


def _conditions(linked: LinkedTrace) -> dict[str, Value]:
    """What a trace says of the run that it is from."""
    about = linked.trace.about
    known: dict[str, Value] = {}
    if isinstance(size := about.distributed.get("world_size"), int):
        known["trainer.world_size"] = size
    versions = {(one.get("computeMajor"), one.get("computeMinor")) for one in about.device_properties}
    if len(versions) == 1:
        ((major, minor),) = versions
        if isinstance(major, int) and isinstance(minor, int):
            known["device.capability"] = f"{major}.{minor}"
    return known


class Analysed(msgspec.Struct, frozen=True, kw_only=True):
    """What is printed of a trace."""

    path: Path
    analysis: TraceAnalysis
    diagnosis: TraceDiagnosis | None
    """Verdict and findings; None where only tables or JSON are asked for."""


def print_analysis(found: Analysed, tables: Sequence[str], *, whole: bool, has_page: bool, grep: str = "") -> None:
    """Print the first findings and the summary, or all of them with tables, or the tables asked for.

    Args:
        found: What was computed.
        tables: Names of tables; empty for none.
        grep: Only rows of these tables that contain it; empty for no choice.
        whole: All findings, and the tables that matter most.
        has_page: Whether the page is written as well.
    """
    names = NAMES if "all" in tables else tables
    shown = None if whole else names
    folder = found.path.parent
    run = f"gpuprof report {shlex.quote(visible(str(folder)))}" if has_journal(folder) else ""
    parts = [
        trace_terminal.render(
            found.analysis, diagnosis=found.diagnosis, names=shown, grep=grep, run=run, width=terminal_width()
        )
    ]
    more = "  Tables: --all." if has_page else "  Tables: --all. A page with the timeline: --html PAGE"
    _print(str(found.path), [*parts, *([] if tables or whole else [Text(more, style="dim")])])


def compare(before: Path, after: Path) -> Differences:
    """What changed from one trace to another.

    Args:
        before: File of the earlier trace.
        after: File of the later trace.

    Returns:
        Rows with the largest absolute change first, times in µs; the traces are named as their files.
    """
    from lightning_gpuprof.trace.analyses.comparison.differences import differences_of

    return differences_of(read(before), read(after), names=(before.name, after.name))


def print_differences(before: Path, after: Path, found: Differences) -> None:
    """Print what changed from one trace to another.

    Args:
        before: File of the earlier trace.
        after: File of the later trace.
        found: What changed.
    """
    from lightning_gpuprof.sinks.window_tables import differences

    tables = [
        differences.compared_trace_table(found),
        differences.caveat_table(found),
        differences.device_change_table(found),
        differences.phase_change_table(found),
        differences.kernel_class_change_table(found),
        differences.kernel_change_table(found),
        differences.operator_change_table(found),
    ]
    _print(f"{before} → {after}", trace_terminal.render_tables(tables))


class Ranks:
    """Traces that may be the ranks of one job, by what to call them."""

    def __init__(self) -> None:
        self._windows: dict[str, RankWindow] = {}
        self._files: dict[str, Path] = {}
        self._analysed: dict[str, Analysed] = {}
        self._is_one_job = True

    @classmethod
    def kept_beside(cls, files: Mapping[str, Path]) -> Ranks | None:
        """What the ranks themselves kept beside their traces; None unless all of them did, each once.

        Args:
            files: The traces, by what to call them.
        """
        from lightning_gpuprof.trace.analyses.communication.rank_window import read_beside

        found = cls()
        for name, file in files.items():
            window = read_beside(file)
            if window is None:
                return None
            found._windows[name], found._files[name] = window, file
        return None if found.compared is None else found

    def add(self, name: str, linked: LinkedTrace, found: Analysed) -> None:
        """Take a trace; one that names no rank is none of a job.

        Args:
            name: Name of the file.
            linked: The trace.
            found: What was computed from it.
        """
        self._files[name], self._analysed[name] = found.path, found
        if name not in self._windows and linked.trace.about.rank is not None:
            from lightning_gpuprof.trace.analyses.communication.rank_window import rank_window

            self._windows[name] = rank_window(linked)
        numbers = [window.rank for window in self._windows.values()]
        self._is_one_job &= name in self._windows and len(set(numbers)) == len(numbers)

    def of_no_job(self) -> list[Analysed]:
        """The traces so far, which are let go, once one names no rank or that of another; else none."""
        if self._is_one_job:
            return []
        found = list(self._analysed.values())
        self._analysed.clear()
        return found

    @functools.cached_property
    def compared(self) -> RanksComparison | None:
        """The ranks beside each other, once all are there; None unless there are several, each once."""
        numbers = [window.rank for window in self._windows.values()]
        if len(set(numbers)) < 2 or len(set(numbers)) < len(numbers):
            return None
        from lightning_gpuprof.trace.analyses.communication.ranks import compare_ranks

        with progress("comparing the ranks"):
            return compare_ranks(list(self._windows.values()), names=list(self._windows))

    def write(self, target: Path) -> None:
        """Write their page.

        Raises:
            ArgumentError: They are not ranks of one job.
            ReportError: The file cannot be written.
        """
        from lightning_gpuprof.sinks.ranks_html import render_ranks_html

        if self.compared is None:
            known = ", ".join(str(window.rank) for window in self._windows.values())
            raise ArgumentError("--html", str(target), PAGE_OF, f"The traces name these ranks: {known}. {EACH_ALONE}")
        analyses = {name: found.analysis for name, found in self._analysed.items()}
        write_whole(target, render_ranks_html(self.compared, analyses, self._diagnoses()).encode())

    def _diagnoses(self) -> dict[str, TraceDiagnosis]:
        """Without the advice to trace all ranks, where all are here."""
        found = {name: one.diagnosis for name, one in self._analysed.items() if one.diagnosis is not None}
        if self.compared is None or self.compared.missing_ranks:
            return found
        return {name: beside_other_ranks(judged) for name, judged in found.items()}

    def print_comparison(self) -> None:
        """Print the ranks beside each other, if there are several, each once."""
        from lightning_gpuprof.sinks.window_tables import ranks

        found = self.compared
        if found is None:
            return
        _print(f"{len(self._windows)} ranks", trace_terminal.render_tables(ranks.all_tables(found)))

    def print_each(self, *, whole: bool, has_page: bool) -> None:
        """Print what each of the compared ranks is bound by and how to see more of it, or all of each.

        Traces that are held and not compared are printed as if each were alone.

        Args:
            whole: All of each, as of :func:`print_analysis`.
            has_page: Likewise.
        """
        from lightning_gpuprof.sinks.window_tables import ranks

        if self.compared is None or not self._is_one_job:
            for found in self._analysed.values():
                print_analysis(found, (), whole=whole, has_page=has_page)
            return
        diagnoses = self._diagnoses()
        if whole:
            for name, found in self._analysed.items():
                shown = replace(found, diagnosis=diagnoses.get(name))
                print_analysis(shown, (), whole=whole, has_page=has_page)
            return
        tables = [ranks.rank_finding_table(self.compared, diagnoses)] if diagnoses else []
        late = self.compared.late
        number = self.compared.ranks[0].rank if late is None else late.rank
        name = next(one.trace for one in self.compared.ranks if one.rank == number)
        file = shlex.quote(visible(str(self._files[name])))
        page = "" if has_page else ". A page: --html PAGE"
        parts = [
            *trace_terminal.render_tables(tables),
            Text(""),
            command(f"Details of rank {number}:", f"gpuprof trace {file}"),
            Text(f"  Details of all: --all{page}", style="dim"),
        ]
        print_to(None, Group(*parts), terminal_width())


def write(
    path: Path,
    linked: LinkedTrace,
    found: TraceAnalysis,
    diagnosed: TraceDiagnosis | None,
    *,
    html: Path | None,
    csv: Path | None,
    annotated: Path | None,
    flame: Path | None,
) -> Iterator[tuple[str, Path]]:
    """Write files of one trace; None for what is not to be made.

    Args:
        path: The trace.
        linked: The same, read.
        found: What was computed from it.
        diagnosed: What the rules say of it, for the page and for marks in the annotated trace.
        html: A page.
        csv: Folder of all tables.
        annotated: The trace with what was found in it.
        flame: Stacks, as folded text if the name ends so.

    Yields:
        What was written, and where.

    Raises:
        ReportError: A file cannot be written.
    """
    if html is not None:
        from lightning_gpuprof.sinks.trace_html import render_trace_html

        write_whole(html, render_trace_html(found, name=path.name, diagnosis=diagnosed).encode())
        yield "HTML", html
    try:
        if csv is not None:
            from lightning_gpuprof.sinks.csv_tables import write_all_rows_csv, write_csv, write_rows_csv
            from lightning_gpuprof.sinks.data_files import write_tables
            from lightning_gpuprof.trace.export.event_table import event_table

            write_csv([table for entry in CATALOGUE for table in _titled_tables(entry, found)], csv)
            write_all_rows_csv(found, csv / "full")
            if found.api_tables is not None and (rows := found.api_tables.cuda_api_gpu_sum):
                write_rows_csv(rows, csv / "full" / "api_tables.cuda_api_gpu_sum.csv")
            write_tables([event_table(linked.trace, "events")], csv / "full", "csv")
            yield "CSV", csv
        if annotated is not None:
            from lightning_gpuprof.cli.trace_counters import counters_beside
            from lightning_gpuprof.trace.export.annotated import write_annotated
            from lightning_gpuprof.trace.export.event_text import Label

            findings = [
                Label(name=f"{one.rule}: {one.severity}", notes={"what": one.summary, "fix": one.advice})
                for one in (() if diagnosed is None else diagnosed.findings)
            ]
            write_annotated(path, annotated, linked, counters=counters_beside(path, linked), findings=findings)
            yield "annotated trace", annotated
        if flame is not None:
            from lightning_gpuprof.trace.export.flame import Weight, folded_stacks, speedscope

            if flame.suffix == ".folded":
                weight: Weight = "device" if len(linked.work) else "host"
                text = "".join(f"{line}\n" for line in folded_stacks(linked, weight=weight)).encode()
            else:
                text = msgspec.json.encode(speedscope(linked))
            write_whole(flame, text)
            yield "stacks", flame
    except OSError as error:
        where = error.filename or path
        raise ReportError(
            f"cannot write {where}: {error.strerror or error}. Name a folder that can be written to"
        ) from None


def annotated_beside(path: Path) -> Path:
    """Where an annotated trace goes that is only to be looked at; TensorBoard does not take it for one of the run's.

    Raises:
        ArgumentError: Nothing can be written there.
    """
    if path.exists() and not os.access(path.parent, os.W_OK):
        hint = "Name another place: --annotated PATH."
        raise ArgumentError("--perfetto", str(path.parent), "be able to write beside the trace", hint)
    stem = path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".pt.trace")
    return path.with_name(f"{stem}.annotated.json.gz")


def serve(path: Path) -> None:
    """Say how an annotated trace is opened, and hand it to Perfetto.

    Raises:
        GpuProfError: Nobody took it.
    """
    from lightning_gpuprof.cli import perfetto

    def announce(address: str) -> None:
        print(
            f"Open {address}\n"
            "  The page reads the file from this machine; nothing is uploaded. Ctrl-C to stop.\n"
            f"Offline: load {visible(str(path))} in chrome://tracing.",
            flush=True,
        )

    perfetto.serve_once(path, announce)


def _titled_tables(entry: Entry, found: TraceAnalysis) -> list[Table]:
    """An entry's tables that have rows, with its name as their title, which becomes the name of their file."""
    tables = [table for table in entry.tables(found) if table.rows]
    if len(tables) == 1:
        return [replace(tables[0], title=entry.name)]
    return [replace(table, title=f"{entry.name}_{number}") for number, table in enumerate(tables, 1)]


def _print(title: str, parts: Sequence[RenderableType]) -> None:
    print_to(
        None,
        Group(Text(title, style="bold"), *parts, Text("")),
        terminal_width(),
    )
