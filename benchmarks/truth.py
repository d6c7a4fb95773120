"""Is the diagnosis right? Faults of known place and size in real fits, held against what the report says.

Run it from anywhere, with nothing else running::

    python benchmarks/truth.py                          the truth matrix
    python benchmarks/truth.py --only callback --repetitions 3
    python benchmarks/truth.py --dose                   planted cost against the gain that the finding promises
    python benchmarks/truth.py --advice                 the advice is applied; what it brought against its bound
    python benchmarks/truth.py --removed                the fault is removed; what it cost against what is promised
    python benchmarks/truth.py --traceml                TraceML's verdict on the same fits, beside ours
    python benchmarks/truth.py --load 4                 is the first finding the same in five runs beside CPU hogs?
    python benchmarks/truth.py --show --only healthy    the whole reports

Each run is a process of its own with a seed of its own. The matrix' exit code is 1 if a healthy run has a
warning or a run failed.
"""

import argparse
import functools
import io
import multiprocessing
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))  # cases that the tests run, too
from paired import RESULTS, wide_console, write_json
from rich.table import Table
from traceml_verdicts import ask_traceml, why_not
from truths import cures, doses, removed
from truths.case import Case
from truths.cases import CASES
from truths.cures import Effect
from truths.doses import TOLERANCE, Response
from truths.gpu_runs import Simulated
from truths.host_runs import Hosted
from truths.judging import Judgement, judge, summarise
from truths.recorded import Recorded
from truths.running import Job, JobResult, RunOutcome, read_outcome, run_all

from lightning_gpuprof.rules.discovery import discover
from lightning_gpuprof.sinks import json_report
from lightning_gpuprof.sinks.terminal import print_report

LOAD_RUNS = 5
LOADED = (
    "items of 10 ms, no workers",
    "items of 15 ms, one worker",
    "callback sleeps 20 ms after each batch",
    "validation every 40 steps, 0.3 s",
    "checkpoints of 0.2 s every 20 steps",
    "forward computes 15 ms in Python, not traced",
    "MLP",
)
"""Cases that are run beside CPU hogs, unless others are named: what a user meets first, and a healthy one."""

console = wide_console()


def report_of(case: Case, seed: int, folder: Path) -> RunOutcome:
    """Run a case and read its report; in the process that the case has for itself."""
    return read_outcome(case.source(folder, seed))


def matrix(cases: Sequence[Case], *, repetition: int = 0, at_once: int = 1) -> list[Judgement]:
    """Run and judge all cases once, with the seed of a repetition."""
    rules = {rule.id for rule in discover().rules}
    by_name = {case.name: case for case in cases}
    jobs = [Job(name=case.name, do=functools.partial(report_of, case, 1 + repetition)) for case in cases]
    judgements = []
    for done in run_all(jobs, at_once=at_once):
        case = by_name[done.name]
        if done.told is None:
            judgement = Judgement(
                case=case.name,
                group=case.group,
                said=None,
                error=done.error,
                seconds=done.seconds,
                repetition=repetition,
            )
        else:
            judgement = judge(case, done.told, rules=rules, seconds=done.seconds, repetition=repetition)
        judgements.append(judgement)
        console.print(line(judgement), highlight=False)
    return judgements


def rendered(case: Case, seed: int, folder: Path) -> str:
    """Run a case; its report as the terminal shows it."""
    stream = io.StringIO()
    print_report(json_report.read(case.source(folder, seed)), stream)
    return stream.getvalue()


def line(one: Judgement) -> str:
    """A judgement in a line."""
    if one.said is None:
        return f"[red]failed[/] {one.case}: {last_line(one.error)}"
    ranks = " ".join("waits" if waits else str(rank or "-") for rank, waits in zip(one.ranks, one.waiting, strict=True))
    top = ", ".join(f"{f.rule}{'!' if f.severity != 'info' else ''}" for f in one.said.findings[:3]) or "nothing"
    right = {None: " ", True: "+", False: "?"}[one.verdict_right]
    alarms = f"  [red]besides: {', '.join(one.false_alarms)}[/]" if one.false_alarms else ""
    busy = "" if one.said.run_delay_ratio is None else f" {one.said.run_delay_ratio:4.0%}"
    return (
        f"{one.seconds:5.1f} s{busy} {one.group:7} {one.case:60} {ranks:5} {right}{one.said.verdict:14} {top}{alarms}"
    )


def table_of(judgements: Sequence[Judgement]) -> Table:
    """The counts."""
    summary = summarise(judgements)
    table = Table("measure", "count", "not so", title="Truth matrix")
    for name, count in (
        ("expected rule is the first finding", summary.first),
        ("each planted fault is among the first three", summary.in_three),
        ("verdict of the right kind", summary.verdicts),
        ("faulty runs without a warning about anything else", summary.precise),
        ("healthy runs without a warning", summary.healthy),
        ("look-alikes without a warning", summary.decoys),
    ):
        table.add_row(name, str(count), "\n".join(count.missed))
    table.add_row("no rule yet", str(len(summary.waiting)), "\n".join(summary.waiting))
    if summary.failed:
        table.add_row("failed", str(len(summary.failed)), "\n".join(summary.failed))
    return table


def chosen(only: Sequence[str]) -> list[Case]:
    """Cases by parts of their names, by their groups or by what they run; all if nothing is given."""

    def of(case: Case) -> tuple[str, ...]:
        return (case.group, "computed" if isinstance(case.source, Simulated | Hosted | Recorded) else "real")

    return [case for case in CASES if not only or any(part in case.name or part in of(case) for part in only)]


def dose_table(responses: Sequence[Response]) -> Table:
    """What was planted, beside what the finding promises."""
    names = ("place", "dose", "planted", "in the phase anyway", "recovered", "off", "no CPU", "rule", "warnings")
    table = Table(*names, title="Dose and response, ms")
    base = doses.without_dose(responses)
    for one in responses:
        ratio = one.off(base[one.place])
        off = "-" if ratio is None else f"{ratio:+.0%}"
        table.add_row(
            one.place,
            f"{one.dose_ms:g}",
            f"{one.planted_ms:.2f}",
            f"{base[one.place].phase_ms:.2f}",
            "silent" if one.recovered_ms is None else f"{one.recovered_ms:.2f}",
            off if ratio is None or abs(ratio) <= TOLERANCE else f"[red]{off}[/]",
            "-" if one.run_delay_ratio is None else f"{one.run_delay_ratio:.0%}",
            one.rule,
            ", ".join(one.alarms),
        )
    return table


def advice_table(effects: Sequence[Effect]) -> Table:
    """What the advice brought, beside what it promised at most."""
    table = Table(
        "case", "rule", "before", "after", "achieved", "bound", "of it", title="The advice applied, ms per step"
    )
    for one in effects:
        ratio = f"{one.achieved_ms / one.bound_ms:.0%}" if one.bound_ms > 0 else "-"
        numbers = (one.before_ms, one.after_ms, one.achieved_ms, one.bound_ms)
        table.add_row(one.case, one.rule, *(f"{ms:.1f}" for ms in numbers), ratio)
    return table


def peers_table(judgements: Sequence[Judgement], theirs: Sequence[JobResult]) -> Table:
    """Both verdicts on the same fits."""
    by_name = {done.name: done for done in theirs}
    table = Table("case", "ours", "first finding", "TraceML", title="The same fits under TraceML")
    for one in judgements:
        done = by_name[one.case]
        other = f"{done.told.status}: {done.told.words}" if done.told is not None else last_line(done.error)
        ours = "failed" if one.said is None else one.said.verdict
        first = one.said.findings[0] if one.said is not None and one.said.findings else None
        table.add_row(one.case, ours, f"{first.rule}: {first.subject}" if first else "none", other)
    return table


def last_line(text: str) -> str:
    """What went wrong, without where."""
    return text.strip().splitlines()[-1] if text.strip() else "no result"


def told_by(jobs: Sequence[Job], *, at_once: int) -> list[Any]:
    """Results of the jobs that gave one; the others are printed."""
    results = []
    for done in run_all(jobs, at_once=at_once):
        if done.told is None:
            console.print(f"[red]failed[/] {done.name}: {last_line(done.error)}", highlight=False)
        else:
            console.print(f"{done.seconds:5.1f} s {done.name}", highlight=False)
            results.append(done.told)
    return results


def show(cases: Sequence[Case], options: argparse.Namespace) -> int:
    jobs = [Job(name=case.name, do=functools.partial(rendered, case, 1)) for case in cases]
    for done in run_all(jobs, at_once=options.jobs):
        print(f"== {done.name}\n{done.error if done.told is None else done.told}")
    return 0


def row(one: Judgement) -> dict[str, object]:
    """What of a run is kept: how it was judged, and what a wrong judgement can be understood by."""
    kept: dict[str, object] = {
        "case": one.case,
        "repetition": one.repetition,
        "group": one.group,
        "ranks": one.ranks,
        "verdict_right": one.verdict_right,
        "false_alarms": one.false_alarms,
        "not_judged": one.not_judged,
        "seconds": round(one.seconds, 1),
        "error": one.error,
    }
    if one.said is None:
        return kept
    findings = [f"{f.rule} ({f.severity}): {f.subject}" for f in one.said.findings]
    disturbed = None if one.said.run_delay_ratio is None else round(one.said.run_delay_ratio, 3)
    return kept | {
        "verdict": one.said.verdict,
        "findings": findings,
        "run_delay_ratio": disturbed,
        "reliability": one.said.reliability,
    }


def run_matrix(cases: Sequence[Case], options: argparse.Namespace) -> int:
    judgements: list[Judgement] = []
    for number in range(options.repetitions):
        repetition = options.first + number
        console.rule(f"repetition {number + 1} of {options.repetitions}")
        judgements += matrix(cases, repetition=repetition, at_once=options.jobs)
        summary = summarise(judgements)
        # after each: ten take hours, and what is known when they are stopped is worth having
        runs = [row(one) for one in judgements]
        write_json(options.json, "truth", repetitions=number + 1, summary=asdict(summary), runs=runs)
    console.print(table_of(judgements))
    return 1 if summary.failed or summary.healthy.right < summary.healthy.of else 0


@contextmanager
def hogs(count: int) -> Iterator[None]:
    """So many processes that compute until the end."""
    processes = [multiprocessing.get_context("spawn").Process(target=_compute, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _compute() -> None:
    while True:
        sum(range(100_000))


def run_load(cases: Sequence[Case], options: argparse.Namespace) -> int:
    """Whether the next step is the same in all runs of a case while other programs have the CPUs."""
    with hogs(options.load):
        judgements = [one for number in range(options.repetitions) for one in matrix(cases, repetition=number)]
    table = Table("case", "first screen", "runs", "same", title=f"First screens beside {options.load} CPU hogs")
    rows = []
    for case in cases:
        firsts = Counter(leads(one) for one in judgements if one.case == case.name)
        most, runs = firsts.most_common(1)[0]
        table.add_row(case.name, "\n".join(firsts), "\n".join(map(str, firsts.values())), str(len(firsts) == 1))
        rows.append({"case": case.name, "most": most, "most_runs": runs, "firsts": dict(firsts)})
    console.print(table)
    same = sum(len(one["firsts"]) == 1 for one in rows)  # type: ignore[arg-type]
    print(f"the same next step in all {options.repetitions} runs: {same} of {len(rows)} cases")
    said = [one.said for one in judgements if one.said is not None]
    print(f"said to be reliable: {sum(one.reliability == 'ok' for one in said)} of {len(said)} runs")
    write_json(
        options.json,
        "truth under load",
        hogs=options.load,
        repetitions=options.repetitions,
        results=rows,
        runs=[row(one) for one in judgements],
    )
    return 0


def leads(one: Judgement) -> str:
    """What a first screen is about: a finding, or only that the run is to be repeated on a quiet machine."""
    if one.said is None:
        return "failed"
    return one.said.leads or "none"


def run_doses(options: argparse.Namespace) -> int:
    jobs = [job for repetition in range(options.repetitions) for job in doses.jobs(repetition)]
    jobs = [job for job in jobs if not options.only or any(part in job.name for part in options.only)]
    responses = told_by(jobs, at_once=options.jobs)
    console.print(dose_table(responses))
    base = doses.without_dose(responses)
    runs = [{**asdict(one), "off_ratio": one.off(base[one.place])} for one in responses]
    write_json(options.json, "truth doses", tolerance_ratio=TOLERANCE, runs=runs)
    return 1 if any(one.alarms for one in responses if one.dose_ms == 0) else 0


def run_advice(cases: Sequence[Case], options: argparse.Namespace) -> int:
    jobs = [job for repetition in range(options.repetitions) for job in cures.jobs(cases, repetition)]
    effects = told_by(jobs, at_once=options.jobs)
    console.print(advice_table(effects))
    runs = [{**asdict(one), "achieved_ms": one.achieved_ms} for one in effects]
    write_json(options.json, "truth advice", runs=runs)
    return 0


def run_removed(cases: Sequence[Case], options: argparse.Namespace) -> int:
    jobs = [job for repetition in range(options.repetitions) for job in removed.jobs(cases, repetition)]
    found = told_by(jobs, at_once=options.jobs)
    table = Table(
        "case", "rule", "with", "without", "cost", "promised", "of it", title="Without the fault, ms per step"
    )
    rows = []
    for name in dict.fromkeys(one.case for one in found):
        of = [one for one in found if one.case == name]
        ratios = [one.ratio for one in of if one.ratio is not None]
        ratio = statistics.median(ratios) if ratios else None
        numbers = [(one.with_ms, one.without_ms, one.cost_ms) for one in of]
        means = [f"{statistics.median(column):.1f}" for column in zip(*numbers, strict=True)]
        promised = [one.promised_ms for one in of if one.promised_ms is not None]
        table.add_row(
            *(name, of[0].rule or "none with a gain", *means),
            f"{statistics.median(promised):.1f}" if promised else "-",
            "-" if ratio is None else f"{ratio:.2f}",
        )
        rows.append({"case": name, "ratio": ratio, "runs": [asdict(one) for one in of]})
    console.print(table)
    write_json(options.json, "truth removed", repetitions=options.repetitions, cases=rows)
    return 0


def run_peers(cases: Sequence[Case], options: argparse.Namespace) -> int:
    chosen_cases = [case for case in cases if case.of_peers]
    ours = matrix(chosen_cases, at_once=options.jobs)
    jobs = [Job(name=case.name, do=functools.partial(ask_traceml, case.name, 1)) for case in chosen_cases]
    theirs = list(run_all(jobs, at_once=options.jobs))
    console.print(peers_table(ours, theirs))
    told = {done.name: None if done.told is None else asdict(done.told) for done in theirs}
    write_json(options.json, "truth peers", ours=[asdict(one) for one in ours], traceml=told)
    return 0


MODES = {
    "": run_matrix,
    "advice": run_advice,
    "removed": run_removed,
    "traceml": run_peers,
    "load": run_load,
    "show": show,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--dose", action="store_true", help="planted cost against the promised gain")
    what.add_argument("--advice", action="store_true", help="apply the advice and run again")
    what.add_argument("--removed", action="store_true", help="run without the fault: promised gain against its cost")
    what.add_argument("--traceml", action="store_true", help="the cases of other tools, also under TraceML")
    what.add_argument(
        "--load", type=int, default=0, metavar="N", help="beside N processes that compute, five runs each"
    )
    what.add_argument("--show", action="store_true", help="print the whole report of each case")
    parser.add_argument(
        "--only",
        nargs="+",
        default=(),
        help="parts of names; groups: fault, pair, healthy, decoy; real: fits that run; computed: runs that are "
        "computed or were recorded",
    )
    parser.add_argument("--repetitions", type=int, help="rounds, each with a seed of its own (default: 1; --load: 5)")
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first round of the matrix: others than before, other seeds"
    )
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time; they disturb each other")
    parser.add_argument("--json", type=Path, help="default: truth.json, truth_doses.json and so on in results")
    options = parser.parse_args(arguments)
    mode = next((name for name in ("dose", *MODES) if name and getattr(options, name)), "")
    if options.json is None:
        options.json = RESULTS / f"truth{mode and '_'}{mode}.json"
    options.repetitions = options.repetitions or (LOAD_RUNS if mode == "load" else 1)
    if mode == "dose":
        return run_doses(options)
    cases = chosen(options.only)
    if mode == "load" and not options.only:
        cases = [case for case in cases if case.name in LOADED]
    if not cases:
        parser.error(f"--only {' '.join(options.only)} names no case")
    if mode == "traceml" and (why := why_not()):
        parser.error(why)
    return MODES[mode](cases, options)


if __name__ == "__main__":
    sys.exit(main())
