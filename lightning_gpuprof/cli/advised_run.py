"""The run whose advice ``gpuprof try`` takes: the one that was named, or the newest of the same command."""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from lightning_gpuprof.cli import source
from lightning_gpuprof.cli.runs_below import runs_below
from lightning_gpuprof.errors import GpuProfError, TrialError
from lightning_gpuprof.model.command_line import arguments_hash, script_name, shown_words
from lightning_gpuprof.model.journal import Conditions, Value
from lightning_gpuprof.model.report import MIN_STEADY_STEPS, Report
from lightning_gpuprof.sinks.plain import visible

_LAUNCHER = re.compile(r"(python|torchrun)[\d.]*")
_MOST_RUNS = 10
"""Of the command, whose reports are made."""
_MOST_LINES = 1000
"""Of a journal; its conditions stand before the first steps."""


class AdvisedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose advice can be tried."""

    folder: Path
    report: Report

    @property
    def script(self) -> str:
        """Name of the file that was run; empty: not known."""
        return str(self.report.run.get("script") or "")

    @property
    def arguments(self) -> str | None:
        """The words after it; None: not known, as of a report of an earlier version."""
        found = self.report.run.get("arguments")
        return None if found is None else str(found)

    def __str__(self) -> str:
        made_by = f"{self.script} {self.arguments or ''}".strip()
        words = ", ".join(visible(one) for one in (made_by, self._started) if one)
        return f"{visible(shown_folder(self.folder))} ({words})"

    @property
    def _started(self) -> str:
        with suppress(ValueError):
            started = datetime.datetime.fromisoformat(str(self.report.run.get("started")))
            return started.astimezone().strftime("%Y-%m-%d %H:%M")
        return ""


def shown_folder(folder: Path) -> str:
    """A folder as people write it: without the current one."""
    whole = folder.absolute()
    return str(whole.relative_to(Path.cwd()) if whole.is_relative_to(Path.cwd()) else whole)


class TriedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What the words of a command run."""

    scripts: frozenset[str]
    """Names that the program's file can have."""
    arguments_hash: str
    shown: tuple[str, ...]
    """Its words, without what may be secret."""

    @classmethod
    def of(cls, words: Sequence[str]) -> TriedCommand:
        """Read the words of a shell, such as ``torchrun --nproc_per_node 2 train.py --lr 1``."""
        words = list(words)
        place = _program_place(words)
        names = {script_name(words[place])}
        if place and words[place - 1] == "-m":
            module = words[place].rpartition(".")[2]
            names = {f"{module}.py", f"{module}/__main__.py"}
        before, after = words[:place], words[place + 1 :]
        shown = (*before[:1], *shown_words(before[1:]), words[place], *shown_words(after))
        return cls(scripts=frozenset(names), arguments_hash=arguments_hash(after), shown=shown)

    def is_that_of(self, facts: Mapping[str, Value]) -> bool:
        """Whether a run was made by it; where its arguments are not known the script counts."""
        return facts.get("script") in self.scripts and facts.get("arguments_hash") in (None, self.arguments_hash)


def _program_place(words: Sequence[str]) -> int:
    """Where the program's file or module stands: an ``-m`` after it is an argument of its own."""
    launcher = ""
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        if launcher and before == "-m":
            if not word.startswith("torch.distributed"):
                return place
            launcher = "torchrun"
        elif found := _LAUNCHER.fullmatch(Path(word).name):
            launcher = found[1]
        elif word.endswith(".py"):
            return place
        elif launcher == "python" and not word.startswith("-") and before not in ("-X", "-W"):
            return 0 if before == "-c" else place
    return 0


def named(directory: Path, command: TriedCommand) -> AdvisedRun:
    """The run in a folder.

    Args:
        directory: As the user named it.
        command: What is about to be run.

    Returns:
        Its folder, and its report, which is made again from the journal where there is one.

    Raises:
        GpuProfError: There is no run in it, or it is one of another script.
    """
    folder = source.run_folder(directory)
    run = AdvisedRun(folder=folder, report=source.remake(folder))
    if run.script and run.script not in command.scripts:
        raise TrialError(
            f"{folder} is a run of {run.script}, and the command runs {' or '.join(sorted(command.scripts))}: "
            "name a run of the same script, or none"
        )
    return run


def newest_first(command: TriedCommand) -> Iterator[AdvisedRun]:
    """Runs of a command below the current folder that are long enough for advice."""
    found = (folder for folder in runs_below(Path.cwd(), source.JOURNALS).folders if command.is_that_of(_facts(folder)))
    for folder in itertools.islice(found, _MOST_RUNS):
        with suppress(GpuProfError):
            run = AdvisedRun(folder=folder, report=source.remake(folder))
            if run.report.steps.steady_count >= MIN_STEADY_STEPS:
                yield run


def _facts(folder: Path) -> Mapping[str, Value]:
    """Script and arguments of a run, among others: a whole report is not made for them where there is a journal."""
    for journal in sorted(folder.glob(source.JOURNALS))[:1]:
        with suppress(OSError), journal.open("rb") as lines:
            for line in itertools.islice(lines, _MOST_LINES):
                with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                    if "script" in (values := msgspec.json.decode(line, type=Conditions).values):
                        return values
    with suppress(GpuProfError):
        return source.remake(folder).run
    return {}
