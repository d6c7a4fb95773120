"""``gpuprof nsys-cmd``: the Nsight command around a training command.

Options as in the user guides of Nsight Systems 2025 and Nsight Compute 2025.
"""

import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from lightning_gpuprof.cli.command import Command, print_json
from lightning_gpuprof.errors import ArgumentError

Tool = Literal["nsys", "ncu"]
TOOLS: tuple[Tool, ...] = get_args(Tool)

DEFAULT_TRAINING = ("python", "train.py")
DEFAULT_OUTPUT = "gpuprof-%p"
"""Both tools put the process id for ``%p``, so that no earlier report is in the way."""

_WINDOWS_NOTE = (
    "Only the windows of GpuProfiler are recorded; steps and phases are NVTX ranges in them.",
    "Choose them in the script: GpuProfiler(windows=[(200, 205)]), both ends count; in YAML windows: [[200, 205]].",
    "A script without GpuProfiler: put GPUPROF=1 before the command; one window opens once the run is steady.",
)
_NOTES: dict[Tool, tuple[str, ...]] = {
    "nsys": (*_WINDOWS_NOTE, "Each window is a report of its own, with a number in its name: nsys-ui opens it."),
    "ncu": (
        *_WINDOWS_NOTE,
        "Every kernel of a window is replayed several times: one step is enough, windows=[(200, 200)].",
        "A replayed collective hangs: profile a run on one GPU.",
    ),
}


class Advice(msgspec.Struct, kw_only=True, frozen=True):
    """A command and what to know of it."""

    tool: Tool
    argv: list[str]
    """Words of the command, not quoted for a shell."""
    notes: list[str]


def advise(training: Sequence[str], *, tool: Tool = "nsys", windows: int | None = None, output: str = "") -> Advice:
    """The command under which a tool records the windows of a training.

    Args:
        training: Words of the training's command; empty for an example.
        tool: Nsight Systems (time line) or Nsight Compute (single kernels).
        windows: Most windows that Nsight Systems records; None for all.
        output: Name of the report without its suffix; empty for one with the process id.

    Raises:
        ArgumentError: ``windows`` is not positive, or given for a tool that has no limit.
    """
    if windows is not None and windows < 1:
        raise ArgumentError("--windows", windows, "be at least 1", "Leave it out to record all.")
    output = output or DEFAULT_OUTPUT
    if tool == "nsys":
        argv = [
            "nsys",
            "profile",
            "--trace=cuda,nvtx,osrt,cudnn,cublas",
            "--capture-range=cudaProfilerApi",
            "--capture-range-end=repeat" if windows is None else f"--capture-range-end=repeat:{windows}",
            f"--output={output}",
        ]
    else:
        if windows is not None:
            raise ArgumentError("--windows", windows, "be left out for ncu", "Choose windows in the script.")
        argv = ["ncu", "--profile-from-start", "off", "--target-processes", "all", "--nvtx", "--export", output]
    return Advice(tool=tool, argv=[*argv, *(training or DEFAULT_TRAINING)], notes=list(_NOTES[tool]))


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("training", metavar="COMMAND", nargs="*", default=[], help="the training, after --")
    parser.add_argument("--tool", choices=TOOLS, default="nsys", help="nsys: timeline; ncu: single kernels")
    parser.add_argument("--windows", type=int, metavar="N", help="record the first N windows only (nsys)")
    parser.add_argument("--output", type=str, default=DEFAULT_OUTPUT, metavar="NAME", help="report, without suffix")
    parser.add_argument("--json", action="store_true", help="print the command as a JSON list of words")


def _run(options: Namespace) -> int:
    advice = advise(options.training, tool=options.tool, windows=options.windows, output=options.output)
    if options.json:
        print_json(advice)
    else:  # notes are comments of a shell: all of it can be pasted
        print(*(f"# {note}" for note in advice.notes), shlex.join(advice.argv), sep="\n")
    return 0


COMMAND = Command(
    description=(
        "Prints the command line for NVIDIA's profilers that records the same windows as GpuProfiler's own traces.\n"
        "Under them GpuProfiler opens no traces of its own: a process can have only one tracer. All else is measured\n"
        "as usual."
    ),
    examples=(
        "gpuprof nsys-cmd -- python train.py --config run.yaml",
        "gpuprof nsys-cmd --windows 1 --output first -- python train.py",
        "gpuprof nsys-cmd --tool ncu -- python train.py",
    ),
    add_arguments=_add_arguments,
    run=_run,
)
