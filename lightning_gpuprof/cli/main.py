"""The ``gpuprof`` command: errors are printed here, once, and become an exit code."""

from __future__ import annotations

import gc
import importlib
import keyword
import os
import sys
from argparse import SUPPRESS, ArgumentParser
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from lightning_gpuprof import __version__
from lightning_gpuprof.cli.command import CommandParser, HelpFormatter
from lightning_gpuprof.errors import GpuProfError, redacted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightning_gpuprof.cli.command import Command

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

_EPILOG = """\
examples:
  gpuprof report runs/digits/version_0    a run's report, rebuilt from its journal
  gpuprof compare runs/before runs/after  what a change gained
  gpuprof try -- python train.py          what each piece of advice actually gains
  gpuprof export runs/after --format csv  its steps, samples and findings as tables
  gpuprof trace trace.json.gz             everything in a torch.profiler trace
  gpuprof explain input-bound             what a finding means
  gpuprof ranks runs/job                  which rank fails, hangs or is late
  gpuprof merge host*/job --into job      join the folders of two hosts
  gpuprof trigger runs/after              a trace of the next steps of a running job
  gpuprof doctor                          what can be measured on this machine
  eval "$(gpuprof completion bash)"       complete commands and rules with TAB

exit codes:
  0    done (compare: improved or within noise)
  1    compare: the later run is slower
  2    an error, or runs that cannot be compared
  130  interrupted with Ctrl-C
  141  the reader closed the output, as head does

Every command has --json for programs. Results go to standard output, progress and errors to standard error.

environment:
  NO_COLOR=1       no colours
  FORCE_COLOR=1    colours even if the output is not a terminal
  GPUPROF_DEBUG=1  the stack trace of an error, as --debug; also of a wrong value in a training configuration
  GPUPROF=1        before a training command: profile any Lightning script
  GPUPROF_LIVE=1   likewise: a live line about the steps
"""


class Entry(NamedTuple):
    """A command in the list of all; it is imported when it runs, so that no other has to wait for it."""

    name: str
    summary: str
    takes_program: bool = False
    """Whether the words after ``--`` are another program's; its ``run`` gets them as ``program``."""

    def load(self) -> Command:
        """Import it."""
        module = self.name.replace("-", "_") + ("_" if keyword.iskeyword(self.name) else "")
        found: Command = importlib.import_module(f"lightning_gpuprof.cli.{module}").COMMAND
        return found


ENTRIES = (
    Entry(name="report", summary="rebuild a run's report from its folder"),
    Entry(name="compare", summary="compare a later run with an earlier one (exit code 1: slower)"),
    Entry(name="export", summary="a run's steps, samples and findings as CSV or Parquet tables"),
    Entry(name="explain", summary="what a rule's finding means, how it is measured and what to do"),
    Entry(name="doctor", summary="what can be measured on this machine, and what is missing"),
    Entry(name="trace", summary="analyse any torch.profiler trace"),
    Entry(name="nsys-cmd", summary="the command that records the same windows with Nsight Systems or Compute"),
    Entry(name="ranks", summary="which rank of a job fails, hangs or is late, also while it runs"),
    Entry(name="merge", summary="join the folders of hosts without a shared file system"),
    Entry(name="trigger", summary="trace the next steps of a running job"),
    Entry(name="try", summary="measure what each piece of advice actually gains", takes_program=True),
    Entry(name="completion", summary="TAB completion for bash, zsh, fish and other shells"),
)


def make_parser(name: str | None = None) -> ArgumentParser:
    """The parser of all commands; of one that is named, only that has its arguments, as importing takes its time."""
    parser = CommandParser(
        prog="gpuprof",
        description="Where the training time of a PyTorch Lightning run goes, what is wrong and what to change.",
        epilog=_EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    _add_debug(parser, default=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    for entry in ENTRIES:
        own = commands.add_parser(entry.name, help=entry.summary, formatter_class=HelpFormatter)
        _add_debug(own, default=SUPPRESS)
        if name in (None, entry.name):
            entry.load().describe(own)
    return parser


def _add_debug(parser: ArgumentParser, *, default: bool | str) -> None:
    """Before and after the command; there it must not take back what was said before it."""
    parser.add_argument("--debug", action="store_true", default=default, help="the stack trace of an error")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in some words, and return the exit code; without words that of the process, which ends with it.

    Nothing of the process is freed before it ends, which would take a fifth of the time of most commands; what others
    registered with ``atexit`` is not called.
    """
    if argv is not None:
        return _run(argv)
    gc.disable()
    try:
        code = _run(sys.argv[1:])
    except SystemExit as ended:  # help, or words that are no command
        if not isinstance(ended.code, int):
            raise
        code = ended.code
    with suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _run(argv: Sequence[str]) -> int:
    words, program = split_program(list(argv))
    asked = next((word for word in words if not word.startswith("-")), "")
    options = make_parser(asked).parse_args(words)
    if options.debug:
        os.environ["GPUPROF_DEBUG"] = "1"
    entry = next(entry for entry in ENTRIES if entry.name == options.command)
    options.program = program
    try:
        code = entry.load().run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except Exception as error:  # the fence between us and the shell: exit code 1 must stay "regression"
        if os.environ.get("GPUPROF_DEBUG") == "1":
            raise
        print(f"gpuprof: {_words(error)}", file=sys.stderr)
        return EXIT_ERROR
    return code


def split_program(words: list[str]) -> tuple[list[str], list[str]]:
    """The words of ours, and those after ``--`` where the command runs another program."""
    takes = {entry.name for entry in ENTRIES if entry.takes_program}
    if "--" not in words or not takes & set(words[: words.index("--")]):
        return words, []
    place = words.index("--")
    return words[:place], words[place + 1 :]


def _words(error: Exception) -> str:
    if isinstance(error, (GpuProfError, OSError)):
        return redacted(str(error))
    return f"internal error: {type(error).__name__}: {redacted(str(error))} (--debug shows where)"


if __name__ == "__main__":
    raise SystemExit(main())
