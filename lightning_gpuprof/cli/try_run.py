"""What ``gpuprof try`` does: a program is run once or more, its result is printed, kept and made into a diff."""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from lightning_gpuprof.capture.host.cgroups import affinity, usable_cpus
from lightning_gpuprof.cli import advised_run, source
from lightning_gpuprof.cli.advised_run import AdvisedRun, shown_folder
from lightning_gpuprof.cli.command import print_json
from lightning_gpuprof.errors import ArgumentError, GpuProfError, TrialError
from lightning_gpuprof.model.trial import BASE, FILE_NAME, Added, Arm, Block, Event, NotTried, Over, Plan, Trial, Trying
from lightning_gpuprof.sinks.files import write_whole
from lightning_gpuprof.sinks.plain import visible
from lightning_gpuprof.sinks.status_line import StatusLine

if TYPE_CHECKING:
    from lightning_gpuprof.model.journal import Value

LEAST_SECONDS = 5.0
MOST_SECONDS = 3600.0
PROFILE_SECONDS = 12.0
"""Of them, for a report of the program's first steps, where it has no run; at most half."""
OWN_FOLDER = "gpuprof-try"
"""In the current folder: such reports, each in a folder of its own."""
_MOST_NAMED = 3
"""Settings that differ."""


def run(options: Namespace) -> int:
    """Try, print the result and keep it beside the run; or make a diff of an earlier one.

    Returns:
        The exit code.

    Raises:
        GpuProfError: An argument is wrong, or the program cannot be tried.
    """
    patches = options.patch or options.write
    if patches and options.json:
        raise TrialError("--json prints the result and --patch a diff: choose one of them")
    if patches and not options.program and options.tried is not None:
        kept = _kept(options.tried)
        return _patch(kept, kept.command, write=options.write)
    trial = _trial(options)
    if options.json:
        print_json(trial)
        return 0
    from lightning_gpuprof.sinks.trial_screen import print_trial
    from lightning_gpuprof.sinks.trial_tables import best

    can_apply = trial.run and not patches and best(trial) is not None
    apply = f"gpuprof try {visible(shlex.quote(shown_folder(Path(trial.run))))} --patch" if can_apply else ""
    print_trial(trial, apply=apply, file=sys.stderr if patches else None)
    return _patch(trial, options.program, write=options.write) if patches else 0


def _trial(options: Namespace) -> Trial:
    """Try what is advised, or what was asked for.

    Raises:
        GpuProfError: An argument is wrong, or the program cannot be tried.
    """
    from lightning_gpuprof.trial import arms

    begin = time.monotonic()
    program: list[str] = options.program
    seconds: float = options.seconds
    if not program:
        raise TrialError("no command to try: put it after --, as gpuprof try -- python train.py")
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise ArgumentError("--seconds", seconds, f"be from {LEAST_SECONDS:g} to {MOST_SECONDS:g}")
    asked = arms.asked(options.arm)
    if shutil.which(program[0]) is None:
        hint = f", as python {program[0]}" if program[0].endswith(".py") else ""
        raise TrialError(f"there is no command {program[0]!r}: name the one that trains{hint}")
    if options.input:
        asked += arms.loader_arms(max(1, int(usable_cpus(affinity=len(affinity() or (0,))))))
    command = advised_run.TriedCommand.of(program)
    runs: Iterator[AdvisedRun] = iter(())
    if options.tried is not None:
        runs = iter([advised_run.named(options.tried, command)])
    elif not asked:
        runs = advised_run.newest_first(command)
    with _Shown(seconds) as shown:
        trial, run = _tried_with_advice(program, asked, runs, shown, options)
    trial.command, trial.run = command.shown, "" if run is None else str(run.folder)
    trial.seconds = time.monotonic() - begin
    if run is not None:
        _keep(trial, run.folder)
    return trial


def _tried_with_advice(
    program: Sequence[str], asked: Sequence[Arm], runs: Iterator[AdvisedRun], shown: _Shown, options: Namespace
) -> tuple[Trial, AdvisedRun | None]:
    """Try what was asked for, or the advice of the first run that was made with the program's settings of now.

    Where nothing was asked for and no run, newest first, is like the program, its first steps are profiled for advice.

    Returns:
        The result, and the run that it belongs to.
    """
    from lightning_gpuprof.trial import arms
    from lightning_gpuprof.trial.conditions import differences, settings

    seconds: float = options.seconds
    run, why_none = next(runs, None), "no run of this command is here"
    while True:
        conditions = {} if run is None else settings(run.report.run)
        if run is None and not asked:
            profiled_s = min(PROFILE_SECONDS, seconds / 2)
            shown.note(f"{why_none}: profiling its first {profiled_s:.0f} s")
            run = _profiled(program, profiled_s, shown)
            seconds = shown.seconds = seconds - profiled_s
        plan = Plan(arms=tuple(asked), seconds=seconds, loader=options.input, conditions=conditions)
        not_tried: tuple[NotTried, ...] = ()
        if not asked and run is not None:
            shown.note(f"advice of {run}")
            tried, not_tried = arms.advised(run.report.findings)
            plan = msgspec.structs.replace(plan, arms=tried)
        try:
            return _tried(program, plan, not_tried, shown, only_arms=bool(options.arm)), run
        except _OtherSettingsError as other:
            now = other.now
            words = f"was made with other settings: {', '.join(differences(conditions, now)[:_MOST_NAMED])}"
            if options.tried is not None:
                raise TrialError(f"{run} {words}. Name another run, or none") from None
            shown.note(f"it {words}")
            why_none = "no run with the settings of this command is here"
            run = next((one for one in runs if not differences(settings(one.report.run), now)), None)


class _OtherSettingsError(TrialError):
    """The program has other settings, ``now``, than the run whose advice was to be tried."""

    def __init__(self, now: Mapping[str, Value]) -> None:
        self.now = now
        super().__init__()


def _kept(directory: Path) -> Trial:
    """The result of an earlier trial.

    Raises:
        TrialError: There is none.
    """
    path = source.run_folder(directory) / FILE_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Trial)
    except (OSError, msgspec.MsgspecError):
        raise TrialError(f"there is no {path}: try the advice first, as gpuprof try {directory} -- COMMAND") from None


def _patch(trial: Trial, program: Sequence[str], *, write: bool) -> int:
    """Print what is worth it as a diff; write it if that is asked for."""
    from lightning_gpuprof.cli.patching.patch import apply, patch
    from lightning_gpuprof.sinks.trial_tables import best

    found = best(trial)
    if found is None:
        print("gpuprof: nothing that was tried is worth a change", file=sys.stderr)
        return 0
    sources = [path for name in trial.sources if (path := Path(name)).is_file()]
    patched = patch(found.arm.changes, sources=sources, config=_config(program))
    sys.stdout.write(patched.diff)
    for one in patched.unplaced:
        print(f"gpuprof: {one.lines[0]}", *one.lines[1:], sep="\n", file=sys.stderr)
    if write and patched.files:
        apply(patched)
        print(f"gpuprof: changed {', '.join(str(file.path) for file in patched.files)}", file=sys.stderr)
    return 0


def _config(program: Sequence[str]) -> Path | None:
    """The YAML of LightningCLI, if the command names one."""
    for word, value in zip(program, [*program[1:], ""], strict=True):
        name = word.partition("=")[2] if word.startswith("--config=") else value if word in ("--config", "-c") else ""
        if name and Path(name).is_file():
            return Path(name)
    return None


def _tried(
    program: Sequence[str], plan: Plan, not_tried: Sequence[NotTried], shown: _Shown, *, only_arms: bool
) -> Trial:
    """Try all arms: first those that one process can change, then those that need processes of their own."""
    from lightning_gpuprof.trial.at_start import needs_process
    from lightning_gpuprof.trial.results import result

    own = [arm for arm in plan.arms if needs_process(arm)]
    inside = msgspec.structs.replace(plan, arms=tuple(arm for arm in plan.arms if arm not in own))
    events: list[Event] = []
    died, problem = "", ""
    if inside.arms or not own or not only_arms:
        events, died, problem = _in_one_process(program, inside, shown)
    if own:
        problem = _in_processes(program, plan, own, events, shown) or problem
    trial = result(plan, events, not_tried=not_tried, ended_in=died)
    if problem:
        if all(row.speedup is None for row in trial.tried):
            raise TrialError(problem)
        print(f"gpuprof: warning: {problem}", file=sys.stderr)
    return trial


def _in_processes(program: Sequence[str], plan: Plan, own: Sequence[Arm], events: list[Event], shown: _Shown) -> str:
    """Try arms in processes of their own, and at last all that is worth it together; return what went wrong."""
    from lightning_gpuprof.sinks.trial_tables import best
    from lightning_gpuprof.trial.judging import faster_arms
    from lightning_gpuprof.trial.processes import compare
    from lightning_gpuprof.trial.results import result
    from lightning_gpuprof.trial.schedule import combined

    def rounds(arms: Sequence[Arm], seconds: float) -> None:
        first = 1 + max((event.round for event in events if isinstance(event, Block)), default=-1)
        compare(program, arms, seconds, on_event=events.append, say=shown.say, environ=os.environ, first_round=first)

    row = best(result(plan, events))
    inside = [] if row is None else [row.arm]
    used = sum(event.seconds for event in events if isinstance(event, Over))
    try:
        rounds(own, plan.seconds - used)
        by_name = {arm.name: arm for arm in own}
        blocks = [event for event in events if isinstance(event, Block)]
        worth = [by_name[name] for name in faster_arms(blocks, by_name)]
        together = combined([*inside, *worth]) if worth else None
        if together is not None:
            events.append(Added(arm=together))
            rounds([together], 0.0)
    except TrialError as error:
        return str(error)
    return ""


def _in_one_process(program: Sequence[str], plan: Plan, shown: _Shown) -> tuple[list[Event], str, str]:
    """Run the program; without the arm in which it died, run it again.

    Returns:
        What was measured, the name of that arm, and that the program did not come to the end of its trial.

    Raises:
        TrialError: Nothing was measured, or the program has other settings than the plan.
    """
    from lightning_gpuprof.trial import program as programs

    events: list[Event] = []
    died = ""
    for _ in range(2):
        shown.say("waiting for the first step")
        rest = msgspec.structs.replace(plan, arms=tuple(arm for arm in plan.arms if arm.name != died))
        with tempfile.TemporaryDirectory(prefix="gpuprof-try-") as name:
            ended = programs.run(program, rest, Path(name), on_event=shown.event, environ=os.environ)
        if ended.differs is not None:
            raise _OtherSettingsError(ended.differs.conditions)
        if problem := programs.failure_reason(ended, program):
            raise TrialError(problem)
        events += programs.renumber_rounds(ended.events, events)
        if ended.is_over or died or ended.trying == BASE:
            break
        died = ended.trying
    return events, died, "" if ended.is_over else programs.death_notice(ended, program)


def _profiled(program: Sequence[str], seconds: float, shown: _Shown) -> AdvisedRun:
    """Profile the program's first steps; the report goes into a new folder below ours, of a failure nothing is left.

    Raises:
        TrialError: The program does not come so far.
    """
    from lightning_gpuprof.trial import program as programs

    shown.say(f"profiling the first {seconds:.0f} s")
    with tempfile.TemporaryDirectory(prefix="gpuprof-try-") as name:
        made = Path(name) / "gpuprof"
        plan = Plan(arms=(), seconds=seconds, profile_into=str(made))
        ended = programs.run(program, plan, Path(name), on_event=shown.event, environ=os.environ)
        if not ended.is_over:
            has_begun = made.is_dir()
            raise TrialError((programs.death_notice if has_begun else programs.failure_reason)(ended, program))
        if not made.is_dir() or not (report := source.remake(made)).steps.count:
            raise TrialError(programs.failure_reason(ended, program))
        script = Path(str(report.run.get("script") or "run"))
        folder = _new_folder(Path(OWN_FOLDER).absolute(), script.parent.name or script.stem)
        shutil.copytree(made, folder, dirs_exist_ok=True)
    _write_again(folder)  # the page names the folder that it lies in
    return AdvisedRun(folder=folder, report=report)


def _new_folder(parent: Path, name: str) -> Path:
    """``name-1``, or the next number that nobody has taken."""
    for number in itertools.count(1):
        with suppress(FileExistsError):
            (parent / f"{name}-{number}").mkdir(parents=True)
            return parent / f"{name}-{number}"
    raise AssertionError


def _keep(trial: Trial, folder: Path) -> None:
    """Beside the report of the run, whose page is made again with it."""
    try:
        write_whole(folder / FILE_NAME, msgspec.json.encode(trial))
        _write_again(folder)
    except (GpuProfError, OSError) as error:
        print(f"gpuprof: warning: the result is not kept: {error}", file=sys.stderr)


def _write_again(folder: Path) -> None:
    """The report of a run and its page.

    Raises:
        GpuProfError: The report cannot be made, or not be written.
    """
    from lightning_gpuprof import pipeline  # analysis and rules: not for --help

    pipeline.write_reports(source.remake(folder), folder, ("json", "html"))


@dataclass
class _Shown:
    """What is being tried and for how long still, in one line of a terminal."""

    seconds: float

    def __post_init__(self) -> None:
        self._line = StatusLine.on_terminal()

    def __enter__(self) -> _Shown:
        self.say("waiting for the first step")
        return self

    def __exit__(self, *_: object) -> None:
        if self._line is not None:
            self._line.clear()

    def event(self, event: Event) -> None:
        """Something happened in the program."""
        if isinstance(event, Trying):
            left = max(0.0, self.seconds - event.elapsed_s)
            self.say(f"{left:.0f} s left, round {event.round + 1}: {event.arm}")

    def note(self, text: str) -> None:
        """Leave a sentence on the error stream."""
        if self._line is not None:
            self._line.clear()
        print(f"gpuprof: {text}", file=sys.stderr)

    def say(self, text: str) -> None:
        """Show a sentence."""
        if self._line is not None:
            self._line.show(f"gpuprof try: {text}")
